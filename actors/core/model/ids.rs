//! Identifiers of sessions, runs, accounts, calls and incarnations, with their text forms. Also the serialization as
//! text that model references and hashes share.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use ulid::Ulid;

use super::{ContentHash, Hash, ModelRef, Timestamp};

/// A text that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: expected {expected}")]
pub struct IdError {
    what: &'static str,
    expected: &'static str,
    text: String,
}

macro_rules! ulid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        // Big-endian bytes: ordered as the numbers are. The alignment of a `u128` would add a third to each `CallId`, and
        // double each `DueAction`.
        pub struct $name([u8; 16]);

        impl $name {
            /// Wraps the 128 bits of a ULID.
            pub const fn from_bits(bits: u128) -> Self {
                Self(bits.to_be_bytes())
            }

            /// The 128 bits of the ULID; their order is the order of creation.
            pub const fn bits(self) -> u128 {
                u128::from_be_bytes(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&Ulid(self.bits()), f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Ulid::from_string(text).map(|id| Self::from_bits(id.0)).map_err(|_| IdError {
                    what: $what,
                    expected: "a ULID of 26 characters",
                    text: text.to_owned(),
                })
            }
        }
    };
}

ulid_id!(
    /// Identifies a session.
    SessionId,
    "session id"
);
ulid_id!(
    /// Identifies a run.
    RunId,
    "run id"
);
ulid_id!(
    /// Identifies a budget account; a run's own account has the run's bits.
    AccountId,
    "account id"
);

impl RunId {
    /// The time in the id: when the run or the message was submitted.
    pub const fn created_at(self) -> Timestamp {
        Timestamp(Ulid(self.bits()).timestamp_ms().cast_signed())
    }
}

impl From<RunId> for AccountId {
    fn from(run: RunId) -> Self {
        Self(run.0)
    }
}

/// Position of a record in its session's journal; the first record has 1.
pub type Seq = u64;

/// Number of an attempt of one call, from 1.
pub type Attempt = u32;

/// Identifies one boot of one machine, as reported by the kernel.
pub type BootId = String;

/// What a model call beside the runs of a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum AsideJob {
    /// A summary of the oldest part of the conversation.
    Summary,
    /// The title of the session.
    Title,
    /// Descriptions of pictures for a model that sees none.
    Vision,
    /// Facts to keep beyond the conversation, before a summary replaces a part of it.
    Memory,
}

impl AsideJob {
    /// All jobs, by their codes from 0.
    pub const ALL: [Self; 4] = [Self::Summary, Self::Title, Self::Vision, Self::Memory];

    /// Last part of the text of the call's id.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Title => "title",
            Self::Vision => "vision",
            Self::Memory => "memory",
        }
    }

    /// Whether a call of this job is part of a compaction.
    pub const fn is_of_compaction(self) -> bool {
        matches!(self, Self::Summary | Self::Memory)
    }

    /// The `n` of the ids of its calls: no tool call has so large a number.
    const fn n(self) -> u32 {
        u32::MAX - self as u32
    }
}

/// Identifies one model or tool call: `<run>.<iteration>.<n>`; n = 0 is the model's call. `<run>.<nth>.<job>` is
/// the run's nth call of this [`AsideJob`], such as `<run>.1.title`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// The run of the call.
    pub run: RunId,
    /// The iteration, from 1.
    pub iteration: u32,
    /// 0 for the model's call; from 1 on for the tool calls of its answer, in order.
    pub n: u32,
}

impl CallId {
    /// The id of the run's `nth` call of this job, from 1.
    pub const fn aside(run: RunId, nth: u32, job: AsideJob) -> Self {
        Self { run, iteration: nth, n: job.n() }
    }

    /// What the call is for, if it is beside the runs.
    pub fn job(self) -> Option<AsideJob> {
        AsideJob::ALL.get(usize::try_from(u32::MAX - self.n).ok()?).copied()
    }

    /// True if the call is for a summary.
    pub const fn is_summary(self) -> bool {
        self.n == AsideJob::Summary.n()
    }

    /// The attempt of this call with this number.
    pub const fn attempt(self, attempt: Attempt) -> AttemptId {
        AttemptId { call: self, attempt }
    }

    /// True if the call is beside the runs.
    pub fn is_aside(self) -> bool {
        self.job().is_some()
    }

    /// True if the call is to a model, for an answer or beside the runs.
    pub fn is_model_call(self) -> bool {
        self.n == 0 || self.is_aside()
    }
}

/// Identifies one attempt of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    /// The call.
    pub call: CallId,
    /// Counted from 1 within the call.
    pub attempt: Attempt,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.", self.run, self.iteration)?;
        match self.job() {
            Some(job) => f.write_str(job.name()),
            None => fmt::Display::fmt(&self.n, f),
        }
    }
}

impl FromStr for CallId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parse = || {
            let (run, rest) = text.split_at_checked(ulid::ULID_LEN)?;
            let (iteration, n) = rest.strip_prefix('.')?.split_once('.')?;
            let (run, iteration) = (run.parse().ok()?, iteration.parse().ok()?);
            if let Some(job) = AsideJob::ALL.into_iter().find(|job| job.name() == n) {
                return Some(Self::aside(run, iteration, job));
            }
            // The number of a job is refused because the call would otherwise have two texts.
            Some(Self { run, iteration, n: n.parse().ok()? }).filter(|call| !call.is_aside())
        };
        parse().ok_or_else(|| IdError {
            what: "call id",
            expected: "<run>.<iteration>.<n>",
            text: text.to_owned(),
        })
    }
}

/// One opening of a session: the store's epoch, raised by each opening of the store, and the number of the opening. As
/// a fencing token, it lets the store refuse writes of earlier incarnations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Incarnation {
    /// The store's epoch, on disk.
    pub epoch: u64,
    /// Number of the opening among the openings of all sessions within the epoch, counted in the committer's memory.
    /// The first opening of a session counts, too.
    pub revival: u32,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.revival)
    }
}

impl FromStr for Incarnation {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.split_once('.')
            .and_then(|(epoch, revival)| {
                Some(Self { epoch: epoch.parse().ok()?, revival: revival.parse().ok()? })
            })
            .ok_or_else(|| IdError {
                what: "incarnation",
                expected: "<epoch>.<revival>",
                text: text.to_owned(),
            })
    }
}

/// Parses a string without allocating a copy: a journal contains many ids.
struct TextVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! serde_as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(TextVisitor(PhantomData))
            }
        }
    )*};
}

serde_as_text!(SessionId, RunId, AccountId, CallId, Incarnation, ModelRef, Hash, ContentHash);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_text_and_json() {
        let call = CallId { run: RunId::from_bits(7 << 80 | 9), iteration: 3, n: 2 };
        assert_eq!(call.to_string().parse(), Ok(call));
        assert_eq!(serde_json::from_str::<CallId>(&serde_json::to_string(&call).unwrap()).unwrap(), call);
        let incarnation = Incarnation { epoch: 12, revival: 4 };
        assert_eq!(incarnation.to_string().parse(), Ok(incarnation));
    }

    #[test]
    fn a_bad_id_says_what_was_expected() {
        let error = "01AB.1".parse::<CallId>().unwrap_err();
        assert_eq!(error.to_string(), "`01AB.1` is not a call id: expected <run>.<iteration>.<n>");
    }
}
