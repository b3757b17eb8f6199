//! Scripted models and tools, the plain encoding that they read, and builders of answers. No network, and no side
//! effects of their own.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};

use crate::{
    model::{
        Access, AssistantMessage, Attempt, AttemptId, CallEnd, CallId, CallStatus, EffectClass, Failure,
        FinishReason, Message, ModelAnswer, ModelProfile, ToolCall, ToolSpec, Usage,
    },
    port::{
        AttachOutcome, BadArguments, Boot, CallWork, DeltaSink, EncodedHead, Encoder, Intent, Invocation,
        MessageBuffer, ModelProvider, ModelRequest, PreparedCall, Tool, ToolChoice,
    },
};

/// The answer of a scripted model, as a function of the view. Its messages are JSON objects as [`PlainEncoder`] writes
/// them.
pub type ScriptFn = Arc<dyn Fn(&[Value]) -> Result<ModelAnswer, Failure> + Send + Sync>;

/// A provider whose model answers by a script, without a network.
#[derive(Clone)]
pub struct ScriptedProvider {
    script: ScriptFn,
    delay: Duration,
}

impl ScriptedProvider {
    /// A model that answers by `script` after `delay` of tokio's time.
    pub fn new(
        delay: Duration,
        script: impl Fn(&[Value]) -> Result<ModelAnswer, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self { script: Arc::new(script), delay }
    }
}

impl fmt::Debug for ScriptedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedProvider").finish_non_exhaustive()
    }
}

impl ModelProvider for ScriptedProvider {
    fn encoder(&self, _: &str, _: &ModelProfile) -> Arc<dyn Encoder> {
        // One encoder for all calls, so that views stay encoded from call to call.
        static ENCODER: std::sync::OnceLock<Arc<PlainEncoder>> = std::sync::OnceLock::new();
        let encoder: &Arc<PlainEncoder> = ENCODER.get_or_init(Arc::default);
        Arc::<PlainEncoder>::clone(encoder)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        async move {
            tokio::time::sleep(self.delay).await;
            let answer = (self.script)(&PlainEncoder::decode(&request))?;
            if !answer.message.text.is_empty() {
                deltas.text(&answer.message.text);
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// Writes messages as `{"role", "text" | "calls" | "call" and "content", "images" and "pixels"}`.
#[derive(Debug, Default)]
pub struct PlainEncoder;

impl PlainEncoder {
    /// The messages of a request, the system prompt first. The prompt has `"tool_choice": "none"` if the request
    /// forbids tool calls.
    pub fn decode(request: &ModelRequest) -> Vec<Value> {
        let mut bytes = request.head.bytes.to_vec();
        let messages = request.messages.clone().assemble(&[], &BTreeMap::new());
        messages.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.push(b']');
        let mut messages: Vec<Value> = serde_json::from_slice(&bytes).unwrap_or_default();
        if let Some(system) = messages.first_mut().filter(|_| request.tool_choice == ToolChoice::NoCalls) {
            system["tool_choice"] = "none".into();
        }
        messages
    }
}

impl Encoder for PlainEncoder {
    fn head(&self, system: &str, tools: &[ToolSpec]) -> EncodedHead {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let bytes = format!("[{}", json!({"role": "system", "text": system, "tools": names})).into();
        EncodedHead { bytes, renamed_tools: Arc::default(), has_tools: !tools.is_empty() }
    }

    fn messages(&self, messages: &[Message], to: &mut MessageBuffer) {
        for message in messages {
            let mut value = match message {
                Message::System(text) => json!({"role": "system", "text": **text}),
                Message::User(content) => json!({"role": "user", "text": *content.text_with_note()}),
                Message::Assistant(answer) => {
                    json!({"role": "assistant", "text": answer.text, "calls": answer.calls})
                }
                Message::Tool { call, name, content } => {
                    json!({"role": "tool", "call": **call, "name": **name, "content": *content.text_with_note()})
                }
            };
            if let Message::User(content) | Message::Tool { content, .. } = message
                && !content.images.is_empty()
            {
                value["images"] = content.images.iter().map(|image| image.artifact.handle.as_str()).collect();
                to.push(format!(",{value}").trim_end_matches('}').to_owned() + r#","pixels":""#);
                content.images.iter().for_each(|image| to.push_image(image.clone()));
                to.push(r#""}"#);
                continue;
            }
            to.push(format!(",{value}"));
        }
    }
}

/// A complete answer with this text.
pub fn says(text: &str) -> ModelAnswer {
    let message = AssistantMessage { text: text.into(), ..AssistantMessage::default() };
    let usage = Some(Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() });
    ModelAnswer { message, finish: FinishReason::Stop, usage }
}

/// A complete answer with these tool calls, each a name and arguments.
pub fn calls(calls: &[(&str, Value)]) -> ModelAnswer {
    let call = |(n, (name, arguments)): (usize, &(&str, Value))| ToolCall {
        id: format!("c{n}"),
        name: (*name).into(),
        arguments: arguments.to_string(),
    };
    let calls = calls.iter().enumerate().map(call).collect();
    let message = AssistantMessage { calls, ..AssistantMessage::default() };
    ModelAnswer { message, finish: FinishReason::ToolCalls, ..says("") }
}

type RunFn = Arc<dyn Fn(Invocation) -> BoxFuture<'static, CallEnd> + Send + Sync>;
type AttachFn = Arc<dyn Fn(Invocation, Boot) -> BoxFuture<'static, AttachOutcome> + Send + Sync>;

/// A tool that runs a closure.
#[derive(Clone)]
pub struct ScriptedTool {
    spec: ToolSpec,
    intent: Intent,
    run: RunFn,
    attach: AttachFn,
    forgotten: Arc<Mutex<Vec<AttemptId>>>,
    closed: Arc<AtomicU32>,
}

impl ScriptedTool {
    /// A tool whose calls run `run`; a call of an earlier process cannot be attached.
    pub fn new<F: Future<Output = CallEnd> + Send + 'static>(
        name: &str,
        effect: EffectClass,
        run: impl Fn(Invocation) -> F + Send + Sync + 'static,
    ) -> Self {
        let spec = ToolSpec {
            name: name.into(),
            description: format!("The scripted tool {name}."),
            parameters: json!({"type": "object"}),
        };
        Self {
            spec,
            intent: effect.into(),
            run: Arc::new(move |invocation| run(invocation).boxed()),
            attach: Arc::new(|_, _| std::future::ready(AttachOutcome::Unknown).boxed()),
            forgotten: Arc::default(),
            closed: Arc::default(),
        }
    }

    /// The same tool with detached calls; `attach` finds those that an earlier process started.
    #[must_use]
    pub fn with_attach<F: Future<Output = AttachOutcome> + Send + 'static>(
        mut self,
        attach: impl Fn(Invocation, Boot) -> F + Send + Sync + 'static,
    ) -> Self {
        self.intent.detached = true;
        self.attach = Arc::new(move |invocation, boot| attach(invocation, boot).boxed());
        self
    }

    /// The attempts for which `forget` was called: their ends are in the journal.
    pub fn forgotten_attempts(&self) -> Vec<AttemptId> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often the tool was closed.
    pub fn closed(&self) -> u32 {
        self.closed.load(Ordering::SeqCst)
    }

    /// The same tool, whose calls declare this access.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.intent.access = access;
        self
    }

    /// A tool that returns `content` at once.
    pub fn fixed(name: &str, effect: EffectClass, content: &str) -> Self {
        let end = CallEnd::ok(content);
        Self::new(name, effect, move |_| std::future::ready(end.clone()))
    }

    /// A tool that runs until it is cancelled.
    pub fn endless(name: &str, effect: EffectClass) -> Self {
        Self::new(name, effect, |invocation| async move {
            invocation.cancel.cancelled().await;
            CallEnd::new(CallStatus::Stopped, "stopped")
        })
    }
}

impl fmt::Debug for ScriptedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl Tool for ScriptedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, _arguments: &Value, _workspace: &str) -> Result<PreparedCall, BadArguments> {
        let work = ScriptedCall { run: Arc::clone(&self.run), attach: Arc::clone(&self.attach) };
        Ok(PreparedCall::new(self.intent.clone(), work))
    }

    fn prepares_without_blocking(&self) -> bool {
        true
    }

    fn forget(&self, call: CallId, attempt: Attempt) {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).push(AttemptId { call, attempt });
    }

    fn close(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

struct ScriptedCall {
    run: RunFn,
    attach: AttachFn,
}

impl CallWork for ScriptedCall {
    fn run(self: Box<Self>, invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        (self.run)(invocation)
    }

    fn attach(self: Box<Self>, invocation: Invocation, boot: Boot) -> BoxFuture<'static, AttachOutcome> {
        (self.attach)(invocation, boot)
    }
}
