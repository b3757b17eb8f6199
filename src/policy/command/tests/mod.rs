//! Tables of commands: for each danger what it stops, what developers run every day, and hostile texts.

use std::{sync::mpsc, thread, time::Duration};

use super::{CommandPart, analyse};

/// Time limit of one analysis, in a build without optimisation on a busy machine.
const MAX_TIME: Duration = Duration::from_mins(1);
/// The stack of the thread that analyses.
const STACK_BYTES: usize = 1 << 20;

fn dangers_of(script: &str) -> Vec<&'static str> {
    analyse(script).commands.iter().filter_map(|command| Some(command.danger?.name)).collect()
}

/// Checks a table: in each line the name of a danger and a command; `⏎` is a newline.
#[track_caller]
fn check(table: &str) {
    let lines: Vec<&str> = table.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 5, "the table is not read");
    let wrong = lines.into_iter().filter(|line| {
        let (name, command) = line.split_once(' ').unwrap_or((line, ""));
        !dangers_of(&command.replace('⏎', "\n")).contains(&name)
    });
    let wrong: Vec<_> =
        wrong.map(|line| (line, dangers_of(line.split_once(' ').unwrap_or_default().1))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn dangers_to_files_are_found() {
    check(include_str!("files.txt"));
}

#[test]
fn dangers_to_repositories_are_found() {
    check(include_str!("git.txt"));
}

#[test]
fn dangers_of_the_network_are_found() {
    check(include_str!("network.txt"));
}

#[test]
fn dangers_to_packages_and_clusters_are_found() {
    check(include_str!("packages.txt"));
}

#[test]
fn dangers_of_code_inside_a_command_are_found() {
    check(include_str!("inline_code.txt"));
}

#[test]
fn dangers_to_secrets_and_agents_are_found() {
    check(include_str!("sensitive.txt"));
}

#[test]
fn dangers_to_the_machine_are_found() {
    check(include_str!("system.txt"));
}

#[test]
fn dangers_of_written_and_read_files_are_found() {
    check(include_str!("paths.txt"));
}

#[test]
fn scripts_that_hide_what_they_run_are_found() {
    check(include_str!("scripts.txt"));
}

#[test]
fn everyday_commands_are_not_stopped() {
    let wrong: Vec<_> = EVERYDAY
        .lines()
        .map(|line| line.replace('⏎', "\n"))
        .filter(|command| !dangers_of(command).is_empty() || analyse(command).denial.is_some())
        .map(|command| (dangers_of(&command), command))
        .collect();
    assert!(EVERYDAY.lines().count() > 300, "the table is not read");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_part_of_a_script_has_a_canonical_text() {
    use CommandPart::{Command, Other, Output, Wrapper};

    let check = |script: &str, expected: &[(CommandPart, &str)]| {
        let commands = analyse(script).commands;
        let parts: Vec<_> = commands.iter().map(|command| (command.part, command.text.as_str())).collect();
        assert_eq!(parts, expected, "{script}");
    };
    check("ls;  'ls' | l''s", &[(Command, "ls")]);
    check("git  commit -m 'a b'", &[(Command, "git commit -m 'a b'")]);
    check("A=1 sudo -n id > out", &[(Output, "> out"), (Wrapper, "sudo -n id"), (Command, "id")]);
    check("sh -c 'ls -l'", &[(Wrapper, "sh -c 'ls -l'"), (Command, "ls -l")]);
    check("cat < .env", &[(Other, "< .env"), (Command, "cat")]);
    check("echo $(date) $X", &[(Command, "date"), (Command, "echo \u{fffc} ${X}")]);
    check("find . -exec ls {} +", &[(Command, "find . -exec ls {} +"), (Command, "ls .")]);
    check("f() { ls $1; }; f a", &[(Command, "ls ${1}"), (Command, "f a"), (Command, "ls a")]);
    check("echo a b | xargs ls", &[(Command, "echo a b"), (Wrapper, "xargs ls"), (Command, "ls a b")]);
}

/// Analyses on a thread with a small stack, and fails if that takes too long.
#[track_caller]
fn analysed(name: &str, script: String) -> Option<&'static str> {
    let (done, end) = mpsc::channel();
    let thread = thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(move || done.send(analyse(&script).denial.map(|rule| rule.name)));
    thread.expect("a thread");
    end.recv_timeout(MAX_TIME)
        .unwrap_or_else(|error| panic!("{name}: no verdict within {MAX_TIME:?}: {error}"))
}

#[test]
fn hostile_scripts_are_analysed_within_bounds() {
    const TOO_COMPLEX: Option<&str> = Some("hard-too-complex");
    let too_complex = [
        ("quotes", "\"'`".repeat(1_700_000)),
        ("substitutions", "$(".repeat(1_000_000)),
        ("braces", format!("echo {}", "{a,b}".repeat(1_000))),
        ("parameters", "${a:-".repeat(25_000) + &"}".repeat(25_000)),
        ("quoted parameters", format!("echo '{}'", "${a:-".repeat(25_000) + &"}".repeat(25_000))),
        ("wrappers", "nice ".repeat(25_000)),
        ("keywords", "! ".repeat(60_000)),
        ("decoders", format!("echo {}{}", "x".repeat(60_000), "|tr a-z b-za".repeat(5_000))),
        ("doubled variables", format!("a=xxxx;{}rm $a", "a=$a$a;".repeat(100))),
        ("placeholders", format!("echo {}|xargs -I{{}} echo {}", "a ".repeat(30_000), "{}".repeat(2_000))),
        ("written files", format!("cat <<A >a\n{}\nA\n{}", "x".repeat(60_000), "sh a;".repeat(10_000))),
        ("a long word", "x".repeat(5 << 20)),
    ];
    for (name, script) in too_complex {
        assert_eq!(analysed(name, script), TOO_COMPLEX, "{name}");
    }
    let others = [
        ("pipes", "a|".repeat(60_000)),
        ("here-documents", "cat <<A\n".repeat(12_000)),
        ("here-documents of one line", format!("cat {}\n", "<<A ".repeat(25_000))),
        ("functions", "a(){ b;};".repeat(14_000)),
        (
            "calls",
            (0..30).map(|n| format!("f{n}(){{ f{0} a; f{0} b; }};", n + 1)).collect::<Vec<_>>().concat()
                + "f0 a",
        ),
        (
            "aliases",
            (0..4_000).map(|n| format!("alias a{n}=\"a{0} a{0}\";", n + 1)).collect::<Vec<_>>().concat()
                + "a0",
        ),
        ("groups", "{ ".repeat(60_000)),
        ("subshells", "(".repeat(60_000) + &")".repeat(60_000)),
        ("arithmetic", "$((".repeat(40_000)),
        ("backticks", "`".repeat(120_000)),
        ("cases", format!("case x in {}", "a|".repeat(60_000))),
        ("redirections", ">a".repeat(60_000)),
        ("commands of find", "find . -exec ".repeat(9_000)),
        ("paths", format!("cat {}", "../".repeat(40_000))),
        ("different substitutions", (0..18_000).map(|n| format!("$(a{n})")).collect::<Vec<_>>().concat()),
    ];
    for (name, script) in others {
        analysed(name, script);
    }
}

/// Commands that developers run every day, one a line.
const EVERYDAY: &str = include_str!("everyday.txt");
