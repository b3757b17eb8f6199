//! Drives the state machine of one session for benchmarks, without shell, store or model.

use std::{fmt, sync::Arc};

use serde_json::json;

use crate::calls;
use hermod_core::{
    model::{
        AgentName, AttemptId, CallEnd, CallId, Durable, EffectClass, Hash, Incarnation, ModelRef, Record,
        RunAccepted, RunId, SessionId, SessionOpened, SessionTime, Timestamp,
    },
    turn::{
        CallAdmission, DecisionBuilder, DueAction, GrantRequest, Input, RenderCursor, ReplayedSession, Turn,
    },
};

/// The state machine of one session in an endless run, driven as its shell drives it. Measures the cost of deciding.
pub struct CoreLoop {
    turn: Turn,
    cursor: RenderCursor,
    now: SessionTime,
    model: ModelRef,
}

impl fmt::Debug for CoreLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreLoop").field("last", &self.turn.last_seq()).finish_non_exhaustive()
    }
}

impl CoreLoop {
    /// A run of a new session, after `messages / 2` iterations of two messages each.
    pub fn new(messages: usize) -> Self {
        let spec = super::world::spec(vec!["tick".into()]);
        let model = spec.chain[0].clone();
        let now = SessionTime { at: Timestamp(1_767_225_600_000), active_ms: 0 };
        let incarnation = Incarnation { epoch: 1, revival: 1 };
        let prompt = "You are a test.".into();
        let opened = Input::Opened(SessionOpened {
            key: "key".into(),
            agent: AgentName::default(),
            prompt,
            incarnation,
            boot: "boot-1".into(),
        });
        let accepted = RunAccepted::new(RunId::from_bits(1 << 100), "Tick.", Arc::new(spec));
        let submitted = Input::Submitted { accepted: Box::new(accepted), key: None };
        let replayed = ReplayedSession::empty(SessionId::from_bits(1 << 101));
        let mut draft = replayed.start_decision(now, &opened);
        draft.apply_input(&submitted);
        let turn = replayed.into_turn(&grant_all(draft, &model));
        let mut core = Self { turn, cursor: RenderCursor::default(), now, model };
        for _ in 0..messages / 2 {
            core.iteration();
        }
        core
    }

    /// Runs from one started model call to the next: an answer with one call, and that call's result. These are two
    /// appends, as in the runtime. Each goes through decide, apply and due.
    pub fn iteration(&mut self) {
        let (rendered, cursor) = self.turn.render(self.cursor);
        debug_assert!(!rendered.is_empty(), "every request has something new");
        self.cursor = cursor;
        let started =
            self.turn.model_started().map(Arc::clone).expect("an iteration begins with a started call");
        let plan = CallAdmission::Admit {
            tool: "tick".into(),
            intent: EffectClass::Pure.into(),
            arguments: Hash::of(b"{}"),
            approval: None,
            hooks: None,
        };
        let call = CallId { n: 1, ..started.call };
        self.step(&Input::Answered {
            started,
            answer: Arc::new(calls(&[("tick", json!({"text": "0123456789"}))])),
            admissions: [plan].into(),
        });
        self.step(&Input::ToolEnded {
            id: AttemptId { call, attempt: 1 },
            end: CallEnd::ok("0123456789".repeat(20)),
        });
    }

    fn step(&mut self, input: &Input) -> Vec<DueAction> {
        self.now = SessionTime { at: self.now.at.plus_ms(1), active_ms: self.now.active_ms + 1 };
        let mut draft = self.turn.start_decision(self.now);
        draft.apply_input(input);
        for record in grant_all(draft, &self.model) {
            self.turn.apply(&record);
        }
        self.turn.due(self.now)
    }
}

/// Grants every lease and permit that the draft requests; returns its records as if they were on disk.
fn grant_all(mut draft: DecisionBuilder, model: &ModelRef) -> Vec<Durable<Arc<Record>>> {
    for request in draft.grant_requests() {
        draft.apply_input(&match request {
            GrantRequest::Lease(AttemptId { call, attempt }) => {
                Input::Leased { id: AttemptId { call, attempt }, model: model.clone() }
            }
            GrantRequest::Permit(AttemptId { call, attempt }, _) => {
                Input::Permitted(AttemptId { call, attempt })
            }
            GrantRequest::Place(run, _) => Input::MayBegin { run, hooks: None },
        });
    }
    // The shell also asks for the due actions before it appends.
    let due = draft.due();
    debug_assert!(!due.is_empty(), "the run goes on");
    draft.finish().records.into_iter().map(Durable::mark_durable).collect()
}
