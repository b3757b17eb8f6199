//! The files of expectations: found in the workspace, opened, and read within a limit.

use std::{fmt, fs::File, io::Read as _};

use hermod_actors::model::{RunSpec, Timestamp};
use rustix::fs::Stat;
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use super::{Settings, text};
use crate::tool::paths::resolve_outside_state;

/// Most bytes of a file that is matched with a schema.
const MAX_JSON_BYTES: u64 = 4 << 20;
/// Most values in it: each takes hundreds of bytes of memory.
const MAX_JSON_VALUES: usize = 250_000;
/// The kernel's clock of files may be this much behind the clock of the run.
const CLOCK_SLACK_MS: i64 = 20;

/// Refuses a path that leaves the workspace, or goes into the state directory.
pub(super) fn locate(settings: &Settings, spec: &RunSpec, path: &str) -> Result<(), String> {
    let located = resolve_outside_state(settings.state.as_deref(), &spec.workspace, "path", path);
    located.map(drop).map_err(text)
}

/// Opens a file of the workspace.
pub(super) fn open(settings: &Settings, spec: &RunSpec, path: &str) -> Result<(File, Stat), String> {
    let path = resolve_outside_state(settings.state.as_deref(), &spec.workspace, "path", path);
    path.and_then(|path| path.open_file()).map_err(|bad| bad.error)
}

/// Whether the file was last written before the run started.
pub(super) fn is_older(stat: &Stat, started_at: Timestamp) -> bool {
    let written_at = stat.st_mtime.saturating_mul(1_000).saturating_add(mtime_ms(stat));
    written_at < started_at.0.saturating_sub(CLOCK_SLACK_MS)
}

fn mtime_ms(stat: &Stat) -> i64 {
    // The type of the field differs between machines.
    i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0)
}

/// The JSON in an open file, and of how many values it consists.
pub(super) fn read_json(file: File, stat: &Stat) -> Result<(Value, usize), String> {
    let too_long =
        || Err(format!("it has more than {MAX_JSON_BYTES} bytes, and is not matched with a schema"));
    if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > MAX_JSON_BYTES {
        return too_long();
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_JSON_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_JSON_BYTES {
        return too_long();
    }
    parse_json(&bytes)
}

fn parse_json(bytes: &[u8]) -> Result<(Value, usize), String> {
    let mut values = 0;
    let mut counted = serde_json::Deserializer::from_slice(bytes);
    let no_json = |error: serde_json::Error| match error.classify() {
        serde_json::error::Category::Data => format!("it is not matched with a schema: {error}"),
        serde_json::error::Category::Io
        | serde_json::error::Category::Syntax
        | serde_json::error::Category::Eof => format!("it is not JSON: {error}"),
    };
    ValueCounter(&mut values).deserialize(&mut counted).map_err(no_json)?;
    let value = serde_json::from_slice(bytes).map_err(no_json)?;
    Ok((value, values))
}

/// Counts the values of a JSON text without building them.
struct ValueCounter<'a>(&'a mut usize);

impl ValueCounter<'_> {
    fn count<E: Error>(self) -> Result<(), E> {
        *self.0 += 1;
        if *self.0 > MAX_JSON_VALUES {
            return Err(E::custom(format_args!(
                "it has more than {MAX_JSON_VALUES} values; write less into it"
            )));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ValueCounter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueCounter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.count()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.count()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.count()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.count()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.count()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.count()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self(values) = self;
        ValueCounter(values).count()?;
        while items.next_element_seed(ValueCounter(values))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let Self(values) = self;
        ValueCounter(values).count()?;
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(ValueCounter(values))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_a_file_are_counted_and_bounded() {
        let count = |text: &str| parse_json(text.as_bytes()).map(|(_, values)| values);
        assert_eq!(count(r#"{"a": [1, -2.5, "x", null, true, {}]}"#), Ok(8));
        assert_eq!(count("7"), Ok(1));
        let error = count(&format!("[{}0]", "0,".repeat(MAX_JSON_VALUES))).unwrap_err();
        assert!(error.contains("it has more than 250000 values; write less into it"), "{error}");
        for text in ["", "{", "[1] 2"] {
            let error = count(text).unwrap_err();
            assert!(error.starts_with("it is not JSON: "), "{error}");
        }
    }
}
