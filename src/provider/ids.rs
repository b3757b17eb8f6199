//! Distinct ids for the tool calls of an answer: some vendors send none, and some repeat one.

use std::collections::HashSet;

/// Makes the ids of one answer's calls distinct: an empty or repeated id becomes `call_0`, `call_1`, …
pub(super) fn make_distinct<'a>(ids: impl Iterator<Item = &'a mut String>) {
    let mut taken: HashSet<String> = HashSet::new();
    for (n, id) in ids.enumerate() {
        if id.is_empty() || taken.contains(id) {
            // n ids come before this one, so one of n + 1 names is free.
            let mut names = (n..=2 * n).map(|n| format!("call_{n}"));
            *id = names.find(|name| !taken.contains(name)).unwrap_or_default();
        }
        taken.insert(id.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_kept_unless_they_are_missing_or_come_twice() {
        let check = |ids: &[&str], expect: &[&str]| {
            let mut ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            make_distinct(ids.iter_mut());
            assert_eq!(ids, expect);
        };
        check(&["b", "a"], &["b", "a"]);
        check(&["a", "a", "", ""], &["a", "call_1", "call_2", "call_3"]);
        check(&["call_2", "call_3", ""], &["call_2", "call_3", "call_4"]);
    }
}
