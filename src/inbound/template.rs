//! Texts made of a webhook's body and headers. A template is the operator's, and what it is filled with is anybody's: the
//! work and the memory of a rendering are bounded.

use std::collections::BTreeMap;

use http::HeaderMap;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, context};
use serde_json::Value;

use super::signature::single;
use crate::excerpt::first_chars;

/// Work of one rendering: about as many instructions, or 64 bytes of data each.
const FUEL: u64 = 50_000;
/// Most characters of a template's part in a message.
const MAX_PLACE_CHARS: usize = 80;
/// Headers that no template gets: they may hold secrets.
const HIDDEN_HEADERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Checks that a text is a template.
pub fn check_template(source: &str) -> Result<(), String> {
    environment().template_from_str(source).map(drop).map_err(|error| explain(&error, source))
}

/// What templates are filled with.
#[derive(Debug)]
pub(super) struct TemplateValues(minijinja::Value);

impl TemplateValues {
    /// The fields of the body by their names, `body` for all of it, and `headers` with `_` in place of `-`.
    pub(super) fn new(body: &Value, headers: &HeaderMap) -> Self {
        let is_shown = |name: &str| !HIDDEN_HEADERS.contains(&name) && !name.contains("signature");
        let shown = headers.keys().map(http::HeaderName::as_str).filter(|name| is_shown(name));
        let shown =
            shown.filter_map(|name| Some((name.replace('-', "_"), single(headers, name)?.to_owned())));
        let headers = shown.collect::<BTreeMap<_, _>>();
        let body = minijinja::Value::from(minijinja::value::Serde(body));
        Self(context! { headers, body => body.clone(), ..body })
    }

    /// Fills a template. The error names the part of it that fails.
    pub(super) fn fill(&self, source: &str) -> Result<String, String> {
        let environment = environment();
        let rendered = environment.template_from_str(source).and_then(|template| template.render(&self.0));
        rendered.map_err(|error| explain(&error, source))
    }
}

fn environment<'source>() -> Environment<'source> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    // A name that is wrong must not become an empty text.
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_debug(true);
    environment
}

fn explain(error: &Error, source: &str) -> String {
    if error.kind() == ErrorKind::OutOfFuel {
        return "is too much work for one webhook; make the template do less".to_owned();
    }
    let kind = error.kind().to_string();
    let what = error.detail().map_or_else(|| kind.clone(), |detail| format!("{kind}: {detail}"));
    match error.range().and_then(|range| source.get(range)) {
        Some(place) => format!("{what}, at `{}`", first_chars(place, MAX_PLACE_CHARS)),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;

    fn values() -> TemplateValues {
        let pairs = [
            ("x-github-event", "issues"),
            ("authorization", "Bearer hunter2"),
            ("x-hub-signature-256", "sha256=00"),
        ];
        let pairs =
            pairs.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let body = json!({
            "action": "opened", "n": 7, "labels": [{ "name": "bug" }, { "name": "ui" }],
            "repository": { "full_name": "a/b" }, "title": "{{ headers.authorization }}", "headers": { "own": 1 },
        });
        TemplateValues::new(&body, &HeaderMap::from_iter(pairs))
    }

    #[track_caller]
    fn check(template: &str, expect: Result<&str, &str>) {
        match (values().fill(template), expect) {
            (Ok(text), Ok(expect)) => assert_eq!(text, expect),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (filled, expect) => panic!("{template}: expected {expect:?}, got {filled:?}"),
        }
    }

    #[test]
    fn a_template_is_filled_with_body_and_headers() {
        check("github-{{ repository.full_name }}", Ok("github-a/b"));
        check("{{ headers.x_github_event }} {{ action }} {{ n }}", Ok("issues opened 7"));
        check("{% for label in labels %}{{ label.name }};{% endfor %}", Ok("bug;ui;"));
        check("{% if pull_request %}pull{% else %}issue{% endif %}", Ok("issue"));
        check("{{ milestone | default('none') }}", Ok("none"));
        check("{{ body.headers.own }} {{ labels | tojson }}", Ok(r#"1 [{"name": "bug"}, {"name": "ui"}]"#));
        // What a sender writes is no template.
        check("{{ title }}", Ok("{{ headers.authorization }}"));
    }

    #[test]
    fn what_cannot_be_filled_says_where() {
        check("{{ repository.owner.login }}", Err("`repository.owner` is undefined, at `.owner.login`"));
        check("{{ nothing }}", Err("undefined value"));
        check("{{ headers.authorization }}", Err("undefined value"));
        check("{{ headers.x_hub_signature_256 }}", Err("undefined value"));
        check("{{ labels | frobnicate }}", Err("frobnicate"));
    }

    #[test]
    fn work_and_memory_are_bounded() {
        check(
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
            Err("too much work"),
        );
        check("{{ 'x' * 100000000 }}", Err("too much work"));
        check(
            "{% set ns = 'xxxxxxxxxxxxxxxx' %}{% for a in range(9999) %}{{ ns * 1000 }}{% endfor %}",
            Err("too much work"),
        );
    }

    #[test]
    fn mistakes_are_found_before_a_webhook_comes() {
        let check = |source: &str, expect: Result<(), &str>| match (check_template(source), expect) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (found, expect) => panic!("{source}: expected {expect:?}, got {found:?}"),
        };
        check("plain", Ok(()));
        check("{{ a.b }}", Ok(()));
        check("{{ a.b ", Err("syntax error"));
        check("{% for x in %}", Err("syntax error"));
    }
}
