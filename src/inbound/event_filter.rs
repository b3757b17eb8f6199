//! Which webhooks of an endpoint become messages: those with one of the wanted values in each named header or place of
//! the body.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use serde_json::Value;

use super::signature::single;

/// The rule for one item of `events`.
const RULE: &str =
    "must be a header or a JSON pointer with its value, like \"X-GitHub-Event=issues\" or \"/action=opened\"";

/// Where a webhook says what it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Header(String),
    Pointer(String),
}

/// The webhooks that become messages; without conditions all do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter(BTreeMap<Place, Vec<String>>);

impl EventFilter {
    /// The filter of such items. Several values of one place are alternatives.
    pub fn new<'i>(items: impl IntoIterator<Item = &'i str>) -> Result<Self, String> {
        let mut wanted = BTreeMap::<Place, Vec<String>>::new();
        for item in items {
            let (place, value) = item.split_once('=').ok_or(RULE)?;
            let place = match place.trim() {
                pointer if pointer.starts_with('/') => Place::Pointer(pointer.to_owned()),
                name => {
                    let header: HeaderName = name.parse().map_err(|_| RULE)?;
                    Place::Header(header.as_str().to_owned())
                }
            };
            wanted.entry(place).or_default().push(value.trim().to_owned());
        }
        Ok(Self(wanted))
    }

    /// True if a webhook with these headers and this body is wanted.
    pub(super) fn accepts(&self, headers: &HeaderMap, body: &Value) -> bool {
        self.0.iter().all(|(place, values)| {
            let is_wanted = |found: &str| values.iter().any(|value| value == found);
            match place {
                Place::Header(name) => single(headers, name).is_some_and(is_wanted),
                Place::Pointer(pointer) => match body.pointer(pointer) {
                    Some(Value::String(text)) => is_wanted(text),
                    Some(value @ (Value::Bool(_) | Value::Number(_) | Value::Null)) => {
                        is_wanted(&value.to_string())
                    }
                    Some(Value::Array(_) | Value::Object(_)) | None => false,
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;

    #[test]
    fn each_place_needs_one_of_its_values() {
        let check = |items: &[&str], expect: bool| {
            let filter = EventFilter::new(items.iter().copied()).unwrap();
            let headers = [(HeaderName::from_static("x-github-event"), HeaderValue::from_static("issues"))];
            let body = json!({ "action": "opened", "issue": { "number": 7 }, "draft": false });
            assert_eq!(filter.accepts(&HeaderMap::from_iter(headers), &body), expect, "{items:?}");
        };
        check(&[], true);
        check(&["X-GitHub-Event=issues"], true);
        check(&["X-GitHub-Event=push", "x-github-event=issues"], true);
        check(&["X-GitHub-Event=push"], false);
        check(&["X-GitHub-Event=issues", "/action=opened", "/action=closed"], true);
        check(&["X-GitHub-Event=issues", "/action=closed"], false);
        check(&["/issue/number=7", "/draft=false"], true);
        check(&["/issue=7"], false);
        check(&["/nothing=null"], false);
    }

    #[test]
    fn an_item_has_a_place_and_a_value() {
        for item in ["issues", "a header=x", "=x"] {
            assert!(EventFilter::new([item]).is_err(), "{item}");
        }
    }
}
