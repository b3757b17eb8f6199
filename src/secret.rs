//! Secrets, references to them and the reading of referenced files and variables, and the redaction of secrets and URLs
//! in texts. Also keeps the process's memory private. Commands that print a secret are run in `credential/`.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use subtle::ConstantTimeEq as _;

use crate::files::read_regular_text;

/// Size limit of a file with a secret.
const MAX_SECRET_BYTES: u64 = 64 * 1024;
/// Bytes at the start of a secret by which it is recognised in a text. They are more than the few with which all keys
/// of a vendor begin.
const PREFIX_BYTES: usize = 12;
/// Secrets with fewer bytes are not hidden in texts. They are placeholders for local servers that require some key
/// (`x`, `none`, `ollama`); hiding them would make messages unreadable.
const MIN_HIDDEN_BYTES: usize = 7;

/// A text that must not be shown: it cannot be displayed or serialised, and `Debug` shows `***`.
///
/// ```compile_fail
/// let secret = hermod::secret::Secret::new("sk-1234");
/// println!("{secret}");
/// ```
///
/// ```compile_fail
/// let secret = hermod::secret::Secret::new("sk-1234");
/// serde_json::to_string(&secret);
/// ```
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The secret itself, only for the code that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` with this secret alone redacted, as by `redact`.
    pub(crate) fn redact_in(&self, text: String) -> String {
        redact(std::slice::from_ref(self), text)
    }

    fn is_hidden(&self) -> bool {
        self.0.len() >= MIN_HIDDEN_BYTES
    }

    /// The first bytes, by which the secret is recognised.
    fn prefix(&self) -> &str {
        &self.0[..self.0.floor_char_boundary(PREFIX_BYTES)]
    }

    /// Number of bytes to hide at the start of `text`; 0 if `text` does not begin with the secret's prefix. Key
    /// characters that follow are hidden too: they may belong to an unknown key of the same account.
    fn matched_bytes(&self, text: &str) -> usize {
        if !self.is_hidden() || !text.starts_with(self.prefix()) {
            return 0;
        }
        let same = text.chars().zip(self.0.chars()).take_while(|(a, b)| a == b);
        let same: usize = same.map(|(c, _)| c.len_utf8()).sum();
        let is_of_key = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let rest = if self.0.len() < PREFIX_BYTES {
            0
        } else {
            text[same..].find(|c| !is_of_key(c)).unwrap_or(text.len() - same)
        };
        same + rest
    }
}

/// `text` with every occurrence of a secret hidden, also of its beginning alone: texts may be truncated, and vendors
/// quote the keys that they refuse. All secrets are matched in one pass. Keys of one vendor begin alike, so hiding
/// one must not leave a part of another.
pub(crate) fn redact(secrets: &[Secret], text: String) -> String {
    let is_present = |secret: &Secret| secret.is_hidden() && text.contains(secret.prefix());
    let secrets: Vec<&Secret> = secrets.iter().filter(|secret| is_present(secret)).collect();
    if secrets.is_empty() {
        return text;
    }
    let (mut redacted, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some(first) = rest.chars().next() {
        let length = secrets.iter().map(|secret| secret.matched_bytes(rest)).max().unwrap_or(0);
        if length == 0 {
            redacted.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            redacted.push_str("***");
            rest = &rest[length..];
        }
    }
    redacted
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Compares two secrets, or hashes of secrets, in a time that depends only on their lengths.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// The URL with `…` in place of its query; only `…` for a URL that may contain a user and a password.
pub fn redacted_url(url: &str) -> String {
    if url.contains('@') {
        return "…".to_owned();
    }
    url.split_once('?').map_or_else(|| url.to_owned(), |(before, _)| format!("{before}?…"))
}

/// The location of a secret: `env:NAME`, `file:PATH` or `command:PROGRAM ARGUMENTS`.
#[derive(Clone, PartialEq, Eq)]
pub enum Reference {
    /// The name of an environment variable.
    Variable(String),
    /// A file's path, absolute or beginning with `~/`; white space around the secret is ignored.
    File(PathBuf),
    /// A command that writes the secret to standard output: the program, then its arguments.
    Command(Vec<String>),
}

impl Reference {
    /// A command from the words of a list; the first word begins with `command:`.
    pub fn of_words(words: &[&str]) -> Result<Self, String> {
        let (program, arguments) = words
            .split_first()
            .and_then(|(first, rest)| Some((first.strip_prefix(COMMAND)?, rest)))
            .ok_or("a list is a command here, like [\"command:PROGRAM\", \"an argument\"]")?;
        let is_bare = !program.contains('/') && !program.is_empty();
        if !is_bare && !is_placed(program) {
            return Err("after `command:` comes a program that PATH has, or an absolute path, or one that begins with ~/"
                .to_owned());
        }
        let words = [program].into_iter().chain(arguments.iter().copied());
        Ok(Self::Command(words.map(str::to_owned).collect()))
    }

    /// The file that the reference names, in this home folder if it begins with `~/`.
    pub fn file(&self, home: Option<&Path>) -> Option<PathBuf> {
        let Self::File(path) = self else { return None };
        match path.strip_prefix("~") {
            Ok(below) => home.map(|home| home.join(below)),
            Err(_) => Some(path.clone()),
        }
    }

    /// The same reference with `~/` replaced by the home folder.
    pub fn expand_home(&self, variables: &BTreeMap<String, String>) -> Result<Self, MissingSecret> {
        let missing = |reason: String| MissingSecret { reference: self.clone(), reason };
        Ok(match self {
            Self::Variable(name) => Self::Variable(name.clone()),
            Self::File(path) => Self::File(expand_path(path, variables).map_err(missing)?),
            Self::Command(words) => {
                let mut words = words.clone();
                if let Some(program) = words.first_mut().filter(|program| program.starts_with(HOME)) {
                    let path = expand_path(Path::new(program), variables).map_err(missing)?;
                    *program = path.to_string_lossy().into_owned();
                }
                Self::Command(words)
            }
        })
    }
}

const COMMAND: &str = "command:";
const HOME: &str = "~/";

/// True if the path is absolute or begins with `~/`.
fn is_placed(path: &str) -> bool {
    path.starts_with('/') || path.starts_with(HOME)
}

impl FromStr for Reference {
    type Err = String;

    /// The error never contains the text, because that may be the secret itself.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("env:") {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let is_name = name.bytes().all(is_allowed) && !name.starts_with(|c: char| c.is_ascii_digit());
            return match is_name && !name.is_empty() {
                true => Ok(Self::Variable(name.to_owned())),
                false => Err("after `env:` comes the name of a variable, like env:ACME_API_KEY".to_owned()),
            };
        }
        if let Some(path) = text.strip_prefix("file:") {
            return match is_placed(path) {
                true => Ok(Self::File(path.into())),
                false => Err("after `file:` comes an absolute path, or one that begins with ~/".to_owned()),
            };
        }
        if text.starts_with(COMMAND) {
            return Self::of_words(&text.split_whitespace().collect::<Vec<_>>());
        }
        Err("a secret itself does not belong here; put it into a variable and write \"env:NAME\", or into a file that \
             only you can read and write \"file:PATH\", or write \"command:PROGRAM\" for one that prints it"
            .to_owned())
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Reference {
    /// Omits the arguments of a command, because they may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Command(words) => {
                let more = if words.len() > 1 { " …" } else { "" };
                write!(f, "{COMMAND}{}{more}", words.first().map_or("", String::as_str))
            }
        }
    }
}

/// Why a reference yields no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reference}: {reason}")]
pub struct MissingSecret {
    /// The reference.
    pub reference: Reference,
    /// The problem and its remedy.
    pub reason: String,
}

impl Reference {
    /// Reads the secret. Fails for a command, which this does not run.
    pub fn resolve(&self, variables: &BTreeMap<String, String>) -> Result<Secret, MissingSecret> {
        let missing = |reason: String| MissingSecret { reference: self.clone(), reason };
        let text = match self {
            Self::Command(_) => return Err(missing("a command is not run for this".to_owned())),
            Self::Variable(name) => match variables.get(name) {
                Some(text) => text.clone(),
                None => return Err(missing(format!("the variable is not set; export {name}"))),
            },
            Self::File(path) => read(path, variables).map_err(missing)?,
        };
        match text.trim() {
            "" => Err(missing("it is empty; put the secret there".to_owned())),
            text => Ok(Secret::new(text)),
        }
    }
}

fn expand_path(path: &Path, variables: &BTreeMap<String, String>) -> Result<PathBuf, String> {
    match (path.strip_prefix("~"), variables.get("HOME")) {
        (Err(_), _) => Ok(path.to_owned()),
        (Ok(rest), Some(home)) => Ok(Path::new(home).join(rest)),
        (Ok(_), None) => Err("HOME is not set, so `~` is nowhere; give an absolute path".to_owned()),
    }
}

fn read(path: &Path, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let read_error = |error: io::Error| format!("{error}; it must be a file that this user can read");
    read_regular_text(&expand_path(path, variables)?, MAX_SECRET_BYTES).map_err(read_error)
}

/// Prevents other processes of this user, such as the commands of tools, from reading this process's memory and
/// variables. Also keeps secrets out of core dumps.
pub fn keep_memory_private() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::process::dumpable_behavior;

    use super::*;

    #[test]
    fn a_secret_does_not_show() {
        let secret = Secret::new("sk-1234");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(secret.redact_in("key sk-1234 is wrong".into()), "key *** is wrong");
        for placeholder in ["", "x", "e", "EMPTY", "ollama"] {
            let text = "an ollama server, EMPTY or exact";
            assert_eq!(Secret::new(placeholder).redact_in(text.into()), text, "{placeholder}");
        }
        let long = Secret::new("sk-acme-0123456789abcdef");
        assert_eq!(
            long.redact_in("twice sk-acme-0123456789abcdef, sk-acme-01234…".into()),
            "twice ***, ***…"
        );
        assert_eq!(long.redact_in("keys begin with sk-acme-".into()), "keys begin with sk-acme-");
        let alike = ["sk-acme-012345-one", "sk-acme-012345-other", "süßstoff"].map(Secret::new);
        let text = "sk-acme-012345-other, sk-acme-012345-one, ein süßstoffß".to_owned();
        assert_eq!(redact(&alike, text), "***, ***, ein ***ß");
        let unknown = "sk-acme-012345-of-another, sk-acme-0999".to_owned();
        assert_eq!(redact(&alike[..1], unknown), "***, sk-acme-0999");
    }

    #[test]
    fn a_reference_is_no_secret() {
        let check = |text: &str, expect: Result<Reference, &str>| match (text.parse::<Reference>(), expect) {
            (Ok(reference), Ok(expect)) => {
                assert_eq!((reference.to_string().as_str(), &reference), (text, &expect));
            }
            (Err(error), Err(part)) => {
                assert!(error.contains(part), "{error}");
                assert!(!error.contains("sk-1234"), "{error}");
            }
            (got, expect) => panic!("{text}: expected {expect:?}, got {got:?}"),
        };
        check("env:ACME_KEY", Ok(Reference::Variable("ACME_KEY".into())));
        check("file:/run/key", Ok(Reference::File("/run/key".into())));
        check("file:~/key", Ok(Reference::File("~/key".into())));
        check("command:pass", Ok(Reference::Command(vec!["pass".into()])));
        check("sk-1234", Err("does not belong here"));
        check("env:sk-1234", Err("name of a variable"));
        check("env:", Err("name of a variable"));
        check("env:1A", Err("name of a variable"));
        check("file:sk-1234", Err("absolute path"));
        check("command:./sk-1234", Err("absolute path"));
        check("command:", Err("a program"));
        check("command: sk-1234", Err("a program"));
        check("", Err("does not belong here"));
    }

    #[test]
    fn a_reference_leads_to_its_secret_or_says_why_not() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("key", " sk-1234\n"), ("empty", "\n")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        fs::write(dir.path().join("binary"), [0xff, 0xfe]).unwrap();
        let home = dir.path().to_str().unwrap();
        let variables =
            BTreeMap::from([("KEY".to_owned(), "sk-1234".to_owned()), ("HOME".to_owned(), home.to_owned())]);
        let check = |reference: &str, expect: Result<&str, &str>| {
            let reference: Reference = reference.parse().unwrap();
            match (reference.resolve(&variables), expect) {
                (Ok(secret), Ok(expect)) => assert_eq!(secret.reveal(), expect),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (got, expect) => panic!("{reference}: expected {expect:?}, got {got:?}"),
            }
        };
        check("env:KEY", Ok("sk-1234"));
        check("env:OTHER", Err("env:OTHER: the variable is not set; export OTHER"));
        check("file:~/key", Ok("sk-1234"));
        check(&format!("file:{home}/key"), Ok("sk-1234"));
        check("file:~/empty", Err("it is empty"));
        check("file:~/nowhere", Err("a file that this user can read"));
        check("file:~/", Err("it is a folder, and only regular files are read"));
        check("file:~/binary", Err("a file that this user can read"));
    }

    #[test]
    fn a_command_has_words_and_does_not_show_them() {
        let words = |words: &[&str]| Reference::Command(words.iter().map(|word| (*word).into()).collect());
        let split: Reference = "command:~/bin/key  --of sk-1234".parse().unwrap();
        assert_eq!(split, words(&["~/bin/key", "--of", "sk-1234"]));
        assert_eq!(Reference::of_words(&["command:key", "a b"]), Ok(words(&["key", "a b"])));
        assert!(Reference::of_words(&["key", "a b"]).is_err() && Reference::of_words(&[]).is_err());
        assert_eq!(format!("{split} {split:?}"), "command:~/bin/key … command:~/bin/key …");
        let home = BTreeMap::from([("HOME".to_owned(), "/home/me".to_owned())]);
        assert_eq!(split.expand_home(&home), Ok(words(&["/home/me/bin/key", "--of", "sk-1234"])));
        assert!(split.expand_home(&BTreeMap::new()).unwrap_err().to_string().contains("HOME is not set"));
        assert!(split.resolve(&home).unwrap_err().to_string().ends_with(": a command is not run for this"));
    }

    #[test]
    fn memory_is_kept_private() {
        keep_memory_private().unwrap();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
