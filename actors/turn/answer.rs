//! What the model's answers and failures mean.

use std::sync::Arc;

use crate::{
    model::{
        Amounts, Answer, Attempt, Body, CallAdmitted, CallId, Cause, EffectClass, Ended, Failure,
        FailureClass, Finish, Flaw, LateSettled, ModelAnswered, ModelFailed, ModelRef, ModelStarted, Outcome,
    },
    policy::falls_back,
    turn::{
        Fault, Plan,
        draft::Draft,
        limits,
        run::{Asked, Asking, Step},
    },
};

/// The answer that makes so many in a row all of whose calls name tools that do not exist ends the run.
const UNKNOWN_TOOLS: u32 = 3;
/// How often the model is asked again for arguments that are JSON.
const MALFORMED: u32 = 2;
/// How often it is asked again for calls that were cut off.
const TRUNCATED: u32 = 4;

impl Draft {
    /// Starts an attempt of the model call, with the view as it is now.
    pub(super) fn ask(&mut self, call: CallId, attempt: Attempt, model: &ModelRef) {
        let Some(run) = self.run().filter(|run| run.model_call() == call && self.may_start()) else {
            return;
        };
        let Step::Asking(Asking { attempt: wanted, state: Asked::Wanted(_), .. }) = &run.step else {
            return;
        };
        if *wanted != attempt {
            return;
        }
        let estimate = limits::estimate(run, &self.turn, (attempt, model));
        let started = ModelStarted {
            call,
            attempt,
            model: model.clone(),
            view: self.turn.last,
            request: self.turn.history.hash(),
            max_tokens: estimate.max_tokens,
            prefix: self.turn.prefix_change(model),
            reserved: estimate.reserved,
            incarnation: self.turn.incarnation,
        };
        self.push(Body::ModelStarted(Box::new(started)));
    }

    /// Whether this is the attempt under way.
    fn is_asked(&self, call: CallId, attempt: Attempt) -> bool {
        self.run().and_then(super::run::Run::asking).is_some_and(|s| s.call == call && s.attempt == attempt)
    }

    pub(super) fn answered(&mut self, started: &ModelStarted, answer: &Answer, plans: &[Plan]) {
        let (call, attempt) = (started.call, started.attempt);
        if !self.is_asked(call, attempt) {
            return self.late(started, answer);
        }
        let flaw = self.flaw(answer, plans);
        self.push(Body::ModelAnswered(Box::new(ModelAnswered {
            call,
            attempt,
            message: Arc::new(answer.message.clone()),
            finish: answer.finish,
            flaw,
            usage: answer.usage,
        })));
        if flaw.is_some_and(Flaw::discards) {
            return;
        }
        let in_a_row = self.run().map_or(0, |run| run.flaws.unknown);
        let unknown =
            (in_a_row >= UNKNOWN_TOOLS).then(|| Ended::because(Outcome::Failed, Cause::UnknownTool));
        if let Some(ended) = outcome_of(answer).or(unknown) {
            return self.end_run(ended);
        }
        self.plan(call, plans);
        self.skip_for_messages();
    }

    /// What is wrong with an answer that asks for calls. One that was asked for often enough is taken as it is.
    fn flaw(&self, answer: &Answer, plans: &[Plan]) -> Option<Flaw> {
        let flaws = self.run()?.flaws;
        let has =
            |fault: Fault| move |plan: &Plan| matches!(plan, Plan::Refuse { fault: f, .. } if *f == fault);
        match answer.finish {
            Finish::Stop | Finish::ToolCalls if plans.is_empty() => None,
            Finish::Length if answer.message.calls.is_empty() => None,
            Finish::Length => (flaws.truncated < TRUNCATED).then_some(Flaw::Truncated),
            Finish::Stop | Finish::ToolCalls => {
                let malformed = plans.iter().any(has(Fault::Malformed)) && flaws.malformed < MALFORMED;
                let unknown = plans.iter().all(has(Fault::UnknownTool));
                malformed.then_some(Flaw::Malformed).or(unknown.then_some(Flaw::UnknownTools))
            }
            Finish::Refused => None,
        }
    }

    /// A late answer's content is dropped, but not what it cost: until now all that was reserved counted as spent.
    fn late(&mut self, started: &ModelStarted, answer: &Answer) {
        if let Some(usage) = answer.usage {
            let (call, attempt) = (started.call, started.attempt);
            let booked = Amounts { tokens: started.reserved.tokens, ..Amounts::default() };
            self.push(Body::LateSettled(LateSettled { call, attempt, usage, booked }));
        }
    }

    /// Admits the calls of the answer, or ends them at once.
    fn plan(&mut self, model_call: CallId, plans: &[Plan]) {
        for (plan, n) in plans.iter().zip(1..) {
            let call = CallId { n, ..model_call };
            let earlier = plans.iter().zip(1..n);
            let same_as = earlier.filter(|(earlier, _)| is_made_once(earlier, plan)).map(|(_, n)| n).next();
            match plan {
                Plan::Admit { tool, intent, arguments } => self.push(Body::CallAdmitted(CallAdmitted {
                    call,
                    tool: Arc::clone(tool),
                    effect: intent.effect,
                    access: intent.access.clone(),
                    arguments: *arguments,
                    same_as,
                })),
                Plan::Refuse { end, .. } => self.end_call(call, 0, end.clone()),
            }
        }
    }

    /// The attempt failed: the next one, at the same provider or at the one behind it, or the end of the run.
    pub(super) fn model_failed(&mut self, call: CallId, attempt: Attempt, failure: &Failure) {
        if !self.is_asked(call, attempt) {
            return;
        }
        let (since, times) = match self.run().map(|run| &run.step) {
            Some(Step::Asking(asking)) => (asking.since, asking.failed_as(&failure.class) + 1),
            Some(Step::Acting(_) | Step::Said(_)) | None => (None, 1),
        };
        let spent_ms = since.map_or(0, |since| self.now.active_ms.saturating_sub(since));
        let policy = self.run().map(|run| run.spec.limits.retry).unwrap_or_default();
        let pause = policy.pause((call, attempt), failure, times, spent_ms);
        let behind = self.run().map(|run| run.link() + 1).filter(|link| self.has_link(*link));
        let fallback = behind.filter(|_| pause.is_none() && falls_back(&failure.class));
        let pause = pause.or(fallback.map(|_| 0));
        let retry_at = pause.map(|ms| self.now.at.plus_ms(ms));
        self.push(Body::ModelFailed(ModelFailed {
            call,
            attempt,
            failure: failure.clone(),
            retry_at,
            fallback,
        }));
        if retry_at.is_none() {
            self.end_run(failed(failure));
        }
    }

    fn has_link(&self, link: usize) -> bool {
        self.run().is_some_and(|run| link < run.spec.chain.len())
    }

    /// Nobody can be asked at all.
    pub(super) fn model_unavailable(&mut self, call: CallId, attempt: Attempt, failure: &Failure) {
        let wanted = self.run().is_some_and(|run| {
            run.model_call() == call && matches!(&run.step, Step::Asking(asking) if asking.attempt == attempt)
        });
        if wanted {
            self.end_run(failed(failure));
        }
    }
}

/// Whether two calls are the same one and must not be made twice.
fn is_made_once(one: &Plan, other: &Plan) -> bool {
    matches!(one, Plan::Admit { intent, .. } if intent.effect == EffectClass::Once) && one == other
}

fn failed(failure: &Failure) -> Ended {
    let outcome = match failure.class {
        FailureClass::ContentRefused => Outcome::Refused,
        FailureClass::RateLimited { .. }
        | FailureClass::Overloaded
        | FailureClass::Server
        | FailureClass::Timeout { .. }
        | FailureClass::Network
        | FailureClass::Cut
        | FailureClass::NotAnApi
        | FailureClass::Auth
        | FailureClass::QuotaExhausted { .. }
        | FailureClass::ContextTooLong { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ModelNotFound
        | FailureClass::Cancelled
        | FailureClass::Lost
        | FailureClass::Interrupted => Outcome::Failed,
    };
    Ended::because(outcome, Cause::Provider { failure: failure.clone() })
}

/// How the run ends with this answer; `None` if it goes on with the answer's calls. What was cut off is never an
/// answer, and a cut-off call never runs.
fn outcome_of(answer: &Answer) -> Option<Ended> {
    let message = &answer.message;
    match answer.finish {
        Finish::Refused => Some(Ended { outcome: Outcome::Refused, cause: None }),
        Finish::Length => Some(Ended::because(Outcome::Failed, Cause::Truncated)),
        Finish::Stop | Finish::ToolCalls if !message.calls.is_empty() => None,
        Finish::Stop | Finish::ToolCalls if message.text.trim().is_empty() => {
            Some(Ended::because(Outcome::Failed, Cause::EmptyAnswer))
        }
        Finish::Stop | Finish::ToolCalls => Some(Ended { outcome: Outcome::Completed, cause: None }),
    }
}
