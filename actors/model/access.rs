use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};

/// What a tool call touches, declared before it runs: calls of one answer that do not conflict run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Only these.
    Paths {
        /// Files and folders that it reads, by their real absolute paths.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reads: Vec<Arc<str>>,
        /// Files and folders that it changes, likewise.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        writes: Vec<Arc<str>>,
    },
    /// Nobody can tell: a shell.
    Anything,
    /// A person's attention: it runs alone.
    #[serde(rename = "alone")]
    Exclusive,
}

impl Default for Access {
    fn default() -> Self {
        Self::Paths { reads: Vec::new(), writes: Vec::new() }
    }
}

impl Access {
    /// Reads what is at `path` or below it.
    pub fn reads(path: impl Into<Arc<str>>) -> Self {
        Self::Paths { reads: vec![path.into()], writes: Vec::new() }
    }

    /// Changes what is at `path` or below it.
    pub fn writes(path: impl Into<Arc<str>>) -> Self {
        Self::Paths { reads: Vec::new(), writes: vec![path.into()] }
    }

    /// Whether it touches nothing that others could touch.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether two calls must keep their order. Two that only read need not, nor do two of which nobody can tell what
    /// they touch: shell commands of one answer run at the same time.
    pub fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) | (_, Self::Exclusive) => true,
            (Self::Anything, Self::Anything) => false,
            (Self::Anything, Self::Paths { writes, .. }) | (Self::Paths { writes, .. }, Self::Anything) => {
                !writes.is_empty()
            }
            (Self::Paths { reads, writes }, Self::Paths { reads: their_reads, writes: their_writes }) => {
                overlap(writes, their_writes) || overlap(writes, their_reads) || overlap(reads, their_writes)
            }
        }
    }
}

/// Whether a path of the one list is a path of the other, or lies in it.
fn overlap(ours: &[Arc<str>], theirs: &[Arc<str>]) -> bool {
    let is_in = |inner: &Arc<str>, outer: &Arc<str>| Path::new(&**inner).starts_with(&**outer);
    ours.iter().any(|our| theirs.iter().any(|their| is_in(our, their) || is_in(their, our)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(one: &Access, other: &Access, expected: bool) {
        assert_eq!(one.conflicts(other), expected, "{one:?} and {other:?}");
        assert_eq!(other.conflicts(one), expected, "{other:?} and {one:?}");
    }

    #[test]
    fn what_keeps_its_order() {
        let (read, write) = (Access::reads("/w/a"), Access::writes("/w/a"));
        check(&read, &read, false);
        check(&read, &write, true);
        check(&write, &write, true);
        check(&write, &Access::writes("/w/b"), false);
        check(&read, &Access::writes("/w/b"), false);
    }

    #[test]
    fn a_folder_holds_what_is_in_it() {
        let folder = Access::reads("/w/src");
        check(&folder, &Access::writes("/w/src/main.rs"), true);
        check(&folder, &Access::reads("/w/src/main.rs"), false);
        check(&folder, &Access::writes("/w/src2"), false);
        check(&Access::writes("/w/src"), &Access::writes("/w/src/main.rs"), true);
        check(&Access::writes("/"), &folder, true);
    }

    #[test]
    fn a_shell_minds_declared_writers_alone() {
        let shell = Access::Anything;
        check(&shell, &shell, false);
        check(&shell, &Access::reads("/w/a"), false);
        check(&shell, &Access::default(), false);
        check(&shell, &Access::writes("/w/a"), true);
    }

    #[test]
    fn what_needs_a_person_runs_alone() {
        for other in [Access::Exclusive, Access::Anything, Access::default(), Access::reads("/w/a")] {
            check(&Access::Exclusive, &other, true);
        }
        check(&Access::default(), &Access::default(), false);
    }

    #[test]
    fn its_stored_form_is_short() {
        let stored = |access: &Access| serde_json::to_string(access).unwrap();
        assert_eq!(stored(&Access::Anything), r#""anything""#);
        assert_eq!(stored(&Access::writes("/w/a")), r#"{"paths":{"writes":["/w/a"]}}"#);
        assert_eq!(serde_json::from_str::<Access>(r#"{"paths":{}}"#).unwrap(), Access::default());
    }
}
