//! Wall-clock time and active time.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
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

    /// The nearest time that RFC 3339 can represent, from 1970 to the end of 9999.
    fn representable(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.ms_since(Self::default()).min(MAX_RFC3339_MS))
    }
}

/// The last second that RFC 3339 can represent, in milliseconds since 1970.
const MAX_RFC3339_MS: u64 = 253_402_300_799_000;

impl fmt::Display for Timestamp {
    /// As RFC 3339, to the second.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_rfc3339_seconds(self.representable()))
    }
}

/// The time in RFC 3339, in UTC, with milliseconds.
pub fn rfc3339(at: Timestamp) -> String {
    humantime::format_rfc3339_millis(at.representable()).to_string()
}

/// A time as [`rfc3339`] writes it, for `#[serde(with = "…")]`.
pub mod rfc3339_time {
    use std::time::UNIX_EPOCH;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::{Timestamp, rfc3339};

    /// Writes the time.
    #[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde calls
    pub fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&rfc3339(*at))
    }

    /// Reads a time; the error names another text.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(from)?;
        let time = humantime::parse_rfc3339(&text);
        let time = time.map_err(|error| D::Error::custom(format_args!("`{text}`: {error}")))?;
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// A time as in [`rfc3339_time`], or `null`.
pub mod optional_rfc3339_time {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Timestamp;

    #[derive(Serialize, Deserialize)]
    struct Time(#[serde(with = "super::rfc3339_time")] Timestamp);

    /// Writes the time or `null`.
    #[allow(clippy::ref_option)] // the signature that serde calls
    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        at.map(Time).serialize(to)
    }

    /// Reads a time or `null`.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<Time>::deserialize(from)?.map(|time| time.0))
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        let check = |ms: i64, text: &str| {
            assert_eq!(rfc3339(Timestamp(ms)), text);
            assert_eq!(rfc3339_time::deserialize(json!(text)).unwrap(), Timestamp(ms.max(0)));
        };
        check(1_700_000_000_123, "2023-11-14T22:13:20.123Z");
        check(-5, "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp(i64::MAX)), "9999-12-31T23:59:59.000Z");
        assert_eq!(Timestamp(i64::MAX).to_string(), "9999-12-31T23:59:59Z");
        assert!(rfc3339_time::deserialize(json!("now")).unwrap_err().to_string().starts_with("`now`: "));
        assert_eq!(optional_rfc3339_time::deserialize(Value::Null).unwrap(), None);
    }
}
