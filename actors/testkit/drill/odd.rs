//! Adapters that do one misdeed, in the victim's third iteration.

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

use super::{Deed, Misdeed};
use crate::{
    World,
    model::{
        Answer, CallEnd, CallStatus, EffectClass, Failure, FailureClass, Message, ModelTraits, Seq,
        SessionId, ToolSpec,
    },
    port::{
        BadArguments, Deltas, Encoder, Head, Intent, Invocation, Journal, ModelRequest, Provider, Read, Rows,
        Segments, Tool,
    },
    testkit::{MemoryJournal, PlainEncoder, ScriptedProvider, ScriptedTool, calls, says, world},
};

/// What the victim's task says.
pub(super) const VICTIM: &str = "victim";
/// How many tool results a run wants to see.
const RESULTS: usize = 8;
/// The result before the iteration in which the misdeed is done.
const OMEN: &str = "omen";
/// What a model call takes.
const DELAY: Duration = Duration::from_millis(5);

/// When the fault struck.
#[derive(Debug)]
pub(super) struct Moment {
    journal: MemoryJournal,
    victim: OnceLock<SessionId>,
    struck: Mutex<Option<Struck>>,
}

/// See [`Moment`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Struck {
    pub(super) at: Instant,
    /// The victim's last record then.
    pub(super) last: Seq,
}

impl Moment {
    /// It is still to come.
    pub(super) fn new(journal: MemoryJournal) -> Self {
        Self { journal, victim: OnceLock::new(), struck: Mutex::default() }
    }

    /// Says whom it concerns.
    pub(super) fn concerns(&self, victim: SessionId) {
        self.victim.get_or_init(|| victim);
    }

    /// Now. Only the first time counts.
    pub(super) fn strike(&self) {
        let all = |session| Read::Records { session, from: 1, max: usize::MAX };
        let read = self.victim.get().and_then(|victim| self.journal.read(all(*victim)).now_or_never());
        let last = match read {
            Some(Ok(Rows::Records(records))) => records.last().map_or(0, |record| record.seq),
            _ => 0,
        };
        let mut struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        struck.get_or_insert_with(|| Struck { at: Instant::now(), last });
    }

    /// When it was.
    pub(super) fn struck(&self) -> Option<Struck> {
        *self.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Three sessions' world, in which `deed` will be done.
pub(super) fn world_of(journal: Arc<dyn Journal>, deed: Deed, moment: &Arc<Moment>) -> World {
    let misdeed = match deed {
        Deed::Call(misdeed) => Some(misdeed),
        Deed::Strike(..) | Deed::StrikeThrice(_) | Deed::Commit(_) => None,
    };
    let odd = Odd { misdeed, moment: Arc::clone(moment), done: Arc::default() };
    let stands_still = matches!(deed, Deed::StrikeThrice(_));
    let nobody = ScriptedProvider::new(DELAY, |view| Ok(script(view)));
    let encoder = Arc::new(OddEncoder(odd.clone()));
    let provider = OddProvider { inner: nobody.clone(), encoder, odd: odd.clone(), stands_still };
    let read = ScriptedTool::saying("read", EffectClass::Pure, "content");
    let omen = ScriptedTool::saying("omen", EffectClass::Pure, OMEN);
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(read), Arc::new(omen), odd.tool()];
    let world = world(journal, nobody, tools);
    World { providers: vec![("test".into(), Arc::new(provider), 1_000)], ..world }
}

/// Reads eight times; the victim gets the omen second, and calls the odd tool third.
fn script(view: &[Value]) -> Answer {
    let seen = view.iter().filter(|message| message["role"] == "tool").count();
    let tool = match (is_victim(view), seen) {
        (_, RESULTS..) => return says("done"),
        (true, 1) => "omen",
        (true, 2) => "odd",
        (true | false, _) => "read",
    };
    calls(&[(tool, json!({"n": seen}))])
}

fn is_victim(view: &[Value]) -> bool {
    view.iter().any(|message| message["text"] == VICTIM)
}

fn follows_omen(view: &[Value]) -> bool {
    view.last().is_some_and(|last| last["content"] == OMEN)
}

/// Does its misdeed once.
#[derive(Debug, Clone)]
struct Odd {
    misdeed: Option<Misdeed>,
    moment: Arc<Moment>,
    done: Arc<AtomicBool>,
}

impl Odd {
    /// Whether it is time for this misdeed.
    fn does(&self, misdeed: Misdeed) -> bool {
        let does = self.misdeed == Some(misdeed) && !self.done.swap(true, Ordering::SeqCst);
        if does {
            self.moment.strike();
        }
        does
    }

    fn tool(self) -> Arc<dyn Tool> {
        let effect = match self.misdeed {
            Some(Misdeed::ToolPanics(effect)) => effect,
            Some(_) | None => EffectClass::Once,
        };
        let odd = self.clone();
        let tool = ScriptedTool::new("odd", effect, move |_: Invocation| {
            let odd = odd.clone();
            async move { odd.run(effect).await }
        });
        Arc::new(OddTool(tool, self))
    }

    async fn run(self, effect: EffectClass) -> CallEnd {
        if self.does(Misdeed::ToolFreezes) || self.does(Misdeed::ToolIgnoresStop) {
            return pending().await;
        }
        if self.does(Misdeed::ToolFails) {
            return CallEnd::error(CallStatus::Error, "it went wrong", None, "try another way");
        }
        assert!(!self.does(Misdeed::ToolPanics(effect)), "the tool panics");
        CallEnd::ok("content")
    }
}

#[derive(Debug)]
struct OddProvider {
    inner: ScriptedProvider,
    encoder: Arc<OddEncoder>,
    odd: Odd,
    /// Whether the victim's third iteration never ends.
    stands_still: bool,
}

impl Provider for OddProvider {
    fn encoder(&self, _: &str, _: &ModelTraits) -> Arc<dyn Encoder> {
        Arc::<OddEncoder>::clone(&self.encoder)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn Deltas,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        if follows_omen(&PlainEncoder::decode(&request)) {
            if self.stands_still || self.odd.does(Misdeed::ModelFreezes) {
                return pending().boxed();
            }
            if self.odd.does(Misdeed::ModelFails) {
                return async { Err(Failure::new(FailureClass::Server, "500")) }.boxed();
            }
            assert!(!self.odd.does(Misdeed::ModelPanics), "the provider panics");
        }
        self.inner.call(request, deltas)
    }
}

#[derive(Debug)]
struct OddEncoder(Odd);

impl Encoder for OddEncoder {
    fn head(&self, system: &str, tools: &[ToolSpec]) -> Head {
        PlainEncoder.head(system, tools)
    }

    fn messages(&self, messages: &[Message], to: &mut Segments) {
        for message in messages {
            if let Message::Tool { content, .. } = message
                && *content.text == *OMEN
            {
                assert!(!self.0.does(Misdeed::EncoderPanics), "the encoder panics");
            }
        }
        PlainEncoder.messages(messages, to);
    }
}

#[derive(Debug)]
struct OddTool(ScriptedTool, Odd);

impl Tool for OddTool {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn plan(&self, arguments: &Value, workspace: &str) -> Result<Intent, BadArguments> {
        assert!(!self.1.does(Misdeed::PlanPanics), "the tool panics when it looks at its arguments");
        self.0.plan(arguments, workspace)
    }

    fn plans_at_once(&self) -> bool {
        true
    }

    fn run(&self, invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        self.0.run(invocation)
    }
}
