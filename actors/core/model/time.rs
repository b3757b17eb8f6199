//! Wall-clock time and active time.

use std::{
    fmt,
    time::{Duration, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Wall-clock time in milliseconds since 1970-01-01T00:00:00Z. For people and due times, never for ordering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This time plus `ms` milliseconds.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms))
    }

    /// Milliseconds from `earlier` to this time; 0 if the clock went back.
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// The last second that RFC 3339 can represent, in milliseconds since 1970.
const MAX_RFC3339_MS: u64 = 253_402_300_799_000;

impl fmt::Display for Timestamp {
    /// As RFC 3339, to the second.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = u64::try_from(self.0).unwrap_or(0).min(MAX_RFC3339_MS);
        write!(f, "{}", humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)))
    }
}

/// The time of one input or record. A decision reads it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionTime {
    /// Wall-clock time.
    pub at: Timestamp,
    /// Active time of the session in milliseconds over all incarnations: monotonic, without downtime.
    pub active_ms: u64,
}
