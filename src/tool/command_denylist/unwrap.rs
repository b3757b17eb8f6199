//! Finds the command that a simple command really runs, behind wrappers such as `sudo` or `env`.

/// A command without its wrappers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnwrappedCommand<'a> {
    /// Name and arguments.
    Command(&'a [String]),
    /// A shell with its script as an argument.
    Script(String),
    /// A shell that reads its script from the input.
    InputScript,
    /// A command that gets arguments from the input (`xargs`).
    InputArguments(&'a [String]),
    /// Only assignments, `NAME=value` each.
    Assignments(&'a [String]),
    /// A loop's variable and its values.
    Loop(&'a str, &'a [String]),
    /// No command at all.
    Nothing,
}

/// Words that another command follows.
const LEADING: &[&str] = &[
    "!", "{", "}", "if", "then", "elif", "else", "while", "until", "do", "coproc", "export", "readonly",
    "local", "declare", "typeset",
];

/// Programs that run the command in their arguments, with their options that take a value and the number of their
/// operands before it.
const WRAPPERS: &[(&str, &[&str], usize)] = &[
    ("sudo", &["-u", "-g", "-h", "-p", "-C", "-T", "-r", "-t", "-U", "-D", "-R", "--user", "--group"], 0),
    ("doas", &["-u", "-C"], 0),
    ("pkexec", &["--user"], 0),
    ("env", &["-u", "-C", "--unset", "--chdir"], 0),
    ("nohup", &[], 0),
    ("setsid", &[], 0),
    ("exec", &["-a"], 0),
    ("command", &[], 0),
    ("builtin", &[], 0),
    ("busybox", &[], 0),
    ("toybox", &[], 0),
    ("time", &["-o", "-f"], 0),
    ("nice", &["-n", "--adjustment"], 0),
    ("ionice", &["-c", "-n"], 0),
    ("chrt", &["-T", "-P", "-D"], 1),
    ("taskset", &[], 1),
    ("stdbuf", &["-i", "-o", "-e"], 0),
    ("timeout", &["-k", "-s", "--kill-after", "--signal"], 1),
    ("watch", &["-n", "--interval"], 0),
    ("flock", &["-w", "-E"], 1),
    ("strace", &["-e", "-o", "-s", "-p", "-u"], 0),
    ("unshare", &[], 0),
    ("xargs", &["-I", "-L", "-n", "-P", "-s", "-a", "-d", "-E"], 0),
    ("parallel", &["-j", "--jobs"], 0),
];
const INPUT_WRAPPERS: &[&str] = &["xargs", "parallel"];

/// Finds what a simple command really runs.
pub(super) fn unwrap(mut words: &[String]) -> UnwrappedCommand<'_> {
    let whole = words;
    let mut takes_input = false;
    loop {
        let Some((first, rest)) = words.split_first() else {
            return match whole.iter().any(|word| is_assignment(word)) {
                true => UnwrappedCommand::Assignments(whole),
                false => UnwrappedCommand::Nothing,
            };
        };
        let name = program(first);
        match name {
            _ if LEADING.contains(&name) || is_assignment(first) => words = rest,
            "su" | "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "mksh" | "fish" => {
                return unwrap_shell(rest);
            }
            "eval" => return UnwrappedCommand::Script(rest.join(" ")),
            "trap" => {
                let script = rest.first().cloned();
                return script.map_or(UnwrappedCommand::Nothing, UnwrappedCommand::Script);
            }
            "for" => {
                return match rest {
                    [name, within, values @ ..] if within == "in" => UnwrappedCommand::Loop(name, values),
                    _ => UnwrappedCommand::Nothing,
                };
            }
            _ => match WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) {
                Some((_, value_options, operands)) => {
                    takes_input |= INPUT_WRAPPERS.contains(&name);
                    match skip_options(name, rest, value_options) {
                        Ok(inner) => words = inner.get(*operands..).unwrap_or_default(),
                        Err(unwrapped) => return unwrapped,
                    }
                }
                None if takes_input => return UnwrappedCommand::InputArguments(words),
                None => return UnwrappedCommand::Command(words),
            },
        }
    }
}

/// The program that a word names: the last component of a path into a folder of programs.
pub(super) fn program(word: &str) -> &str {
    match word.rsplit_once('/') {
        Some((folder, name)) if folder.ends_with("bin") => name,
        Some(_) | None => word,
    }
}

/// Splits `NAME=value`.
pub(super) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

fn is_assignment(word: &str) -> bool {
    assignment(word).is_some()
}

/// Skips a wrapper's options.
fn skip_options<'a>(
    name: &str,
    mut words: &'a [String],
    value_options: &[&str],
) -> Result<&'a [String], UnwrappedCommand<'a>> {
    while let Some((option, rest)) = words.split_first().filter(|(word, _)| word.starts_with('-')) {
        words = rest;
        if option == "--" {
            break;
        }
        if name == "command" && option.contains(['v', 'V']) {
            return Err(UnwrappedCommand::Nothing);
        }
        if name == "env" && (option == "-S" || option == "--split-string") {
            return Err(UnwrappedCommand::Script(rest.join(" ")));
        }
        if value_options.contains(&option.as_str()) {
            words = words.get(1..).unwrap_or_default();
        }
    }
    Ok(words)
}

/// What a shell, or `su`, runs: the script after the option `-c`, else its input.
fn unwrap_shell(rest: &[String]) -> UnwrappedCommand<'_> {
    let is_c = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.contains('c');
    if let Some(at) = rest.iter().position(is_c) {
        let script = rest[at + 1..].iter().find(|word| !word.starts_with('-'));
        return script.map_or(UnwrappedCommand::Nothing, |script| UnwrappedCommand::Script(script.clone()));
    }
    let reads_input = rest.iter().all(|word| word.starts_with('-')) || rest.iter().any(|word| word == "-s");
    if reads_input { UnwrappedCommand::InputScript } else { UnwrappedCommand::Nothing }
}
