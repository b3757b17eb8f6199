//! Names in the characters and length that vendors accept: tool names there and back, and call ids.

use std::{borrow::Cow, collections::BTreeMap};

use hermod_actors::model::{Hash, ToolSpec};

/// Maximum length of a tool name.
pub(super) const MAX_NAME_CHARS: usize = 64;
/// Characters of the hash that keeps a changed name unique.
const HASH_CHARS: usize = 8;

/// The tool name for a vendor: letters, digits, `_` and `-`, at most `max` characters. A changed name ends in a hash,
/// so two tools keep distinct names. The result depends only on the name: it is the same in every request.
pub(super) fn wire_name(name: &str, max: usize) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.chars().all(is_plain) && (1..=max).contains(&name.len()) {
        return Cow::Borrowed(name);
    }
    let mut plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    plain.truncate(max - HASH_CHARS - 1);
    let mut hash = Hash::of(name.as_bytes()).to_string();
    hash.truncate(HASH_CHARS);
    Cow::Owned(format!("{plain}_{hash}"))
}

/// The original names of the tools with a changed name, keyed by the name that the vendor uses.
pub(super) fn changed_names(tools: &[ToolSpec]) -> BTreeMap<String, String> {
    let renamed = tools.iter().filter_map(|tool| match wire_name(&tool.name, MAX_NAME_CHARS) {
        Cow::Borrowed(_) => None,
        Cow::Owned(wire) => Some((wire, tool.name.clone())),
    });
    renamed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.into(), description: String::new(), parameters: serde_json::json!({}) }
    }

    #[test]
    fn a_name_that_is_taken_stays() {
        let longest = "x".repeat(64);
        for name in ["read_file", "a-b", "9", longest.as_str()] {
            assert_eq!(wire_name(name, 64), name);
        }
        assert!(changed_names(&[tool("read_file")]).is_empty());
    }

    #[test]
    fn any_other_is_changed_and_found_again() {
        let names = ["math.sin", "math_sin", "math/sin", "größe", "", &"x".repeat(65), &"x".repeat(66)];
        let tools: Vec<ToolSpec> = names.iter().map(|name| tool(name)).collect();
        let back = changed_names(&tools);
        assert_eq!(back.len(), names.len() - 1);
        for name in names {
            let wire = wire_name(name, 64);
            assert!(
                wire.len() <= 64 && wire.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)),
                "{wire}"
            );
            assert_eq!(back.get(&*wire).map_or(&*wire, String::as_str), name);
        }
    }
}
