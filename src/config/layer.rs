//! Settings as a flat map of dotted keys to values with their origins. Parses TOML into such a map, and makes nested
//! objects of it.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue, Error};

/// The origin of a setting. Their order is the order of precedence, the strongest last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingOrigin {
    /// The embedded defaults.
    Default,
    /// A line of a file.
    File {
        /// Path of the file.
        path: Arc<Path>,
        /// Line of the key, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(Arc<str>),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The value; an empty section is an empty object.
    pub value: Value,
    /// Origin of the value.
    pub origin: SettingOrigin,
}

/// Settings by dotted key.
pub type SettingLayer = BTreeMap<String, Setting>;

/// Parses TOML. `origin` maps a line, counted from 1, to its origin.
pub(super) fn parse(text: &str, origin: impl Fn(usize) -> SettingOrigin) -> Result<SettingLayer, Error> {
    let table = DeTable::parse(text)?;
    let mut layer = SettingLayer::new();
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(offset, _)| offset).collect();
    flatten(table.get_ref(), "", &mut |key, value, offset| {
        let origin = origin(line_ends.partition_point(|end| *end < offset) + 1);
        layer.insert(key, Setting { value: to_json(value), origin });
    });
    Ok(layer)
}

/// Visits each key with a value or an empty section, with the byte offset of the key.
fn flatten(table: &DeTable<'_>, section: &str, visit: &mut impl FnMut(String, &DeValue<'_>, usize)) {
    for (name, value) in table {
        let key = join(section, name.get_ref());
        match value.get_ref().as_table().filter(|inner| !inner.is_empty()) {
            Some(inner) => flatten(inner, &key, visit),
            None => visit(key, value.get_ref(), name.span().start),
        }
    }
}

fn join(section: &str, name: &str) -> String {
    let name = quoted(name);
    if section.is_empty() { name } else { format!("{section}.{name}") }
}

/// A name as part of a dotted key, quoted if TOML requires it: a name with a dot stays one name.
pub(super) fn quoted(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { format!("{name:?}") }
}

/// The first name of a key, with its quotes if there are some, and the key after its dot.
pub(super) fn first_name(key: &str) -> (&str, Option<&str>) {
    let (mut in_quotes, mut escaped) = (false, false);
    for (offset, c) in key.char_indices() {
        match c {
            '.' if !in_quotes => return (&key[..offset], Some(&key[offset + 1..])),
            '"' if !escaped => in_quotes = !in_quotes,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    (key, None)
}

/// Converts a value. Dates and numbers that JSON lacks become texts; no key takes either.
pub(super) fn to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(&**text),
        DeValue::Integer(number) => {
            let whole = i64::from_str_radix(number.as_str(), number.radix());
            whole.map_or_else(|_| number.to_string().into(), Value::from)
        }
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(fraction) if fraction.is_finite() => fraction.into(),
            Ok(_) | Err(_) => number.to_string().into(),
        },
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(date) => date.to_string().into(),
        DeValue::Array(list) => list.iter().map(|item| to_json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let fields =
                table.iter().map(|(name, value)| (name.get_ref().to_string(), to_json(value.get_ref())));
            Value::Object(fields.collect())
        }
    }
}

/// The settings as a nested object. Keys must be known ones: then no key is below another that has a value.
pub(super) fn to_object(layer: &SettingLayer) -> Value {
    let mut root = Value::Object(Map::new());
    for (key, setting) in layer {
        let mut value = &mut root;
        let mut rest = Some(key.as_str());
        while let Some(key) = rest {
            let (name, below) = first_name(key);
            // Known names contain no quotes or escapes.
            value = &mut value[name.trim_matches('"')];
            rest = below;
        }
        *value = setting.value.clone();
    }
    root
}
