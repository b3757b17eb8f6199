//! The feed: the records of all sessions in one durable order, the order of their commits.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::model::{Record, Seq, SessionId};

/// A place in the feed: behind a record. The default is the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FeedCursor {
    /// The position of an append.
    pub position: u64,
    /// Number of the append's records before this place.
    pub records: u32,
}

/// An entry of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedEntry {
    /// The place behind the entry.
    pub cursor: FeedCursor,
    /// The session of the record.
    pub session: SessionId,
    /// The record's number in its session.
    pub seq: Seq,
    /// The record, or why it cannot be read.
    pub record: Result<Arc<Record>, String>,
}

/// As `POSITION.RECORDS`.
impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.position, self.records)
    }
}

impl From<FeedCursor> for String {
    fn from(cursor: FeedCursor) -> Self {
        cursor.to_string()
    }
}

impl TryFrom<String> for FeedCursor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl FromStr for FeedCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('.').and_then(|(position, records)| {
            Some(Self { position: position.parse().ok()?, records: records.parse().ok()? })
        });
        parts.ok_or_else(|| format!("`{text}` is no place in the feed; give the id of an event of it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let check = |text: &str, expect: Option<FeedCursor>| {
            assert_eq!(text.parse().ok(), expect, "{text}");
            if let Some(cursor) = expect {
                assert_eq!(cursor.to_string(), text);
            }
        };
        check("0.0", Some(FeedCursor::default()));
        check("17.3", Some(FeedCursor { position: 17, records: 3 }));
        for text in ["", "17", "17.", ".3", "a.b", "-1.0", "1.2.3"] {
            check(text, None);
        }
    }
}
