//! Hooks that shape the system prompt of a new session: one adds and removes layers, the other replaces the whole. The
//! prompt that comes of it is recorded with the session, so no hook is asked twice about it.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hermod_actors::port::{PromptLayer, PromptRequest, SystemPrompt, SystemPromptBuilder, SystemPromptError};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    configured::ConfiguredHooks,
    hook::Hook,
    names::{HookRole, PromptPoint},
};

/// The points, in this order.
const POINTS: [PromptPoint; 2] = [PromptPoint::SessionBootstrap, PromptPoint::BeforePromptBuild];
/// How long all hooks may take: less than a runtime waits for a prompt.
const MAX_TIME: Duration = Duration::from_secs(4);

/// What a hook makes of a prompt.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum PromptVerdict {
    /// It stays as it is.
    Allow {},
    /// The first run of the session is rejected.
    Refuse {
        #[serde(default)]
        reason: String,
    },
    /// It is changed.
    Replace {
        /// Names of layers that are left out.
        #[serde(default)]
        remove: Vec<String>,
        /// Layers that follow the others.
        #[serde(default)]
        add: Vec<AddedLayer>,
        /// The whole prompt.
        #[serde(default)]
        prompt: Option<String>,
    },
}

/// A layer that a hook adds.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AddedLayer {
    name: String,
    text: String,
}

/// Reads what a hook has answered.
pub(super) fn parse_prompt_verdict(point: PromptPoint, bytes: &[u8]) -> Result<PromptVerdict, String> {
    let verdict: PromptVerdict =
        serde_json::from_slice(bytes).map_err(|error| format!("its answer is no verdict: {error}"))?;
    match (point, &verdict) {
        (PromptPoint::SessionBootstrap, PromptVerdict::Replace { prompt: Some(_), .. }) => {
            Err("it gives a `prompt`; before_prompt_build may, and this may `add` and `remove`".to_owned())
        }
        (PromptPoint::BeforePromptBuild, PromptVerdict::Replace { prompt: None, .. }) => {
            Err("it replaces, and gives no `prompt`".to_owned())
        }
        _ => Ok(verdict),
    }
}

/// What a hook gets about a prompt.
pub(super) fn prompt_question(
    point: PromptPoint,
    hook: &str,
    (request, prompt): (&PromptRequest, &SystemPrompt),
) -> Value {
    let layer = |layer: &PromptLayer| json!({ "name": *layer.name, "text": layer.text });
    json!({
        "name": point.name(),
        "hook": hook,
        "agent": request.agent.to_string(),
        "workspace": request.workspace,
        "tools": request.tools,
        "model": request.model.as_ref().map(ToString::to_string),
        "day": request.day,
        "layers": prompt.layers.iter().map(layer).collect::<Vec<_>>(),
    })
}

impl ConfiguredHooks {
    /// Whether a hook shapes prompts.
    fn shapes_prompts(&self) -> bool {
        self.hooks().iter().any(|hook| POINTS.iter().any(|point| hook.shapes(*point)))
    }

    /// The prompt as hooks leave it. A hook without a verdict rejects it.
    async fn shaped(
        &self,
        request: &PromptRequest,
        mut prompt: SystemPrompt,
    ) -> Result<SystemPrompt, SystemPromptError> {
        let end = Instant::now() + MAX_TIME;
        for point in POINTS {
            for hook in self.hooks().iter().filter(|hook| hook.shapes(point)) {
                let question = prompt_question(point, &hook.name, (request, &prompt));
                let refused =
                    |why: &str| format!("the hook `{}` refuses this at {}: {why}", hook.name, point.name());
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    let seconds = MAX_TIME.as_secs();
                    let why = refused(&format!("the {seconds} s that all hooks have together are over"));
                    return Err(SystemPromptError::Failed(why));
                }
                match hook.shape(point, &question, left).await {
                    Ok(PromptVerdict::Allow {}) => {}
                    Ok(PromptVerdict::Refuse { reason }) => {
                        return Err(SystemPromptError::Refused(refused(&reason)));
                    }
                    Ok(PromptVerdict::Replace { remove, add, prompt: whole }) => {
                        apply(&mut prompt, hook, (remove, add, whole));
                    }
                    Err(error) => {
                        let why = refused(&format!("it has given no verdict: {error}"));
                        return Err(SystemPromptError::Failed(why));
                    }
                }
            }
        }
        Ok(prompt)
    }
}

fn apply(
    prompt: &mut SystemPrompt,
    hook: &Hook,
    (remove, add, whole): (Vec<String>, Vec<AddedLayer>, Option<String>),
) {
    let layer = |name: &str, text| PromptLayer { name: name.into(), text, original_bytes: None };
    if let Some(text) = whole {
        prompt.layers = vec![layer(&format!("hook {}", hook.name), text)];
    }
    prompt.layers.retain(|layer| !remove.iter().any(|name| **name == *layer.name));
    prompt.layers.extend(add.into_iter().map(|added| layer(&added.name, added.text)));
}

/// A builder whose prompts are shaped by hooks.
#[derive(Debug)]
pub struct HookedPrompt<F> {
    /// Builds what hooks are asked about.
    pub builder: Arc<dyn SystemPromptBuilder>,
    /// The hooks at present.
    pub hooks: F,
}

impl<F> SystemPromptBuilder for HookedPrompt<F>
where
    F: HookSource,
{
    fn build(&self, request: PromptRequest) -> BoxFuture<'static, Result<SystemPrompt, SystemPromptError>> {
        let hooks = self.hooks.present();
        let built = self.builder.build(request.clone());
        if !hooks.shapes_prompts() {
            return built;
        }
        Box::pin(async move {
            let prompt = built.await?;
            hooks.shaped(&request, prompt).await
        })
    }
}

/// Where the present hooks are: a reload exchanges them.
pub trait HookSource: std::fmt::Debug + Send + Sync + 'static {
    /// The present hooks.
    fn present(&self) -> Arc<ConfiguredHooks>;
}

impl PromptPoint {
    /// The name in the configuration.
    pub(super) fn name(self) -> &'static str {
        let is_it = |name: &&super::HookName| name.role == HookRole::Shapes(self);
        super::NAMES.iter().find(is_it).map_or("", |name| name.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_on_a_prompt_fits_its_point() {
        use PromptPoint::{BeforePromptBuild, SessionBootstrap};
        let check = |point, text: &str, expect: Result<PromptVerdict, &str>| match (
            parse_prompt_verdict(point, text.as_bytes()),
            expect,
        ) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect, "{text}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            (found, expect) => panic!("{text}: expected {expect:?}, got {found:?}"),
        };
        check(SessionBootstrap, r#"{"verdict":"allow"}"#, Ok(PromptVerdict::Allow {}));
        let added = AddedLayer { name: "b".into(), text: "c".into() };
        let replace = PromptVerdict::Replace { remove: vec!["a".into()], add: vec![added], prompt: None };
        let text = r#"{"verdict":"replace","remove":["a"],"add":[{"name":"b","text":"c"}]}"#;
        check(SessionBootstrap, text, Ok(replace));
        check(BeforePromptBuild, text, Err("gives no `prompt`"));
        check(SessionBootstrap, r#"{"verdict":"replace","prompt":"x"}"#, Err("before_prompt_build may"));
        check(BeforePromptBuild, r#"{"verdict":"allow","prompt":"x"}"#, Err("no verdict"));
        check(BeforePromptBuild, "", Err("no verdict"));
    }
}
