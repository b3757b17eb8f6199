//! Tries a hook with an example, outside of any run.

use std::sync::Arc;

use hermod_actors::{
    model::{AttemptId, CallId, CallStatus, HookPoint, HookVerdict, ModelRef, RunId, RunSpec, SessionId},
    port::{HookQuestion, HookSubject, PromptLayer, PromptRequest, SystemPrompt},
};
use serde_json::{Value, json};

use super::{
    event::question_json,
    hook::Hook,
    names::{HookName, HookRole},
    prompt::{PromptVerdict, parse_prompt_verdict, prompt_question},
    verdict::parse_verdict,
};
use crate::{clock, view::HookTrialView};

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
            HookRole::Shapes(point) => {
                return match answer.and_then(|bytes| parse_prompt_verdict(point, &bytes)) {
                    Ok(verdict) => of_prompt(name, verdict),
                    Err(error) => HookTrialView { error: Some(error), ..none(name) },
                };
            }
            HookRole::Decides(point) => answer.and_then(|bytes| parse_verdict(point, &bytes)).map(Some),
            HookRole::Observes(_) => answer.map(|_| None),
        };
        let view = none(name);
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

fn none(name: &HookName) -> HookTrialView {
    let name = name.name.to_owned();
    HookTrialView { name, verdict: None, reason: None, replacement: None, error: None }
}

fn of_prompt(name: &HookName, verdict: PromptVerdict) -> HookTrialView {
    let view = none(name);
    match verdict {
        PromptVerdict::Allow {} => HookTrialView { verdict: Some("allow"), ..view },
        PromptVerdict::Refuse { reason } => {
            HookTrialView { verdict: Some("refuse"), reason: Some(reason), ..view }
        }
        PromptVerdict::Replace { remove, prompt, .. } => {
            let replacement = Some(prompt.map_or_else(|| json!({ "remove": remove }), Value::from));
            HookTrialView { verdict: Some("replace"), replacement, ..view }
        }
    }
}

/// An example of what a hook gets.
fn example(name: &HookName, hook: &str) -> Result<Value, String> {
    let (run, session) = (RunId::from_bits(1), SessionId::from_bits(2));
    let point = match name.role {
        HookRole::Decides(point) => point,
        HookRole::Shapes(point) => {
            let spec = RunSpec::new(Vec::new(), "/workspace");
            let layer = PromptLayer {
                name: "identity".into(),
                text: "You are Hermod.".to_owned(),
                original_bytes: None,
            };
            let prompt = SystemPrompt { layers: vec![layer] };
            let request = PromptRequest::for_run(&spec, clock::now());
            return Ok(prompt_question(point, hook, (&request, &prompt)));
        }
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
        HookPoint::BeforeRun => HookSubject::Run { input: "Tidy up the logs.".into() },
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
