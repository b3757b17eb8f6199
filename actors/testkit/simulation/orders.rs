//! What happens to a runtime at its time: it is told to stop, to listen, to decide; and it is struck.

use std::{sync::atomic::Ordering, time::Duration};

use futures::future::join;
use tokio::task::JoinSet;

use super::{
    clients::Clients,
    outside::Inner,
    plan::{Event, RunPlan, Who},
};
use crate::{
    Accepted, RaiseError, RunError,
    model::{CallId, Outcome, RunId, StopReason, Verdict},
    testkit::{
        Part, Strike,
        strike::{self, Struck},
    },
};

/// Longer than a model needs for an answer, in milliseconds.
const SLOW: u64 = 2_000;
/// Between two looks at what models, or persons, are asked.
const LOOK: Duration = Duration::from_millis(25);
/// Then it is given up.
const LOOKS: u32 = 400;
/// A message that is said again has another number than any fault.
const OTHERS: usize = 100;

impl Clients {
    /// Gives the orders whose time has come while nobody lived, before any session goes on.
    pub(super) async fn at_rest(&self) {
        for (at, n, event) in self.still_to_come() {
            let rests =
                matches!(event, Event::StopAtRest(_) | Event::DecideAtRest(_) | Event::RaiseAtRest(..));
            let is_idle = event.decides() && self.outside.lock().book.questions().is_empty();
            if at <= self.outside.now() && rests && !is_idle {
                self.outside.lock().book.fired.insert(n);
                self.clone().do_it(n, event).await;
            }
        }
    }

    /// Does it while sessions go on. What was let go on at rest is taken up by whoever has ordered it: nobody else does, if
    /// its session is not live, and whether it goes on may be known only later.
    pub(super) async fn do_it_meanwhile(self, n: usize, event: Event) {
        self.clone().do_it(n, event).await;
        let Event::RaiseAtRest(run, _) = event else { return };
        let Some(Accepted { session, .. }) = self.outside.lock().run(run) else { return };
        if let Err(error) = self.runtime.revive(session) {
            self.unless_terminated("revive", &error);
        }
    }

    async fn do_it(self, n: usize, event: Event) {
        let name = event.name();
        match event {
            Event::Strike(who, how) => self.strike(who, how).await,
            Event::Stop(run) => {
                let Some(run) = self.known(run, name) else { return };
                self.stop(run.run).await;
            }
            Event::StopAtRest(run) => {
                let Some(run) = self.known(run, name) else { return };
                let stopped = self.runtime.stop_at_rest(run.run, StopReason::Command).await;
                self.stopped(run.run, stopped);
            }
            Event::StopLate(run) => self.stop_late(n, run).await,
            Event::Steer(run) => self.say(n, run).await,
            Event::Again(run) => {
                let Some(run) = self.plan.run(run).filter(|run| run.keyed) else { return };
                self.outside.goes_wrong(name);
                self.outside.lock().book.handed_in.insert(run.n);
                if let Err(error) = self.submit(run).await {
                    self.unless_terminated("submit", &error);
                }
            }
            Event::Decide(verdict) => {
                for call in self.questions(n, name).await {
                    self.decide(call, verdict).await;
                }
            }
            Event::DecideAtRest(verdict) => {
                for call in self.questions(n, name).await {
                    let decided = self.runtime.decide_at_rest(call, verdict).await;
                    self.decided((call, verdict), decided.map(drop));
                }
            }
            Event::Raise(run, by) => {
                let Some(run) = self.known(run, name) else { return };
                let raised = self.runtime.raise(run.run, by).await;
                self.raised(run.run, raised.map(drop));
            }
            Event::RaiseAtRest(run, by) => {
                let Some(run) = self.known(run, name) else { return };
                let raised = self.runtime.raise_at_rest(run.run, by).await;
                self.raised(run.run, raised.map(drop));
            }
            Event::StrikeTelling(how) => self.strike_telling(how, name).await,
            Event::StopSubagent(which) => {
                let Some((_, run)) = self.outside.lock().book.subagent(which) else { return };
                self.outside.goes_wrong(name);
                self.stop(run).await;
            }
            Event::Crash(_) | Event::Suspend(_) | Event::Jump(_) | Event::Unreadable(_) => {}
        }
    }

    /// What is known of a run to which something is to be done.
    fn known(&self, run: usize, name: &'static str) -> Option<Accepted> {
        let mut inner = self.outside.lock();
        let known = inner.run(run)?;
        inner.book.wrongs.insert(name);
        Some(known)
    }

    /// What is asked, as soon as something is; what is not decided in this life is in the next.
    async fn questions(&self, n: usize, name: &'static str) -> Vec<CallId> {
        for _ in 0..LOOKS {
            {
                let mut inner = self.outside.lock();
                let questions = inner.book.questions();
                if !questions.is_empty() {
                    inner.book.fired.insert(n);
                    inner.book.wrongs.insert(name);
                    return questions;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        Vec::new()
    }

    async fn stop(&self, run: RunId) {
        self.stopped(run, self.runtime.stop(run, StopReason::Command).await);
    }

    fn stopped(&self, run: RunId, stopped: Result<(), RunError>) {
        match stopped {
            Ok(()) => drop(self.outside.lock().book.stopped.insert(run)),
            Err(error) => self.unless_terminated("stop", &error),
        }
    }

    /// Raises the limits of a run that has used them up, as often as it is planned. Whether it goes on.
    pub(super) async fn go_on_with_more(&self, plan: &RunPlan, run: RunId) -> bool {
        let Some((times, by)) = plan.more else { return false };
        let is_exhausted = {
            let inner = self.outside.lock();
            let result = inner.book.results.get(&run);
            result.is_some_and(|result| result.ended.outcome == Outcome::BudgetExhausted)
        };
        let asked = if is_exhausted { self.outside.count(format!("more {}", plan.n)) } else { usize::MAX };
        if asked >= usize::try_from(times).unwrap_or(usize::MAX) {
            return false;
        }
        let raised = self.runtime.raise(run, by).await.map(drop);
        let goes_on = raised.is_ok();
        self.raised(run, raised);
        goes_on
    }

    fn raised(&self, run: RunId, raised: Result<(), RunError>) {
        match raised {
            Ok(()) => self.outside.lock().book.raised.push(run),
            // It may be on its way to disk: who waits for the run has to look again.
            Err(RunError::NotRaised(_, RaiseError::Unknown)) => self.outside.lock().settles(),
            Err(RunError::NotRaised(..)) => {}
            Err(error) => self.unless_terminated("raise", &error),
        }
    }

    /// Waits until a model is asked for the run; then the stop and the answer both wait behind a slow commit.
    async fn stop_late(&self, n: usize, run: usize) {
        let Some(Accepted { run: id, .. }) = self.outside.lock().run(run) else { return };
        let mut looks = 0..LOOKS;
        loop {
            {
                let inner = self.outside.lock();
                if !inner.book.open().contains(&id) || looks.next().is_none() {
                    return;
                }
                if inner.asked.iter().any(|asked| asked.call.run == id && asked.ended.is_none()) {
                    break;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        self.outside.goes_wrong(Event::StopLate(run).name());
        self.process.slows.store(SLOW, Ordering::SeqCst);
        let stop = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.stop(id).await;
        };
        join(self.say(n, run), stop).await;
    }

    /// Waits until a session has something to tell others, and strikes it before that is on disk.
    async fn strike_telling(&self, how: Strike, name: &'static str) {
        self.process.slows_news.store(SLOW, Ordering::SeqCst);
        for _ in 0..LOOKS {
            let told = self.outside.lock().tells.take();
            if let Some(session) = told {
                self.outside.goes_wrong(name);
                return self.strike_part(Part::Session(session), (Who::Subagent(0), how)).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Says something to a run. Whoever is not told whether it was heard says it again, in other words, in the next life.
    async fn say(&self, n: usize, run: usize) {
        let Some(Accepted { run: id, .. }) = self.known(run, "message") else { return };
        let number = {
            let mut inner = self.outside.lock();
            let (_, times) = inner.book.unheard.entry(n).or_insert((run, 0));
            *times += 1;
            let number = n + OTHERS * (*times - 1);
            if number != n {
                inner.book.wrongs.insert("message once more");
            }
            number
        };
        match self.runtime.steer(id, format!("steer-{number}.")).await {
            Ok(steered) => self.outside.lock().book.steered.push((number, steered.run, steered.next)),
            Err(RunError::Ended(_)) => {}
            Err(error) => return self.unless_terminated("steer", &error),
        }
        self.outside.lock().book.unheard.remove(&n);
    }

    /// Says again what a life before was told, and has not confirmed.
    pub(super) fn say_again(&self, clients: &mut JoinSet<()>) {
        let unheard = self.outside.lock().book.unheard.clone();
        for (n, (run, _)) in unheard {
            let this = self.clone();
            clients.spawn(async move { this.say(n, run).await });
        }
    }

    pub(super) async fn decide(&self, call: CallId, verdict: Verdict) {
        let decided = self.runtime.decide(call, verdict).await;
        self.decided((call, verdict), decided.map(drop));
    }

    fn decided(&self, what: (CallId, Verdict), decided: Result<(), RunError>) {
        match decided {
            Ok(()) => self.outside.lock().book.decided.push(what),
            Err(RunError::NotAsked(_)) => {}
            Err(error) => self.unless_terminated("decide", &error),
        }
    }

    async fn strike(&self, who: Who, how: Strike) {
        let part = match who {
            Who::Root => Part::Root,
            Who::Persistence => Part::Persistence,
            Who::ProviderSupervisor => Part::ProviderSupervisor,
            Who::Provider => Part::Provider,
            Who::ToolExecutor => Part::ToolExecutor,
            Who::SessionSupervisor => Part::SessionSupervisor,
            Who::Subagent(which) => {
                let Some((session, _)) = self.outside.lock().book.subagent(which) else { return };
                Part::Session(session)
            }
            Who::Session(session) => {
                let Some(session) = self.outside.lock().book.session(session) else { return };
                Part::Session(session)
            }
        };
        self.process.may_end.fetch_or(matches!(who, Who::Root | Who::Persistence), Ordering::SeqCst);
        self.strike_part(part, (who, how)).await;
    }

    async fn strike_part(&self, part: Part, (who, how): (Who, Strike)) {
        // Who is dead already cannot be struck.
        if strike::try_strike(&self.runtime, part, how).await == Struck::Told {
            let mut inner = self.outside.lock();
            inner.upset();
            inner.book.wrongs.extend([who.name(), Event::Strike(who, how).name()]);
        }
    }
}

impl Inner {
    /// What is known of a run of the plan.
    fn run(&self, n: usize) -> Option<Accepted> {
        self.book.accepted.get(&n).copied()
    }
}
