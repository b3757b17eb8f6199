//! Reads the verdict of a hook: one JSON object, and nothing beside it.

use hermod_actors::model::{HookPoint, HookVerdict};
use serde::Deserialize;
use serde_json::Value;

use crate::excerpt::quoted_first_chars;

/// Characters of an answer that is no verdict which are shown.
const MAX_SHOWN_CHARS: usize = 80;
/// The forms of a verdict, for messages.
const FORMS: &str =
    r#"answer {"verdict":"allow"}, {"verdict":"refuse","reason":"…"} or {"verdict":"replace",…}"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    verdict: Ruling,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    context: Option<Value>,
}

impl Answer {
    fn replaces(&self) -> bool {
        [&self.arguments, &self.result, &self.input, &self.context].into_iter().any(Option::is_some)
    }

    /// What changes of a run, as an object with what is given.
    fn change_of_run(self) -> Value {
        let given = [("input", self.input), ("context", self.context)];
        given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ruling {
    Allow,
    Refuse,
    Replace,
}

/// The verdict in these bytes. The error says why they are none.
pub(super) fn parse_verdict(point: HookPoint, bytes: &[u8]) -> Result<HookVerdict, String> {
    let shown = || quoted_first_chars(&String::from_utf8_lossy(bytes), MAX_SHOWN_CHARS);
    if bytes.trim_ascii().is_empty() {
        return Err(format!("its answer is empty; {FORMS}"));
    }
    let answer: Answer = serde_json::from_slice(bytes)
        .map_err(|error| format!("its answer {} is no verdict: {error}; {FORMS}", shown()))?;
    match answer.verdict {
        Ruling::Allow if answer.replaces() => Err("it allows and replaces at once; say `replace`".to_owned()),
        Ruling::Allow => Ok(HookVerdict::Allow),
        Ruling::Refuse => Ok(HookVerdict::Refuse(answer.reason.unwrap_or_default())),
        Ruling::Replace => {
            let (field, value) = match point {
                // The tally of all hooks checks what is in it.
                HookPoint::BeforeRun => ("input", Some(answer.change_of_run())),
                HookPoint::PreToolCall | HookPoint::MessageSending => ("arguments", answer.arguments),
                HookPoint::PostToolCall | HookPoint::ToolResultPersist => ("result", answer.result),
                HookPoint::BeforeModelCall => {
                    return Err(format!("nothing can be replaced at {}", point.name()));
                }
            };
            value.map(HookVerdict::Replace).ok_or_else(|| format!("it replaces, and gives no `{field}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(point: HookPoint, text: &str, expect: Result<HookVerdict, &str>) {
        match (parse_verdict(point, text.as_bytes()), expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect, "{text}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            (found, expect) => panic!("{text}: expected {expect:?}, got {found:?}"),
        }
    }

    #[test]
    fn a_verdict_is_one_object_and_all_else_is_none() {
        use HookPoint::{BeforeModelCall, BeforeRun, PostToolCall, PreToolCall};
        check(PreToolCall, r#"{"verdict":"allow"}"#, Ok(HookVerdict::Allow));
        check(PreToolCall, " {\"verdict\":\"allow\",\"reason\":\"fine\"}\n", Ok(HookVerdict::Allow));
        check(PreToolCall, r#"{"verdict":"refuse","reason":"no"}"#, Ok(HookVerdict::Refuse("no".into())));
        check(PreToolCall, r#"{"verdict":"refuse"}"#, Ok(HookVerdict::Refuse(String::new())));
        let replace = r#"{"verdict":"replace","arguments":{"a":1}}"#;
        check(PreToolCall, replace, Ok(HookVerdict::Replace(json!({"a": 1}))));
        check(PostToolCall, replace, Err("gives no `result`"));
        check(BeforeModelCall, replace, Err("nothing can be replaced at before_model_call"));
        let replace = r#"{"verdict":"replace","result":"x"}"#;
        check(PostToolCall, replace, Ok(HookVerdict::Replace(json!("x"))));
        let replace = r#"{"verdict":"replace","input":"x","context":"y"}"#;
        check(BeforeRun, replace, Ok(HookVerdict::Replace(json!({"input": "x", "context": "y"}))));
        check(BeforeRun, r#"{"verdict":"replace"}"#, Ok(HookVerdict::Replace(json!({}))));
        check(BeforeRun, r#"{"verdict":"allow","context":"y"}"#, Err("at once"));
        check(PreToolCall, "", Err("is empty"));
        check(PreToolCall, "ok", Err("is no verdict"));
        check(PreToolCall, "{}", Err("missing field `verdict`"));
        check(PreToolCall, r#"{"verdict":"maybe"}"#, Err("unknown variant"));
        check(PreToolCall, r#"{"verdict":"allow"} {"verdict":"refuse"}"#, Err("is no verdict"));
        check(PreToolCall, r#"{"verdict":"allow","arguments":{}}"#, Err("at once"));
        check(PreToolCall, r#"{"verdict":"allow","Verdict":"refuse"}"#, Err("unknown field"));
    }
}
