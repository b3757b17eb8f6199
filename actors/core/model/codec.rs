//! The stored form of a record: a header of fixed size, then the body as JSON. Also its form as JSON alone, for another
//! process.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Body, Kind, Record, Timestamp};

/// Header version; any other version is refused.
const HEADER_VERSION: u8 = 1;
/// Body codec: JSON with named fields, so that old and new versions read each other's records.
const JSON_CODEC: u8 = 0;
/// Version, codec, kind (u16), at (i64), active_ms (u64), all little-endian.
const HEADER_BYTES: usize = 1 + 1 + 2 + 8 + 8;

/// A stored record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are shorter than a header, or the codec or the body is invalid.
    #[error("not a record: {0}")]
    Malformed(String),
    /// The header has another version than this program reads.
    #[error("record version {0} is newer than this program understands")]
    Version(u8),
    /// The kind's code is unknown to this version.
    #[error("record kind {0} is unknown to this program")]
    UnknownKind(u16),
}

/// The stored form of a record: a header, then its body.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 256);
    bytes.extend([HEADER_VERSION, JSON_CODEC]);
    bytes.extend(record.body.kind().code().to_le_bytes());
    bytes.extend(record.at.0.to_le_bytes());
    bytes.extend(record.active_ms.to_le_bytes());
    // Infallible: every body is a struct with string keys, written to memory.
    record.body.write_json(&mut bytes).unwrap_or_else(|error| unreachable!("record body: {error}"));
    bytes
}

/// Checks that the stored form of `record` can be decoded again.
pub fn check_readable(record: &Record) -> Result<(), DecodeError> {
    decode(&encode(record)).map(drop)
}

/// Decodes a stored record.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(DecodeError::Malformed(format!("{} bytes are too few", bytes.len())));
    };
    if header[0] != HEADER_VERSION {
        return Err(DecodeError::Version(header[0]));
    }
    if header[1] != JSON_CODEC {
        return Err(DecodeError::Malformed(format!("codec {} is unknown", header[1])));
    }
    let code = u16::from_le_bytes([header[2], header[3]]);
    let kind = Kind::of_code(code).ok_or(DecodeError::UnknownKind(code))?;
    let malformed = |error: &dyn fmt::Display| DecodeError::Malformed(format!("{}: {error}", kind.name()));
    // UTF-8 is checked once for the whole body, so that the JSON parser need not check each string.
    let body = str::from_utf8(body).map_err(|error| malformed(&error))?;
    Ok(Record {
        at: Timestamp(i64::from_le_bytes(to_eight_bytes(&header[4..12]))),
        active_ms: u64::from_le_bytes(to_eight_bytes(&header[12..20])),
        body: Body::read_json(kind, body).map_err(|error| malformed(&error))?,
    })
}

/// A record as JSON, for another process: nothing of it is converted, so that it can be read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordJson {
    /// The name of its kind.
    pub kind: String,
    /// When it was decided.
    pub at: Timestamp,
    /// Active time of its session in milliseconds.
    pub active_ms: u64,
    /// The fields of its body as they are stored.
    pub body: Value,
}

impl RecordJson {
    /// The form of `record`.
    pub fn new(record: &Record) -> serde_json::Result<Self> {
        let (kind, body) = (record.body.kind().name().to_owned(), record.body.to_json()?);
        Ok(Self { kind, at: record.at, active_ms: record.active_ms, body })
    }

    /// The record. Its kind or body may be of another version of the program.
    pub fn decode(&self) -> Result<Record, DecodeError> {
        let malformed =
            |reason: &dyn fmt::Display| DecodeError::Malformed(format!("{}: {reason}", self.kind));
        let kind = Kind::ALL.iter().find(|kind| kind.name() == self.kind);
        let kind = kind.ok_or_else(|| malformed(&"the kind is unknown to this program"))?;
        let body = Body::read_json(*kind, &self.body.to_string()).map_err(|error| malformed(&error))?;
        Ok(Record { at: self.at, active_ms: self.active_ms, body })
    }
}

fn to_eight_bytes(bytes: &[u8]) -> [u8; 8] {
    let mut eight = [0; 8];
    eight.copy_from_slice(bytes);
    eight
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallEnd, CallEnded, CallId, CallStatus, RunId};

    fn sample() -> Record {
        let call = CallId { run: RunId::from_bits(1 << 100), iteration: 2, n: 1 };
        let end = CallEnd::new(CallStatus::Ok, "done\n");
        let body = Body::CallEnded(CallEnded::new(call, 1, end));
        Record { at: Timestamp(1_700_000_000_123), active_ms: 42, body }
    }

    #[test]
    fn a_record_survives_storage() {
        assert_eq!(decode(&encode(&sample())), Ok(sample()));
    }

    #[test]
    fn a_record_survives_json() {
        let json = serde_json::to_string(&RecordJson::new(&sample()).unwrap()).unwrap();
        let read: RecordJson = serde_json::from_str(&json).unwrap();
        assert_eq!(read.decode(), Ok(sample()));
        let unknown = RecordJson { kind: "tomorrow".into(), ..read };
        assert!(unknown.decode().unwrap_err().to_string().contains("tomorrow: the kind is unknown"));
    }

    #[test]
    fn an_unknown_field_is_ignored() {
        let mut bytes = encode(&sample());
        bytes.pop();
        bytes.extend(br#","tomorrow":{"a":[1]}}"#);
        assert_eq!(decode(&bytes), Ok(sample()));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let mut newer = encode(&sample());
        newer[0] = 9;
        assert_eq!(decode(&newer), Err(DecodeError::Version(9)));
        let mut unknown = encode(&sample());
        unknown[2..4].copy_from_slice(&999_u16.to_le_bytes());
        assert_eq!(decode(&unknown), Err(DecodeError::UnknownKind(999)));
        assert!(matches!(decode(&[1, 0, 3]), Err(DecodeError::Malformed(_))));
    }

    #[test]
    fn codes_and_names_are_unique() {
        for (i, a) in Kind::ALL.iter().enumerate() {
            assert_eq!(Kind::of_code(a.code()), Some(*a));
            assert!(Kind::ALL[i + 1..].iter().all(|b| a.code() != b.code() && a.name() != b.name()));
        }
    }
}
