//! The variables that skills declare for the commands of a model: the names that are taken, and their present values.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{Catalogue, Skill};
use crate::{excerpt::first_chars, tool::one_line};

/// Limit of a value, in bytes; a longer one is not passed.
const MAX_VALUE_BYTES: usize = 16 * 1024;
/// Limit of all names and values of a command, in bytes: a request for a runner has room for them.
const MAX_TOTAL_BYTES: usize = 64 * 1024;
/// Limit of the names of one skill.
const MAX_NAMES: usize = 32;
/// Limit of a name, in characters; a longer word is cut in a remark.
const MAX_NAME_CHARS: usize = 64;

/// Beginnings of names that are never passed: the loader, Hermod itself, functions of shells, and settings with which
/// git runs programs.
const RESERVED_BEGINNINGS: &[&str] = &["LD_", "DYLD_", "HERMOD_", "BASH_FUNC_", "GIT_CONFIG"];
/// Names that are never passed: they change which code programs load or run, or commands have their own value.
const RESERVED: &[&str] = &[
    "BASHOPTS",
    "BASH_ENV",
    "CDPATH",
    "CLASSPATH",
    "EDITOR",
    "ENV",
    "GCONV_PATH",
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_TEMPLATE_DIR",
    "GLIBC_TUNABLES",
    "HOME",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LOGNAME",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "MAKEFLAGS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PAGER",
    "PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "RUBYLIB",
    "RUBYOPT",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "SHELL",
    "SHELLOPTS",
    "SSH_ASKPASS",
    "TERM",
    "TMPDIR",
    "USER",
    "VISUAL",
    "XDG_CACHE_HOME",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
];

/// The variables that a skill declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeclaredVariables {
    /// A declaration of the operator.
    Trusted {
        /// Names that commands get, as far as they are set; no two are equal.
        names: Vec<String>,
        /// Words that are no such names, on one line each.
        refused: Vec<String>,
    },
    /// The skill declares variables, and tools may write it: a model could have declared them.
    Untrusted,
}

impl Default for DeclaredVariables {
    fn default() -> Self {
        Self::Trusted { names: Vec::new(), refused: Vec::new() }
    }
}

impl DeclaredVariables {
    /// What is taken of a trusted declaration.
    pub(super) fn judged(words: Vec<String>, withheld: &BTreeSet<String>) -> Self {
        let (mut names, mut refused) = (Vec::new(), Vec::new());
        for word in words {
            if names.contains(&word) {
                continue;
            }
            match may_be_passed(&word) && !withheld.contains(&word) && names.len() < MAX_NAMES {
                true => names.push(word),
                false => refused.push(one_line(first_chars(&word, MAX_NAME_CHARS).as_bytes())),
            }
        }
        Self::Trusted { names, refused }
    }

    fn names(&self) -> &[String] {
        match self {
            Self::Trusted { names, .. } => names,
            Self::Untrusted => &[],
        }
    }

    /// Lines for the model about a declaration: what commands get of it, and what not. `lookup` gives values.
    pub(in crate::tool) fn remark(&self, lookup: impl Fn(&str) -> Option<String>) -> String {
        let (names, refused) = match self {
            Self::Trusted { names, refused } => (names, refused),
            Self::Untrusted => {
                return "\n[its `env` is ignored: only a skill in the operator's folders, where tools write nothing, \
                        declares variables for commands]"
                    .to_owned();
            }
        };
        let (set, unset): (Vec<_>, Vec<_>) =
            names.iter().map(String::as_str).partition(|name| value_of(name, &lookup).is_some());
        let refused: Vec<_> = refused.iter().map(String::as_str).collect();
        let mut remark = String::new();
        for (what, names) in [
            ("variables that commands get", set),
            ("variables of the skill that are not set", unset),
            ("variables of the skill that commands never get", refused),
        ] {
            if !names.is_empty() {
                let more = if names.len() > MAX_NAMES { ", …" } else { "" };
                let names = names[..names.len().min(MAX_NAMES)].join(", ");
                write!(remark, "\n[{what}: {names}{more}]").expect("writing to a string does not fail");
            }
        }
        remark
    }
}

impl Catalogue {
    /// The variables of all trusted declarations, with the values that `lookup` gives. Unset ones are missing, as are
    /// those beyond the limits.
    pub fn variables(&self, lookup: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
        let names: BTreeSet<&String> = self.skills.iter().flat_map(Skill::variable_names).collect();
        let (mut passed, mut total) = (Vec::new(), 0);
        for name in names {
            let Some(value) = value_of(name, &lookup) else { continue };
            total += name.len() + value.len();
            if total > MAX_TOTAL_BYTES {
                tracing::warn!(%name, "variables of skills from this one on are too long together for a command");
                break;
            }
            passed.push((name.clone(), value));
        }
        passed
    }
}

impl Skill {
    fn variable_names(&self) -> &[String] {
        self.variables.names()
    }
}

/// A value of this process's environment; `None` if it is unset or no text, which could not be redacted.
pub fn own_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn value_of(name: &str, lookup: impl Fn(&str) -> Option<String>) -> Option<String> {
    lookup(name).filter(|value| value.len() <= MAX_VALUE_BYTES)
}

/// True for the name of a variable that a skill may declare.
fn may_be_passed(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && name.len() <= MAX_NAME_CHARS
        && name.bytes().all(is_allowed)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !RESERVED.contains(&name)
        && !RESERVED_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::tool::skills::SkillFolders;

    fn skill(folder: &Path, name: &str, env: &str) {
        fs::create_dir_all(folder.join(name)).unwrap();
        let text = format!("---\nname: {name}\ndescription: x\nenv: {env}\n---\n");
        fs::write(folder.join(name).join("SKILL.md"), text).unwrap();
    }

    #[test]
    fn names_that_change_what_runs_and_credentials_are_refused() {
        let withheld = BTreeSet::from(["ACME_API_KEY".to_owned()]);
        let check = |name: &str, expect: bool| {
            let declared = DeclaredVariables::judged(vec![name.to_owned()], &withheld);
            assert_eq!(!declared.names().is_empty(), expect, "{name}");
        };
        for name in ["TRACKER_TOKEN", "_x1", "http_proxy", "OTHER_API_KEY", "PYTHONUTF8", "LDAP_HOST", "a"] {
            check(name, true);
        }
        for name in ["LD_PRELOAD", "DYLD_X", "HERMOD_HOME", "BASH_ENV", "ENV", "PATH", "HOME", "IFS"] {
            check(name, false);
        }
        for name in ["PYTHONPATH", "NODE_OPTIONS", "GIT_CONFIG_COUNT", "BASH_FUNC_ls", "ACME_API_KEY"] {
            check(name, false);
        }
        for name in ["", "1A", "A-B", "A=B", "Ä", "A\0", &"A".repeat(MAX_NAME_CHARS + 1)] {
            check(name, false);
        }
        assert!(RESERVED.is_sorted());
    }

    #[test]
    fn only_set_values_within_the_limits_are_passed() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("skills");
        skill(&own, "one", "[B_TOKEN, A_TOKEN, B_TOKEN, PATH, UNSET, LONG]");
        skill(&own, "two", "[A_TOKEN, C_TOKEN]");
        let lookup = |name: &str| match name {
            "UNSET" => None,
            "LONG" => Some("x".repeat(MAX_VALUE_BYTES + 1)),
            _ => Some(name.to_lowercase()),
        };
        let found = SkillFolders { own: Some(own.clone()), ..SkillFolders::default() }.read_operators();
        let passed = ["A_TOKEN", "B_TOKEN", "C_TOKEN"].map(|name| (name.to_owned(), name.to_lowercase()));
        assert_eq!(found.variables(lookup), passed);
        assert_eq!(
            found.get("one").unwrap().variables.remark(lookup),
            "\n[variables that commands get: B_TOKEN, A_TOKEN]\n[variables of the skill that are not set: UNSET, LONG]\
             \n[variables of the skill that commands never get: PATH]"
        );
        let names: Vec<_> = (0..9).map(|n| format!("V{n}")).collect();
        skill(&own, "two", &names.join(", "));
        let found = SkillFolders { own: Some(own), ..SkillFolders::default() }.read_operators();
        let all = found.variables(|name| name.starts_with('V').then(|| "x".repeat(MAX_VALUE_BYTES)));
        assert_eq!(all.len(), 3, "their names count too");
    }

    #[test]
    fn a_skill_that_tools_may_write_declares_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let [work, own, further, open] =
            ["work", "state/skills", "further", "open"].map(|name| root.join(name));
        skill(&work.join(".hermod/skills"), "confined", "CONFINED");
        skill(&work.join("mine"), "inside", "INSIDE");
        skill(&own, "own", "OWN");
        skill(&further, "further", "FURTHER");
        skill(&open, "open", "OPEN");
        skill(&work.join("other"), "linked", "LINKED");
        std::os::unix::fs::symlink(work.join("other/linked"), own.join("linked")).unwrap();
        let folders = SkillFolders {
            own: Some(own),
            further: vec![work.join("mine"), further.clone(), open.clone()],
            writable: vec![open.join("open/scripts")],
            withheld: BTreeSet::new(),
            is_off: false,
        };
        let check = |workspace: &Path, expect: &[&str]| {
            let found = folders.read(workspace.to_str().unwrap());
            let passed = found.variables(|name| Some(name.to_owned()));
            let passed: Vec<_> = passed.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(passed, expect, "{workspace:?}");
            assert_eq!(found.get("open").unwrap().variables, DeclaredVariables::Untrusted);
            assert!(found.get("open").unwrap().variables.remark(|_| None).contains("is ignored"));
        };
        check(&work, &["FURTHER", "OWN"]);
        // The state directory is inside, and no tool writes it.
        check(&root, &["OWN"]);
        check(&further.join("further"), &["INSIDE", "LINKED", "OWN"]);
        fs::create_dir(root.join("empty")).unwrap();
        check(&root.join("empty"), &["FURTHER", "INSIDE", "LINKED", "OWN"]);
    }
}
