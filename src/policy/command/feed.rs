//! What a command reads from its input, as far as the script tells, and what it prints then.

use super::{
    escape::{from_base64, from_hex, unescape},
    script::REFERENCE,
};

/// The input of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Feed {
    /// No other command feeds it.
    #[default]
    None,
    /// This text.
    Known {
        text: String,
        /// True if a command of the script has decoded the text.
        is_decoded: bool,
    },
    /// A text that the script does not tell.
    Unknown {
        /// True if it comes from the network.
        is_download: bool,
    },
}

impl Feed {
    pub(super) fn known(text: String) -> Self {
        Self::Known { text, is_decoded: false }
    }

    pub(super) fn is_download(&self) -> bool {
        *self == Self::Unknown { is_download: true }
    }

    /// The bytes of the text.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Known { text, .. } => text.len(),
            Self::None | Self::Unknown { .. } => 0,
        }
    }

    /// The text, or the mark of an unknown one.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Known { text, .. } => text,
            Self::None => String::new(),
            Self::Unknown { .. } => REFERENCE.into(),
        }
    }

    /// The text after `change`, which decodes it; unknown if it cannot.
    fn decoded(self, change: impl FnOnce(&str) -> Option<String>) -> Self {
        match self {
            Self::Known { text, .. } if !text.contains(REFERENCE) && !text.contains("${") => {
                match change(&text) {
                    Some(text) => Self::Known { text, is_decoded: true },
                    None => Self::Unknown { is_download: false },
                }
            }
            Self::Known { .. } | Self::None => Self::Unknown { is_download: false },
            Self::Unknown { .. } => self,
        }
    }
}

/// Programs that print what they get from the network.
pub(super) const DOWNLOADERS: &[&str] = &[
    "curl", "wget", "fetch", "aria2c", "axel", "http", "https", "httpie", "xh", "lynx", "w3m", "links", "nc",
    "ncat", "netcat", "ftp", "lftp", "tftp", "scp", "sftp", "gh", "dig", "nslookup", "iwr", "irm",
];

/// Stands for a file or a folder that `mktemp` has made.
pub(super) const NEW_TEMPORARY: &str = "/tmp/mktemp.XXXXXXXXXX";

/// Programs that print a script for the shell that runs them, to be read by `eval`, and the words that ask for it.
const HOOKS: &[(&str, &[&str])] = &[
    ("brew", &["shellenv"]),
    ("conda", &["shell.bash"]),
    ("direnv", &["hook", "export"]),
    ("dircolors", &["-b"]),
    ("fnm", &["env"]),
    ("mise", &["activate", "env"]),
    ("nodenv", &["init"]),
    ("opam", &["env"]),
    ("pyenv", &["init", "virtualenv-init"]),
    ("rbenv", &["init"]),
    ("ssh-agent", &["-s"]),
    ("starship", &["init"]),
    ("zoxide", &["init"]),
];

fn prints_hook(name: &str, arguments: &[String]) -> bool {
    let hook = HOOKS.iter().find(|(program, _)| *program == name);
    hook.is_some_and(|(_, verbs)| arguments.first().is_some_and(|word| verbs.contains(&word.as_str())))
}

/// The output of a command, as far as its arguments and its input determine it.
pub(super) fn output_of(name: &str, arguments: &[String], input: Feed) -> Feed {
    let has = |options: &[&str]| arguments.iter().any(|word| options.contains(&word.as_str()));
    let has_letter = |letter: char| {
        arguments.iter().any(|word| {
            word.strip_prefix('-').is_some_and(|rest| !rest.starts_with('-') && rest.contains(letter))
        })
    };
    match name {
        "echo" => echoed(arguments),
        "printf" => formatted(arguments),
        "base64" | "gbase64" if has_letter('d') || has_letter('D') || has(&["--decode"]) => {
            input.decoded(from_base64)
        }
        "openssl" if has(&["-d"]) && has(&["base64", "-base64", "-a"]) => input.decoded(from_base64),
        "xxd" if has_letter('r') => input.decoded(from_hex),
        "rev" => input.decoded(|text| Some(text.lines().map(reversed_line).collect())),
        "tr" => translated(arguments, input),
        "cat" if arguments.iter().all(|word| word.starts_with('-')) => input,
        "tee" => input,
        "which" => {
            arguments.last().map_or(Feed::Unknown { is_download: false }, |name| Feed::known(name.clone()))
        }
        "mktemp" => Feed::known(NEW_TEMPORARY.to_owned()),
        name if prints_hook(name, arguments) => Feed::known("true".to_owned()),
        name if DOWNLOADERS.contains(&name) => Feed::Unknown { is_download: true },
        _ => Feed::Unknown { is_download: input.is_download() },
    }
}

fn echoed(arguments: &[String]) -> Feed {
    let options = arguments.iter().take_while(|word| matches!(&***word, "-n" | "-e" | "-ne" | "-en" | "-E"));
    let words = arguments[options.count()..].join(" ");
    let text = unescape(&words);
    Feed::Known { is_decoded: has_numbers(&words), text }
}

/// What `printf` prints. Its conversions are replaced in order.
fn formatted(arguments: &[String]) -> Feed {
    let arguments = arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments);
    let Some((format, values)) = arguments.split_first() else { return Feed::None };
    let mut values = values.iter();
    let (mut text, mut rest) = (String::new(), format.as_str());
    while let Some(at) = rest.find('%') {
        text.push_str(&unescape(&rest[..at]));
        let conversion = &rest[at + 1..];
        let Some(end) = conversion.find(|c: char| c.is_ascii_alphabetic() || c == '%') else { break };
        match &conversion[end..=end] {
            "%" => text.push('%'),
            "b" => text.push_str(&unescape(values.next().map_or("", String::as_str))),
            _ => text.push_str(values.next().map_or("", String::as_str)),
        }
        rest = &conversion[end + 1..];
    }
    text.push_str(&unescape(rest));
    for value in values {
        text.push_str(if format.contains("\\n") || format.contains('\n') { "\n" } else { "" });
        text.push_str(value);
    }
    Feed::Known { text, is_decoded: has_numbers(format) || format.contains("%b") }
}

/// True if the text spells characters as numbers.
fn has_numbers(text: &str) -> bool {
    text.split('\\').skip(1).any(|rest| {
        rest.starts_with(['x', 'u', 'U'])
            || rest.as_bytes().get(..3).is_some_and(|d| d.iter().all(u8::is_ascii_digit))
    })
}

fn reversed_line(line: &str) -> String {
    line.chars().rev().chain(['\n']).collect()
}

/// What `tr` makes of a text, for lists of characters and ranges, and for `-d`.
fn translated(arguments: &[String], input: Feed) -> Feed {
    let sets: Vec<&str> =
        arguments.iter().filter(|word| !word.starts_with('-')).map(String::as_str).collect();
    let options: String = arguments.iter().filter_map(|word| word.strip_prefix('-')).collect();
    if sets.iter().any(|set| set.len() > 512) {
        return Feed::Unknown { is_download: false };
    }
    match (options.as_str(), &sets[..]) {
        ("", [from, to]) => {
            let (from, to) = (characters(from), characters(to));
            let change = |c: char| match from.iter().position(|other| *other == c) {
                Some(at) => to.get(at).or(to.last()).copied().unwrap_or(c),
                None => c,
            };
            input.decoded(|text| Some(text.chars().map(change).collect()))
        }
        ("d", [set]) => {
            let set = characters(set);
            input.decoded(|text| Some(text.chars().filter(|c| !set.contains(c)).collect()))
        }
        _ => Feed::Unknown { is_download: input.is_download() },
    }
}

/// The characters of a set of `tr`.
fn characters(set: &str) -> Vec<char> {
    let set: Vec<char> = match set {
        "[:upper:]" => ('A'..='Z').collect(),
        "[:lower:]" => ('a'..='z').collect(),
        set => unescape(set).chars().collect(),
    };
    let (mut all, mut rest) = (Vec::new(), &set[..]);
    while let Some((first, after)) = rest.split_first() {
        rest = match after {
            ['-', last, after @ ..] if first.is_ascii() && last.is_ascii() && first <= last => {
                all.extend(*first..=*last);
                after
            }
            _ => {
                all.push(*first);
                after
            }
        };
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Feed, output_of};

    #[test]
    fn the_output_of_a_pipe_is_known_if_its_parts_determine_it() {
        let check = |command: &str, input: &str, expected: Option<&str>| {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let output = output_of(&words[0], &words[1..], Feed::known(input.into()));
            let text = match output {
                Feed::Known { text, .. } => Some(text),
                Feed::None | Feed::Unknown { .. } => None,
            };
            assert_eq!(text.as_deref(), expected, "{command}");
        };
        check("rev", "/ fr- mr\n", Some("rm -rf /\n"));
        check("tr a-y b-z", "ql", Some("rm"));
        check("tr -d x", "rxm", Some("rm"));
        check("xxd -r -p", "726d202d7266", Some("rm -rf"));
        check("base64 -di", "cm0=", Some("rm"));
        check(r"printf \x72%s\n m", "", Some("rm\n"));
        check("printf %s%s r m", "", Some("rm"));
        check("echo -n a b", "", Some("a b"));
        check("sort", "a", None);
    }
}
