//! Finds what a simple command really runs, one wrapper such as `sudo` or `env` at a time.

/// One layer of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnwrappedCommand<'a> {
    /// Name and arguments of a command that runs nothing else.
    Command,
    /// A wrapper around a command.
    Inner(&'a [String]),
    /// A shell with its script as an argument.
    Script(String),
    /// A shell that reads its script from the input.
    InputScript,
    /// A shell that reads its script from a file.
    ScriptFile(&'a str),
    /// A command that gets arguments from the input (`xargs`), in the place of the placeholder if it has one.
    InputArguments { words: &'a [String], placeholder: Option<String> },
    /// A command that is run with each of these arguments (`parallel`).
    ListedArguments { words: &'a [String], arguments: &'a [String] },
    /// A loop's variable and its values.
    Loop(&'a str, &'a [String]),
    /// Assignments in the arguments, as of `export`.
    Assignments(&'a [String]),
    /// No command at all.
    Nothing,
}

/// Programs that run the command in their arguments, with their options that take a value and the number of their
/// operands before it.
const WRAPPERS: &[(&str, &[&str], usize)] = &[
    (
        "sudo",
        &["-u", "-g", "-h", "-p", "-C", "-T", "-r", "-t", "-U", "-D", "-R", "--user", "--group", "--prompt"],
        0,
    ),
    ("doas", &["-u", "-C"], 0),
    ("pkexec", &["--user"], 0),
    ("run0", &["-u"], 0),
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
    ("cpulimit", &["-l", "-p"], 0),
    ("stdbuf", &["-i", "-o", "-e"], 0),
    ("unbuffer", &[], 0),
    ("timeout", &["-k", "-s", "--kill-after", "--signal"], 1),
    ("gtimeout", &["-k", "-s", "--kill-after", "--signal"], 1),
    ("flock", &["-w", "-E"], 1),
    ("strace", &["-e", "-o", "-s", "-p", "-u"], 0),
    ("ltrace", &["-e", "-o", "-s", "-p", "-u"], 0),
    ("perf", &["-o", "-e"], 1),
    ("unshare", &[], 0),
    ("nsenter", &["-t", "-S", "-G"], 0),
    ("chroot", &[], 1),
    ("systemd-run", &["-p", "-u", "--unit", "-t"], 0),
    ("systemd-inhibit", &[], 0),
    ("setpriv", &[], 0),
    ("caffeinate", &["-t", "-w"], 0),
    ("proxychains", &["-f"], 0),
    ("proxychains4", &["-f"], 0),
    ("torsocks", &[], 0),
    ("fakeroot", &[], 0),
    ("faketime", &[], 1),
    ("entr", &[], 0),
    ("direnv", &[], 2),
    ("coproc", &[], 0),
    ("xvfb-run", &["-n", "-s"], 0),
    ("dbus-run-session", &[], 0),
    ("firejail", &[], 0),
    ("bwrap", &[], 0),
    ("hyperfine", &["-w", "-r", "-n"], 0),
];
/// Programs that run the command after their verb, as `poetry run`.
const RUNNERS: &[(&str, &[&str])] = &[
    ("poetry", &["run"]),
    ("uv", &["run"]),
    ("pipenv", &["run"]),
    ("hatch", &["run"]),
    ("pdm", &["run"]),
    ("rye", &["run"]),
    ("bundle", &["exec"]),
    ("conda", &["run"]),
    ("mise", &["exec", "x"]),
    ("asdf", &["exec"]),
    ("pyenv", &["exec"]),
    ("rbenv", &["exec"]),
    ("npm", &["exec"]),
];
/// Options of `docker exec`, `docker run` and `kubectl exec` that take a value.
const CONTAINER_VALUES: &[&str] = &[
    "-e",
    "-u",
    "-w",
    "-v",
    "-p",
    "-n",
    "-c",
    "-l",
    "-m",
    "--env",
    "--user",
    "--workdir",
    "--volume",
    "--mount",
    "--name",
    "--network",
    "--namespace",
    "--container",
    "--entrypoint",
    "--env-file",
    "--context",
    "--platform",
    "--memory",
    "--cpus",
    "--publish",
    "--label",
    "--hostname",
    "--add-host",
    "--ulimit",
    "--device",
];
const SSH_VALUES: &[&str] = &[
    "-p", "-i", "-l", "-o", "-F", "-J", "-L", "-R", "-D", "-b", "-c", "-e", "-m", "-O", "-Q", "-S", "-w",
    "-W",
];
/// Shells that take a script after `-c`.
pub(super) const SHELLS: &[&str] =
    &["sh", "bash", "dash", "zsh", "ksh", "ksh93", "ash", "mksh", "fish", "rbash", "yash", "tcsh", "csh"];

/// Finds what the outermost layer of a command runs. The first word is its name.
pub(super) fn unwrap(words: &[String]) -> UnwrappedCommand<'_> {
    let Some((first, rest)) = words.split_first() else { return UnwrappedCommand::Nothing };
    let name = program(first);
    let first_operand = || skip_values(rest, &[]).first().map(String::as_str);
    match name {
        name if SHELLS.contains(&name) => shell(rest),
        "su" | "runuser" => switch_user(rest),
        "eval" => UnwrappedCommand::Script(rest.join(" ")),
        "trap" => {
            rest.first().map_or(UnwrappedCommand::Nothing, |word| UnwrappedCommand::Script(word.clone()))
        }
        "." | "source" if rest.first().is_some_and(|file| is_input(file)) => UnwrappedCommand::InputScript,
        "." | "source" => {
            rest.first().map_or(UnwrappedCommand::Nothing, |file| UnwrappedCommand::ScriptFile(file))
        }
        "at" | "batch" => UnwrappedCommand::InputScript,
        "watch" => joined(skip_values(rest, &["-n", "--interval"])),
        "ssh" | "autossh" | "mosh" => joined(skip_values(rest, SSH_VALUES).get(1..).unwrap_or_default()),
        "script" => {
            option_value(rest, 'c', "--command").map_or(UnwrappedCommand::Command, UnwrappedCommand::Script)
        }
        "export" | "readonly" | "local" | "declare" | "typeset" => UnwrappedCommand::Assignments(rest),
        "for" | "select" => match rest {
            [name, within, values @ ..] if within == "in" => UnwrappedCommand::Loop(name, values),
            _ => UnwrappedCommand::Nothing,
        },
        "case" | "done" | "fi" | "esac" | "break" | "continue" | "[[" => UnwrappedCommand::Nothing,
        "docker" | "podman" | "nerdctl" | "kubectl" | "oc" | "docker-compose" => container(rest),
        "xargs" => input_arguments(rest),
        "parallel" => parallel(rest),
        "tmux" | "screen" => match last_quoted(rest) {
            Some(script) => UnwrappedCommand::Script(script),
            None => UnwrappedCommand::Command,
        },
        "command" if rest.first().is_some_and(|word| word.starts_with('-') && word.contains(['v', 'V'])) => {
            UnwrappedCommand::Nothing
        }
        "env" if let Some(script) = split_string(rest) => UnwrappedCommand::Script(script),
        name if let Some((_, values, operands)) = WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) => {
            let inner = skip_values(rest, values).get(*operands..).unwrap_or_default();
            let is_shell = |word: &String| matches!(&**word, "-s" | "-i" | "--shell" | "--login");
            if inner.is_empty() && matches!(name, "sudo" | "doas") && rest.iter().any(is_shell) {
                UnwrappedCommand::InputScript
            } else if inner.is_empty() {
                UnwrappedCommand::Command
            } else {
                UnwrappedCommand::Inner(inner)
            }
        }
        name if let Some((_, verbs)) = RUNNERS.iter().find(|(runner, _)| *runner == name)
            && first_operand().is_some_and(|verb| verbs.contains(&verb)) =>
        {
            let after = skip_values(rest, &[]).get(1..).unwrap_or_default();
            let inner =
                skip_values(after, &["--with", "--python", "-p", "-n", "--package", "--extra", "--group"]);
            if inner.is_empty() { UnwrappedCommand::Command } else { UnwrappedCommand::Inner(inner) }
        }
        _ => UnwrappedCommand::Command,
    }
}

/// The program that a word names: the last component of a path into a folder of programs. Names of Windows lose their
/// ending.
pub(super) fn program(word: &str) -> &str {
    let name = match word.rsplit_once('/') {
        Some((folder, name)) if folder.ends_with("bin") || folder == "/usr/games" => name,
        Some(_) | None => word,
    };
    name.strip_suffix(".exe").unwrap_or(name)
}

/// Splits `NAME=value`.
pub(super) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// The words after the options; `values` are the options that take a value.
pub(super) fn skip_values<'a>(mut words: &'a [String], values: &[&str]) -> &'a [String] {
    while let Some((option, rest)) = words.split_first().filter(|(word, _)| word.starts_with('-')) {
        words = rest;
        if option == "--" {
            break;
        }
        if values.contains(&option.as_str()) {
            words = words.get(1..).unwrap_or_default();
        }
    }
    words
}

fn joined(words: &[String]) -> UnwrappedCommand<'_> {
    if words.is_empty() { UnwrappedCommand::Command } else { UnwrappedCommand::Script(words.join(" ")) }
}

/// The value of `-c` or its long form.
fn option_value(words: &[String], letter: char, long: &str) -> Option<String> {
    let is_option = |word: &String| {
        word == long || (word.starts_with('-') && !word.starts_with("--") && word.ends_with(letter))
    };
    let at = words.iter().position(is_option)?;
    words.get(at + 1).cloned()
}

/// What `env -S` runs.
fn split_string(words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| {
        word == "-S" || word.starts_with("--split-string") || (word.starts_with("-S") && word.len() > 2)
    })?;
    let inside =
        words[at].strip_prefix("--split-string=").or(words[at].strip_prefix("-S")).unwrap_or_default();
    let inside = inside.strip_prefix("plit-string").unwrap_or(inside);
    Some(format!("{inside} {}", words[at + 1..].join(" ")))
}

/// What a shell runs: the script after the option `-c`, else a file, else its input.
fn shell(rest: &[String]) -> UnwrappedCommand<'_> {
    let mut words = rest;
    let mut has_c = false;
    while let Some((word, after)) = words.split_first() {
        let is_option = word.starts_with(['-', '+']) && word.len() > 1;
        if !is_option {
            break;
        }
        words = after;
        match word.as_str() {
            "--" => break,
            "-s" => return UnwrappedCommand::InputScript,
            "--command" => has_c = true,
            "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file" => {
                words = words.get(1..).unwrap_or_default();
            }
            word if word.starts_with("--") => {}
            word => has_c |= word.contains('c'),
        }
    }
    match words.first() {
        Some(script) if has_c => UnwrappedCommand::Script(script.clone()),
        None => UnwrappedCommand::InputScript,
        Some(file) if file == "-" || file == "/dev/stdin" => UnwrappedCommand::InputScript,
        Some(file) => UnwrappedCommand::ScriptFile(file),
    }
}

fn switch_user(rest: &[String]) -> UnwrappedCommand<'_> {
    if let Some(script) = option_value(rest, 'c', "--command") {
        return UnwrappedCommand::Script(script);
    }
    match rest.iter().position(|word| word == "--") {
        Some(at) if at + 1 < rest.len() => UnwrappedCommand::Inner(&rest[at + 1..]),
        _ => UnwrappedCommand::InputScript,
    }
}

/// `docker exec CONTAINER COMMAND`, `docker run IMAGE COMMAND`, `docker compose exec SERVICE COMMAND` and
/// `kubectl exec POD -- COMMAND`.
fn container(rest: &[String]) -> UnwrappedCommand<'_> {
    let mut words = skip_values(rest, CONTAINER_VALUES);
    while matches!(words.first().map(String::as_str), Some("compose" | "container")) {
        words = skip_values(&words[1..], &["-f", "-p", "--file", "--project-name", "--profile"]);
    }
    let Some(("exec" | "run", after)) = words.split_first().map(|(verb, after)| (verb.as_str(), after))
    else {
        return UnwrappedCommand::Command;
    };
    let inner = skip_values(after, CONTAINER_VALUES).get(1..).unwrap_or_default();
    let inner = inner.iter().position(|word| word == "--").map_or(inner, |at| &inner[at + 1..]);
    let inner = skip_values(inner, CONTAINER_VALUES);
    if inner.is_empty() { UnwrappedCommand::Command } else { UnwrappedCommand::Inner(inner) }
}

fn input_arguments(mut words: &[String]) -> UnwrappedCommand<'_> {
    let mut placeholder = None;
    while let Some((option, rest)) = words.split_first().filter(|(word, _)| word.starts_with('-')) {
        words = rest;
        match option.as_str() {
            "--" => break,
            "-I" | "-J" | "--replace" => {
                placeholder = words.first().cloned();
                words = words.get(1..).unwrap_or_default();
            }
            "-i" => placeholder = Some("{}".into()),
            "-L" | "-n" | "-P" | "-s" | "-a" | "-d" | "-E" => words = words.get(1..).unwrap_or_default(),
            option => placeholder = option.strip_prefix("-I").map(str::to_owned).or(placeholder),
        }
    }
    UnwrappedCommand::InputArguments { words, placeholder }
}

/// The arguments of GNU parallel stand in its input, or after `:::`.
fn parallel(rest: &[String]) -> UnwrappedCommand<'_> {
    let words = skip_values(rest, &["-j", "--jobs", "-a", "--colsep", "-N", "--results"]);
    match words.iter().position(|word| word.starts_with(":::")) {
        Some(at) => UnwrappedCommand::ListedArguments { words: &words[..at], arguments: &words[at + 1..] },
        None if words.is_empty() => UnwrappedCommand::InputScript,
        None => UnwrappedCommand::InputArguments { words, placeholder: Some("{}".into()) },
    }
}

/// The last word, if it is a script of several words.
fn last_quoted(words: &[String]) -> Option<String> {
    let is_script = |word: &&String| word.contains(' ') && !word.starts_with('-');
    words.iter().rev().find(is_script).cloned()
}

/// True for a path that stands for the input.
fn is_input(file: &str) -> bool {
    matches!(file, "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}
