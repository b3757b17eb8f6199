//! What the templates of a webhook are filled with: its body and its headers.

use std::collections::BTreeMap;

use http::HeaderMap;
use minijinja::context;
use serde_json::Value;

use super::signature::single;
use crate::text_template;

/// Headers that no template gets: they may hold secrets.
const HIDDEN_HEADERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

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
        text_template::fill(source, &self.0)
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
}
