//! Adapters that fail once, in the victim's third iteration, and the clock that records when. Also the runtime's
//! dependencies that are made of them.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, pending},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{AdapterFault, FaultAction};
use crate::{MemoryJournal, PlainEncoder, ScriptedProvider, ScriptedTool, calls, says, world};
use hermod_actors::{
    RuntimeDependencies,
    model::{
        CallEnd, CallStatus, EffectClass, Failure, FailureClass, Message, ModelAnswer, ModelProfile, Seq,
        SessionId, ToolSpec,
    },
    port::{
        BadArguments, DeltaSink, EncodedHead, Encoder, Invocation, Journal, MessageBuffer, ModelProvider,
        ModelRequest, PreparedCall, Tool,
    },
};

/// The input of the victim's run, by which scripts recognise it.
pub(super) const TARGET_INPUT: &str = "victim";
/// Tool results after which a run ends.
const TOOL_RESULTS: usize = 8;
/// The tool result that precedes the iteration with the fault.
const TRIGGER_RESULT: &str = "omen";
/// Duration of a model call.
const MODEL_DELAY: Duration = Duration::from_millis(5);

/// Records when the fault happened, and at which record of the victim.
#[derive(Debug)]
pub(super) struct InjectionClock {
    journal: MemoryJournal,
    target: OnceLock<SessionId>,
    point: Mutex<Option<InjectionPoint>>,
}

/// Time and journal position of the fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct InjectionPoint {
    pub(super) at: Instant,
    /// The victim's last record at that time; 0 if there is none.
    pub(super) last: Seq,
}

impl InjectionClock {
    /// A clock without an injection point yet.
    pub(super) fn new(journal: MemoryJournal) -> Self {
        Self { journal, target: OnceLock::new(), point: Mutex::default() }
    }

    /// Sets the victim. Only the first call counts.
    pub(super) fn set_target(&self, target: SessionId) {
        self.target.get_or_init(|| target);
    }

    /// Sets the injection point to now. Only the first call counts.
    pub(super) fn record(&self) {
        let all = |target: &SessionId| self.journal.records(*target, 1, usize::MAX);
        let read = self.target.get().and_then(|target| all(target).now_or_never());
        let last = read.and_then(Result::ok).and_then(|records| Some(records.last()?.seq)).unwrap_or(0);
        let mut point = self.point.lock().unwrap_or_else(PoisonError::into_inner);
        point.get_or_insert_with(|| InjectionPoint { at: Instant::now(), last });
    }

    /// The injection point; `None` before the fault.
    pub(super) fn injection_point(&self) -> Option<InjectionPoint> {
        *self.point.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dependencies of a runtime for three sessions, with the adapters' part of the fault `action`.
pub(super) fn scenario_dependencies(
    journal: Arc<dyn Journal>,
    action: FaultAction,
    clock: &Arc<InjectionClock>,
) -> RuntimeDependencies {
    let fault = match action {
        FaultAction::Call(fault) => Some(fault),
        FaultAction::Actor(..) | FaultAction::ActorThrice(_) | FaultAction::Commit(_) => None,
    };
    let injector = FaultInjector { fault, clock: Arc::clone(clock), done: Arc::default() };
    let is_stuck = matches!(action, FaultAction::ActorThrice(_));
    let scripted = ScriptedProvider::new(MODEL_DELAY, |view| Ok(script(view)));
    let encoder = Arc::new(FaultyEncoder(injector.clone()));
    let provider = FaultyProvider { inner: scripted.clone(), encoder, injector: injector.clone(), is_stuck };
    let read = ScriptedTool::fixed("read", EffectClass::Pure, "content");
    let trigger = ScriptedTool::fixed("omen", EffectClass::Pure, TRIGGER_RESULT);
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(read), Arc::new(trigger), injector.tool()];
    let world = world(journal, scripted, tools);
    RuntimeDependencies { providers: vec![("test".into(), Arc::new(provider), 1_000)], ..world }
}

/// Eight tool calls, then the end. All call `read`, but the victim's second call is `omen` and its third is `odd`.
fn script(view: &[Value]) -> ModelAnswer {
    let seen = view.iter().filter(|message| message["role"] == "tool").count();
    let tool = match (is_target(view), seen) {
        (_, TOOL_RESULTS..) => return says("done"),
        (true, 1) => "omen",
        (true, 2) => "odd",
        (true | false, _) => "read",
    };
    calls(&[(tool, json!({"n": seen}))])
}

fn is_target(view: &[Value]) -> bool {
    view.iter().any(|message| message["text"] == TARGET_INPUT)
}

fn follows_trigger(view: &[Value]) -> bool {
    view.last().is_some_and(|last| last["content"] == TRIGGER_RESULT)
}

/// Causes its fault once.
#[derive(Debug, Clone)]
struct FaultInjector {
    fault: Option<AdapterFault>,
    clock: Arc<InjectionClock>,
    done: Arc<AtomicBool>,
}

impl FaultInjector {
    /// True once, if `fault` is this injector's fault; records the injection point.
    fn is_due(&self, fault: AdapterFault) -> bool {
        let does = self.fault == Some(fault) && !self.done.swap(true, Ordering::SeqCst);
        if does {
            self.clock.record();
        }
        does
    }

    fn tool(self) -> Arc<dyn Tool> {
        let effect = match self.fault {
            Some(AdapterFault::ToolPanics(effect)) => effect,
            Some(_) | None => EffectClass::Once,
        };
        let injector = self.clone();
        let tool = ScriptedTool::new("odd", effect, move |_: Invocation| {
            let injector = injector.clone();
            async move { injector.run(effect).await }
        });
        Arc::new(FaultyTool(tool, self))
    }

    async fn run(self, effect: EffectClass) -> CallEnd {
        if self.is_due(AdapterFault::ToolFreezes) || self.is_due(AdapterFault::ToolIgnoresStop) {
            return pending().await;
        }
        if self.is_due(AdapterFault::ToolFails) {
            return CallEnd::error(CallStatus::Error, "it went wrong", None, "try another way");
        }
        assert!(!self.is_due(AdapterFault::ToolPanics(effect)), "the tool panics");
        CallEnd::ok("content")
    }
}

#[derive(Debug)]
struct FaultyProvider {
    inner: ScriptedProvider,
    encoder: Arc<FaultyEncoder>,
    injector: FaultInjector,
    /// True if the model call of the victim's third iteration never ends.
    is_stuck: bool,
}

impl ModelProvider for FaultyProvider {
    fn encoder(&self, _: &str, _: &ModelProfile) -> Arc<dyn Encoder> {
        Arc::<FaultyEncoder>::clone(&self.encoder)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        if follows_trigger(&PlainEncoder::decode(&request)) {
            if self.is_stuck || self.injector.is_due(AdapterFault::ModelFreezes) {
                return pending().boxed();
            }
            if self.injector.is_due(AdapterFault::ModelFails) {
                return async { Err(Failure::new(FailureClass::Server, "500")) }.boxed();
            }
            assert!(!self.injector.is_due(AdapterFault::ModelPanics), "the provider panics");
        }
        self.inner.call(request, deltas)
    }
}

#[derive(Debug)]
struct FaultyEncoder(FaultInjector);

impl Encoder for FaultyEncoder {
    fn head(&self, system: &str, tools: &[ToolSpec]) -> EncodedHead {
        PlainEncoder.head(system, tools)
    }

    fn messages(&self, messages: &[Message], to: &mut MessageBuffer) {
        for message in messages {
            if let Message::Tool { content, .. } = message
                && *content.text == *TRIGGER_RESULT
            {
                assert!(!self.0.is_due(AdapterFault::EncoderPanics), "the encoder panics");
            }
        }
        PlainEncoder.messages(messages, to);
    }
}

#[derive(Debug)]
struct FaultyTool(ScriptedTool, FaultInjector);

impl Tool for FaultyTool {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn prepare(&self, arguments: &Value, workspace: &str) -> Result<PreparedCall, BadArguments> {
        assert!(!self.1.is_due(AdapterFault::PlanPanics), "the tool panics when it looks at its arguments");
        self.0.prepare(arguments, workspace)
    }

    fn prepares_without_blocking(&self) -> bool {
        true
    }
}
