//! Tries a hook with an example, outside of any run.

use std::sync::Arc;

use hermod_actors::{
    model::{AttemptId, CallId, CallStatus, HookPoint, HookVerdict, ModelRef, RunId, RunSpec, SessionId},
    port::{HookQuestion, HookSubject},
};
use serde_json::{Value, json};

use super::{
    event::question_json,
    hook::Hook,
    names::{HookName, HookRole},
    verdict::parse_verdict,
};
use crate::view::HookTrialView;

impl Hook {
    /// Calls it with an example of this name, or with an event of the caller, and tells what came of it.
    pub async fn try_out(&self, name: &HookName, event: Option<&Value>) -> HookTrialView {
        let example = || example(name, &self.name);
        let event = event.cloned().map_or_else(example, Ok);
        let answer = match event {
            Ok(event) => self.call(&event).await,
            Err(error) => Err(error),
        };
        let verdict = match name.role {
            HookRole::Decides(point) => answer.and_then(|bytes| parse_verdict(point, &bytes)).map(Some),
            HookRole::Observes(_) => answer.map(|_| None),
        };
        let view = HookTrialView {
            name: name.name.to_owned(),
            verdict: None,
            reason: None,
            replacement: None,
            error: None,
        };
        match verdict {
            Ok(None) => HookTrialView { verdict: Some("told"), ..view },
            Ok(Some(HookVerdict::Allow)) => HookTrialView { verdict: Some("allow"), ..view },
            Ok(Some(HookVerdict::Replace(value))) => {
                HookTrialView { verdict: Some("replace"), replacement: Some(value), ..view }
            }
            Ok(Some(HookVerdict::Refuse(reason))) => {
                HookTrialView { verdict: Some("refuse"), reason: Some(reason), ..view }
            }
            Err(error) => HookTrialView { error: Some(error), ..view },
        }
    }
}

/// An example of what a hook gets.
fn example(name: &HookName, hook: &str) -> Result<Value, String> {
    let (run, session) = (RunId::from_bits(1), SessionId::from_bits(2));
    let point = match name.role {
        HookRole::Decides(point) => point,
        HookRole::Observes(_) => {
            let (id, name) = (format!("example/1/{}", name.name), name.name);
            return Ok(
                json!({ "id": id, "name": name, "hook": hook, "session": session, "run": run, "seq": 1 }),
            );
        }
    };
    let model = ModelRef::new("vendor", "model").map_err(|error| error.to_string())?;
    let call = CallId { run, iteration: 1, n: 1 };
    let subject = example_subject(point, model.clone());
    let spec = Arc::new(RunSpec::new(vec![model], "/workspace"));
    let question = HookQuestion { point, session, id: AttemptId { call, attempt: 0 }, spec, subject };
    Ok(question_json(&question, hook, None))
}

fn example_subject(point: HookPoint, model: ModelRef) -> HookSubject {
    let command = json!({ "command": "ls" });
    match point {
        HookPoint::PreToolCall => HookSubject::Call { tool: "shell".into(), arguments: command },
        HookPoint::MessageSending => {
            HookSubject::Call { tool: "message".into(), arguments: json!({ "text": "Hello" }) }
        }
        HookPoint::PostToolCall | HookPoint::ToolResultPersist => HookSubject::Result {
            tool: "shell".into(),
            arguments: command.to_string().into(),
            status: CallStatus::Ok,
            content: "README.md".into(),
        },
        HookPoint::BeforeModelCall => HookSubject::ModelCall { model, bytes: 4_000, max_tokens: 1_000 },
    }
}
