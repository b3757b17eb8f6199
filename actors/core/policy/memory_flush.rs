//! The answer of a memory flush: facts in a simple form, one a line, as entries for the memory files. Pure.

use std::sync::Arc;

use crate::model::{AsideDefect, MemoryEntry, MemoryTarget};

/// The name of the tool that changes the memory files. Only runs with it are flushed.
pub const MEMORY_TOOL: &str = "memory";
/// Most entries of an answer.
const MAX_FLUSH_ENTRIES: usize = 8;
/// Most characters of an entry.
const MAX_ENTRY_CHARS: usize = 400;
/// The answer without an entry.
const NOTHING: &str = "nothing";

/// The entries of an answer: its lines `memory: …` and `user: …`, each once. Other lines and those that are too long are
/// left out. An answer without an entry that does not say `nothing` is unusable.
pub fn parse_flush(answer: &str) -> Result<Vec<MemoryEntry>, AsideDefect> {
    if answer.trim().is_empty() {
        return Err(AsideDefect::Empty);
    }
    let mut entries: Vec<MemoryEntry> = Vec::new();
    for entry in answer.lines().filter_map(parse_line) {
        if entries.len() < MAX_FLUSH_ENTRIES && !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    let is_nothing = |line: &str| line.trim_matches(is_decoration).eq_ignore_ascii_case(NOTHING);
    if entries.is_empty() && !answer.lines().any(is_nothing) {
        return Err(AsideDefect::Malformed);
    }
    Ok(entries)
}

/// The text of an answer with these entries, which `parse_flush` reads as the same.
pub fn format_flush(entries: &[MemoryEntry]) -> Arc<str> {
    if entries.is_empty() {
        return NOTHING.into();
    }
    let lines: Vec<String> =
        entries.iter().map(|entry| format!("{}: {}", entry.target.name(), entry.text)).collect();
    lines.join("\n").into()
}

fn parse_line(line: &str) -> Option<MemoryEntry> {
    let line = line.trim_start_matches(is_decoration);
    MemoryTarget::ALL.into_iter().find_map(|target| {
        let (name, rest) = line.split_at_checked(target.name().len())?;
        let rest = rest.trim_start_matches(is_decoration).strip_prefix(':')?;
        let text = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '*').trim_end();
        let fits = text.chars().any(char::is_alphanumeric) && text.chars().count() <= MAX_ENTRY_CHARS;
        (name.eq_ignore_ascii_case(target.name()) && fits).then(|| MemoryEntry { target, text: text.into() })
    })
}

/// What models put around the parts of a line.
fn is_decoration(c: char) -> bool {
    c.is_whitespace() || matches!(c, '-' | '*' | '•' | '`' | '#' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(answer: &str) -> Result<Vec<(MemoryTarget, String)>, AsideDefect> {
        let parsed = parse_flush(answer)?;
        assert_eq!(parse_flush(&format_flush(&parsed)).as_ref(), Ok(&parsed), "{answer:?}");
        Ok(parsed.into_iter().map(|entry| (entry.target, entry.text.to_string())).collect())
    }

    #[test]
    fn an_answer_is_entries_or_nothing_or_of_no_use() {
        let check = |answer: &str, expect: Result<&[(MemoryTarget, &str)], AsideDefect>| {
            let expect = expect.map(|all| all.iter().map(|(to, text)| (*to, (*text).to_owned())).collect());
            assert_eq!(entries(answer), expect, "{answer:?}");
        };
        let (memory, user) = (MemoryTarget::Memory, MemoryTarget::User);
        check("memory: The keel is of oak.", Ok(&[(memory, "The keel is of oak.")]));
        check(
            "Here they are:\n- **user:** Speaks German: always\n* Memory : `make` needs 3 s\nuser:\n",
            Ok(&[(user, "Speaks German: always"), (memory, "`make` needs 3 s")]),
        );
        check("memory: a\r\nmemory: a\nuser: a", Ok(&[(memory, "a"), (user, "a")]));
        for nothing in ["nothing", " Nothing.\n", "- `nothing`", "I have looked.\nnothing"] {
            check(nothing, Ok(&[]));
        }
        check("", Err(AsideDefect::Empty));
        check(" \n\t", Err(AsideDefect::Empty));
        for unusable in ["The keel is of oak.", "memory", "memories: a", "user : - ", "nothing much"] {
            check(unusable, Err(AsideDefect::Malformed));
        }
    }

    #[test]
    fn entries_are_few_and_short() {
        let many: Vec<String> = (0..20).map(|n| format!("memory: fact {n}")).collect();
        assert_eq!(entries(&many.join("\n")).unwrap().len(), MAX_FLUSH_ENTRIES);
        let (fits, long) = ("ä".repeat(MAX_ENTRY_CHARS), "ä".repeat(MAX_ENTRY_CHARS + 1));
        assert_eq!(entries(&format!("user: {long}\nuser: {fits}")).unwrap(), [(MemoryTarget::User, fits)]);
        assert_eq!(entries(&format!("user: {long}")), Err(AsideDefect::Malformed));
    }
}
