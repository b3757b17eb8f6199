//! What a failed attempt of a model call means, and what it means that nobody can be asked.

use std::sync::Arc;

use crate::{
    model::{
        Attempt, Body, CallId, Cause, Ended, Failure, FailureClass, ModelFailed, ModelRef, ModelWaiting,
        NotAnswered, Outcome, RunSpec, Timestamp, WhyNot,
    },
    policy::{After, Contact, Elsewhere, Past, Standing, until},
    turn::{
        Outlook,
        asking::{Asked, Asking},
        draft::Draft,
        run::Step,
    },
};

impl Draft {
    /// The model call under way.
    fn asking(&self) -> Option<(&Asking, &Arc<RunSpec>)> {
        let run = self.run()?;
        match &run.step {
            Step::Asking(asking) => Some((asking, &run.spec)),
            Step::Acting(_) | Step::Said(_) => None,
        }
    }

    /// The attempt failed: the next one, at the same model or at another of the chain, or the end of the run.
    pub(super) fn model_failed(
        &mut self,
        (call, attempt): (CallId, Attempt),
        failure: &Failure,
        outlook: &Outlook,
    ) {
        if !self.is_asked(call, attempt) {
            return;
        }
        let Some((asking, spec)) = self.asking() else { return };
        let Some(model) = asking.started().map(|started| started.model.clone()) else { return };
        let elsewhere = elsewhere(&spec.chain, (asking, &model), &outlook.links);
        let past = Past {
            times: asking.failed_as(&model, &failure.class) + 1,
            spent_ms: asking.since.map_or(0, |since| self.now.active_ms.saturating_sub(since)),
            waited_ms: asking.waited_ms,
            contact: if call.iteration > 1 { Contact::Made } else { Contact::None },
            at: self.now.at,
        };
        let retry = &spec.limits.retry;
        let after = retry.after((call, attempt), failure, past, (elsewhere, outlook.otherwise));
        let next = next_link(&spec.chain, (asking, &model), &outlook.links);
        let (retry_at, fallback) = match after {
            After::Again(ms) => (Some(self.now.at.plus_ms(ms)), None),
            After::GiveUp => match next {
                // Back to one that has failed: not without a pause, and not beyond the deadline.
                Some(link) if asking.has_tried(&spec.chain[link]) => {
                    let pause = retry.pause_before_return((call, attempt), &failure.class, past);
                    (pause.map(|ms| self.now.at.plus_ms(ms)), next.filter(|_| pause.is_some()))
                }
                Some(_) | None => (next.map(|_| self.now.at), next),
            },
            After::End => (None, None),
        };
        let failure = failure.clone();
        self.push(Body::ModelFailed(ModelFailed {
            call,
            attempt,
            failure: failure.clone(),
            retry_at,
            fallback,
        }));
        if retry_at.is_none() {
            let ends = match after {
                After::Again(_) | After::GiveUp => self.ends(&[]),
                After::End => Vec::new(),
            };
            self.end_run(failed(failure, ends));
        }
    }

    /// Nobody can be asked before a time that a provider has named: it is waited for, if it is not too late.
    pub(super) fn no_lease(&mut self, (call, attempt): (CallId, Attempt), skipped: &Arc<[NotAnswered]>) {
        let Some(run) = self.run().filter(|run| run.model_call() == call && self.may_start()) else { return };
        let Some((asking, spec)) = self.asking() else { return };
        if asking.attempt != attempt || matches!(asking.state, Asked::Started(_)) {
            return;
        }
        let (retry, now) = (run.spec.limits.retry, self.now);
        let waited_ms = asking.waited_ms + asking.pause().map_or(0, |pause| pause.uncounted_ms(now));
        let until = skipped.iter().filter_map(named);
        let until = until.filter(|until| retry.may_wait(waited_ms, until.ms_since(now.at))).min();
        if let Some(until) = until {
            let skipped = Arc::clone(skipped);
            return self.push(Body::ModelWaiting(ModelWaiting { call, attempt, until, skipped }));
        }
        // That the process ended does not say why nobody can be asked.
        let last = asking.last_failure().filter(|failure| failure.class != FailureClass::Interrupted);
        let failure = last.or_else(|| skipped.iter().map(reason).next()).cloned();
        let none = || Failure::new(FailureClass::ModelNotFound, "there is no model to ask");
        let has_more = spec.chain.len() > 1 || skipped.iter().any(|link| named(link).is_some());
        let ends = if has_more { asking.ends(&spec.chain, skipped) } else { Vec::new() };
        self.end_run(failed(failure.unwrap_or_else(none), ends));
    }

    /// What became of each link, if there are several.
    fn ends(&self, skipped: &[NotAnswered]) -> Vec<NotAnswered> {
        match self.asking() {
            Some((asking, spec)) if spec.chain.len() > 1 => asking.ends(&spec.chain, skipped),
            Some(_) | None => Vec::new(),
        }
    }
}

const fn reason(link: &NotAnswered) -> &Failure {
    match &link.why {
        WhyNot::Tried { failure, .. } | WhyNot::Skipped { failure, .. } => failure,
    }
}

const fn named(link: &NotAnswered) -> Option<Timestamp> {
    match &link.why {
        WhyNot::Skipped { until, .. } => *until,
        WhyNot::Tried { .. } => None,
    }
}

/// Whom the call could ask instead of a model that has just failed. What is not known to be closed is open.
fn elsewhere(chain: &[ModelRef], (asking, failed): (&Asking, &ModelRef), links: &[Standing]) -> Elsewhere {
    let others = others(chain, (asking, failed));
    let standings: Vec<Standing> =
        others.map(|link| links.get(link).copied().unwrap_or(Standing::Free)).collect();
    if standings.iter().copied().any(is_open) {
        return Elsewhere::Somebody;
    }
    // The model itself may be open before the failure says so, with another credential.
    let own = chain.iter().position(|model| model == failed).and_then(|link| links.get(link));
    let earliest = standings.iter().chain(own).filter_map(|standing| until(*standing)).min();
    earliest.map_or(Elsewhere::Nobody, Elsewhere::Later)
}

/// The link to go on with: the first that may answer now, one that has not failed in this call before one that has; else
/// the first that may later.
fn next_link(chain: &[ModelRef], asked: (&Asking, &ModelRef), links: &[Standing]) -> Option<usize> {
    let open = |link: &usize| links.get(*link).copied().is_none_or(is_open);
    let fresh = |link: &usize| open(link) && !asked.0.has_tried(&chain[*link]);
    others(chain, asked)
        .find(fresh)
        .or_else(|| others(chain, asked).find(open))
        .or_else(|| others(chain, asked).next())
}

/// The links that the call may ask beside the one that has just failed.
fn others<'a>(
    chain: &'a [ModelRef],
    (asking, failed): (&'a Asking, &'a ModelRef),
) -> impl Iterator<Item = usize> + 'a {
    asking.may_ask(chain).filter(move |(_, model)| *model != failed).map(|(link, _)| link)
}

const fn is_open(standing: Standing) -> bool {
    match standing {
        Standing::Free | Standing::Full | Standing::Paced(_) | Standing::Starting | Standing::Probing => true,
        Standing::Held(_) | Standing::Shut(_) | Standing::Absent => false,
    }
}

/// How a run ends that no model answers.
fn failed(failure: Failure, chain: Vec<NotAnswered>) -> Ended {
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
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ModelNotFound
        | FailureClass::Cancelled
        | FailureClass::Lost
        | FailureClass::Interrupted => Outcome::Failed,
    };
    Ended::because(outcome, Cause::Provider { failure, chain })
}
