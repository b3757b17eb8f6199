//! The dangers of a command: tables of rules, one file for each kind. A rule never runs anything.

mod files;
mod git;
mod harmless_code;
mod inline_code;
mod invocation;
mod network;
mod packages;
mod path;
mod sensitive;
mod system;

use super::{Danger, target::PathTarget};
pub(super) use files::searched_build_product;
pub(super) use inline_code::{bare_sql, is_interpreter};
pub(super) use invocation::Invocation;
pub(super) use network::downloaded_files;

/// A rule for commands.
struct DangerRule {
    /// Names the rule in verdicts and approvals.
    name: &'static str,
    /// The programs that it is about; all if there are none.
    programs: &'static [&'static str],
    /// True if the command is dangerous.
    matches: fn(&Invocation<'_>) -> bool,
    /// The end of a sentence that begins with "it".
    why: &'static str,
}

const TABLES: &[&[DangerRule]] = &[
    files::RULES,
    git::RULES,
    network::RULES,
    packages::RULES,
    inline_code::RULES,
    sensitive::RULES,
    system::RULES,
];

pub(super) const UNKNOWN_SCRIPT: Danger =
    Danger { name: "unknown-script", why: "runs something that cannot be read out of the command" };
pub(super) const HIDDEN: Danger = Danger { name: "hidden-text", why: "hides from a reader what it runs" };
pub(super) const DECODED_SCRIPT: Danger =
    Danger { name: "decoded-script", why: "decodes a text and runs it as a script" };
pub(super) const DOWNLOADED_SCRIPT: Danger =
    Danger { name: "downloaded-script", why: "runs a program straight from the network" };
pub(super) const MADE_EXECUTABLE: Danger =
    Danger { name: "made-executable", why: "makes a file executable and runs it at once" };
pub(super) const SCRIPT_FROM_INPUT: Danger =
    Danger { name: "script-from-input", why: "hands a script to a shell through its input" };
const BARE_SQL: Danger = Danger { name: "sql", why: "deletes or overwrites data of a database" };

/// The dangers that no table has.
const OTHERS: &[Danger] =
    &[UNKNOWN_SCRIPT, HIDDEN, DECODED_SCRIPT, DOWNLOADED_SCRIPT, MADE_EXECUTABLE, SCRIPT_FROM_INPUT];

/// Every danger.
pub(super) fn all() -> impl Iterator<Item = Danger> {
    let rules = TABLES.iter().flat_map(|table| table.iter());
    let rules = rules.map(|rule| Danger { name: rule.name, why: rule.why });
    let paths = path::ALL.iter().chain(sensitive::ASSIGNMENTS).copied();
    OTHERS.iter().copied().chain(rules).chain(paths)
}

/// The first danger of a command.
pub(super) fn of_command(command: &Invocation<'_>) -> Option<Danger> {
    if command.asks_for_help() {
        return None;
    }
    let is_match = |rule: &&DangerRule| {
        (rule.programs.is_empty() || rule.programs.contains(&command.name)) && (rule.matches)(command)
    };
    let rule = TABLES.iter().flat_map(|table| table.iter()).find(is_match);
    let danger = rule.map(|rule| Danger { name: rule.name, why: rule.why });
    danger.or_else(|| path::of_command(command))
}

/// The danger of writing to a file.
pub(super) fn of_written_path(path: &str, folder: Option<&PathTarget>) -> Option<Danger> {
    path::written(path, folder)
}

/// The danger of reading a file.
pub(super) fn of_read_path(path: &str, folder: Option<&PathTarget>) -> Option<Danger> {
    path::read(path, folder)
}

/// The danger of setting a variable for a command.
pub(super) fn of_assignment(name: &str, value: &str) -> Option<Danger> {
    sensitive::of_assignment(name, value)
}
