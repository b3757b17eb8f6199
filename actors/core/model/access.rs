//! The files and resources that tool calls declare to touch: which calls of one answer conflict, and which class of
//! permits a call needs. Not permissions.

use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};

/// The files and resources that a tool call touches, declared before it runs. Calls of one answer without a conflict
/// run concurrently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Only the named files and folders.
    Paths {
        /// Real absolute paths of the files and folders that the call reads.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reads: Vec<Arc<str>>,
        /// Real absolute paths of the files and folders that the call changes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        writes: Vec<Arc<str>>,
    },
    /// Unknown, as for a shell command.
    Anything,
    /// Conflicts with each other call, because a person is asked.
    #[serde(rename = "alone")]
    Exclusive,
}

/// The class of a tool call, which has permits of its own: a call waits only for calls of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolClass {
    /// Calls that declare which paths they touch, or that they touch nothing shared.
    Files,
    /// Calls that may touch anything, such as commands, and calls that need a person: they may take as long as they
    /// like.
    Processes,
}

impl ToolClass {
    /// All classes.
    pub const ALL: [Self; 2] = [Self::Files, Self::Processes];
}

impl Default for Access {
    fn default() -> Self {
        Self::Paths { reads: Vec::new(), writes: Vec::new() }
    }
}

impl Access {
    /// Access that reads `path` and everything below it.
    pub fn reads(path: impl Into<Arc<str>>) -> Self {
        Self::Paths { reads: vec![path.into()], writes: Vec::new() }
    }

    /// Access that changes `path` and everything below it.
    pub fn writes(path: impl Into<Arc<str>>) -> Self {
        Self::Paths { reads: Vec::new(), writes: vec![path.into()] }
    }

    /// The class of a call with this access.
    pub const fn class(&self) -> ToolClass {
        match self {
            Self::Paths { .. } => ToolClass::Files,
            Self::Anything | Self::Exclusive => ToolClass::Processes,
        }
    }

    /// True if two calls must run in order. Two readers do not conflict, nor do two unknown accesses: shell commands of
    /// one answer run concurrently.
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

/// True if a path of one list equals or contains a path of the other.
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
    fn a_call_that_declares_its_paths_waits_for_no_command() {
        let check = |access: Access, class| assert_eq!(access.class(), class, "{access:?}");
        check(Access::default(), ToolClass::Files);
        check(Access::reads("/w/a"), ToolClass::Files);
        check(Access::writes("/w/a"), ToolClass::Files);
        check(Access::Anything, ToolClass::Processes);
        check(Access::Exclusive, ToolClass::Processes);
    }

    #[test]
    fn its_stored_form_is_short() {
        let stored = |access: &Access| serde_json::to_string(access).unwrap();
        assert_eq!(stored(&Access::Anything), r#""anything""#);
        assert_eq!(stored(&Access::writes("/w/a")), r#"{"paths":{"writes":["/w/a"]}}"#);
        assert_eq!(serde_json::from_str::<Access>(r#"{"paths":{}}"#).unwrap(), Access::default());
    }
}
