//! Checks the subagents of a session in its appends. Each subagent starts with its delegating call and ends once, with
//! its inbox row. No call or run ends before its subagents.

use super::{hold, world::SESSION};
use crate::{
    journal::{Append, IndexRow, SpawnedSession},
    model::{
        Amounts, AssistantMessage, Body, CallEnded, CallId, CallStarted, ChildEnded, Delegation,
        InboxMessage, NewAccount, OutcomeCause, OutcomeDetail, ParentRef, RunAccepted, RunId, RunSpec,
        StopReason, SubagentRef,
    },
    turn::{DueAction, Input},
};

/// A delegating call.
#[derive(Debug)]
struct Batch {
    call: CallId,
    in_background: bool,
    is_open: bool,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    child: SubagentRef,
    /// Its reported result.
    told: Option<String>,
}

impl Batch {
    fn is_live(&self) -> bool {
        self.members.iter().any(|member| member.told.is_none())
    }
}

#[derive(Debug, Default)]
pub(super) struct Family {
    batches: Vec<Batch>,
    /// The calls of the present answer that delegate in the background.
    in_background: Vec<CallId>,
    /// Subagents in the records of the present append: which start, which have ended, and which must be stopped.
    born: Vec<(SubagentRef, ParentRef, Delegation)>,
    ended: Vec<(CallId, SubagentRef)>,
    stopped: Vec<SubagentRef>,
    /// Tokens that subagents have spent from a run's account.
    spent: Vec<(RunId, u64)>,
}

pub(super) const ONE_CHILD: Amounts =
    Amounts { iterations: None, tokens: None, usd: None, tool_calls: None, children: Some(1) };

impl Family {
    /// Notes the calls of an accepted answer.
    pub(super) fn asked(&mut self, model_call: CallId, message: &AssistantMessage) {
        let calls = message.calls.iter().zip(1..);
        let in_background = calls.filter(|(call, _)| call.arguments.contains(r#""background":true"#));
        self.in_background = in_background.map(|(_, n)| CallId { n, ..model_call }).collect();
    }

    /// Whether a call has delegated tasks.
    pub(super) fn has(&self, call: CallId) -> bool {
        self.batches.iter().any(|batch| batch.call == call)
    }

    fn live(&self, run: RunId) -> impl Iterator<Item = (CallId, u32, SubagentRef)> {
        let of_run = self.batches.iter().filter(move |batch| batch.call.run == run);
        of_run.flat_map(|batch| {
            let members = batch.members.iter().zip(0..).filter(|(member, _)| member.told.is_none());
            members.map(|(member, n)| (batch.call, n, member.child))
        })
    }

    pub(super) fn started(&mut self, started: &CallStarted, spec: &RunSpec) -> Result<(), String> {
        let call = started.call;
        if started.children.is_empty() {
            return Ok(());
        }
        hold!(!self.has(call), "{started:?} gives its tasks away again");
        let may = spec.delegation.filter(|delegation| delegation.depth < delegation.max_depth);
        let Some(delegation) = may else { return Err(format!("{started:?} under {:?}", spec.delegation)) };
        for (child, n) in started.children.iter().zip(0..) {
            self.born.push((*child, ParentRef { session: SESSION, call, n }, delegation));
        }
        let members = started.children.iter().map(|child| Member { child: *child, told: None }).collect();
        let in_background = self.in_background.contains(&call);
        self.batches.push(Batch { call, in_background, is_open: true, members });
        let live = self.live(call.run).count();
        let most = usize::try_from(delegation.max_children).unwrap_or(usize::MAX);
        hold!(live <= most, "{live} subagents of {} live, and no more than {most} may", call.run);
        Ok(())
    }

    pub(super) fn ended(&mut self, ended: &ChildEnded) -> Result<(), String> {
        let mut batches = self.batches.iter_mut().filter(|batch| batch.call == ended.call);
        let members = batches.next().map(|batch| batch.members.iter_mut());
        let mut own = members.into_iter().flatten().filter(|member| member.child == ended.child);
        let Some(member) = own.next() else { return Err(format!("nobody has begun {ended:?}")) };
        hold!(member.told.is_none(), "{ended:?} again");
        member.told = Some(ended.result.to_string());
        self.ended.push((ended.call, ended.child));
        Ok(())
    }

    /// Checks that a call in the foreground ends with its last subagent, and that its result has the results of all of
    /// them.
    pub(super) fn call_ended(&mut self, ended: &CallEnded) -> Result<(), String> {
        let Some(batch) = self.batches.iter_mut().find(|batch| batch.call == ended.call) else {
            return Ok(());
        };
        batch.is_open = false;
        if batch.is_live() {
            hold!(batch.in_background, "{ended:?} before {batch:?}");
            return Ok(());
        }
        let last = self.ended.last();
        hold!(
            last.is_some_and(|(call, _)| *call == ended.call),
            "{ended:?} and not with its last subagent: {last:?}"
        );
        let told = batch.members.iter().filter_map(|member| member.told.as_deref());
        let mut left_out = told.filter(|told| !ended.end.content.contains(told));
        hold!(left_out.next().is_none(), "{ended:?} leaves out a result of {batch:?}");
        Ok(())
    }

    /// A run is being stopped: all its subagents are stopped, unless the cause is a limit of the budget.
    pub(super) fn stopping(&mut self, run: RunId, ended: &OutcomeDetail) {
        if !matches!(ended.cause, Some(OutcomeCause::Limit { .. })) {
            let live: Vec<SubagentRef> = self.live(run).map(|(.., child)| child).collect();
            self.stopped.extend(live);
        }
    }

    pub(super) fn run_ended(&self, run: RunId) -> Result<(), String> {
        let live = self.live(run).next();
        hold!(live.is_none(), "{run} ends before its subagent {live:?}");
        Ok(())
    }

    /// Checks an append as a whole. `taken` are the inputs of the inbox rows that it consumes.
    pub(super) fn appended(&mut self, decision: &Append, taken: &[Input]) -> Result<(), String> {
        let none = decision.deliver.is_empty() && decision.spawned.is_empty();
        hold!(none || !decision.records.is_empty(), "{decision:?} without a record");
        self.founded(decision)?;
        for (call, child) in self.ended.drain(..) {
            let says =
                |row: &Input| matches!(row, Input::ChildEnded(of) if of.call == call && of.child == child);
            hold!(taken.iter().any(says), "{child:?} of {call} has ended without a row: {taken:?}");
        }
        let stops =
            |child: &SubagentRef| InboxMessage::Stop { run: child.run, reason: StopReason::Parent }.to_json();
        let mut told: Vec<_> = self.stopped.drain(..).map(|child| (child.session, stops(&child))).collect();
        let mut sent = decision.deliver.clone();
        told.sort();
        sent.sort();
        hold!(told == sent, "{sent:?} is sent, and not {told:?}");
        let over = self.batches.iter().find(|batch| batch.is_open && !batch.is_live());
        hold!(over.is_none(), "all of {over:?} have ended, and their call has not");
        Ok(())
    }

    fn founded(&mut self, decision: &Append) -> Result<(), String> {
        let born = std::mem::take(&mut self.born);
        let opened = decision.ledger.new_accounts.iter().filter(|account| account.parent.is_some()).count();
        let counts = [born.len(), decision.spawned.len(), opened];
        hold!(counts.iter().all(|count| *count == born.len()), "begun, founded, accounts: {counts:?}");
        for (child, parent, delegation) in born {
            let mut founded = decision.spawned.iter().filter(|founded| founded.session == child.session);
            let accepted = founded.next().and_then(accepted);
            let Some(accepted) = accepted else { return Err(format!("nobody founds {child:?}")) };
            hold!((accepted.run, accepted.parent) == (child.run, Some(parent)), "{child:?} is {accepted:?}");
            let depth = accepted.spec.delegation.map(|own| own.depth);
            hold!(depth == Some(delegation.depth + 1), "{accepted:?} below {delegation:?}");
            let account = NewAccount {
                id: child.run.into(),
                parent: Some(parent.call.run.into()),
                limits: accepted.spec.limits.budget,
                owns_iterations: !delegation.shares_iterations,
            };
            hold!(decision.ledger.new_accounts.contains(&account), "{account:?}: {:?}", decision.ledger);
            let own = |index: &IndexRow| matches!(index, IndexRow::Run(row) if row.id == child.run && row.session == child.session);
            hold!(decision.index.iter().any(own), "{child:?} has no row");
        }
        Ok(())
    }

    /// Checks that exactly the live subagents are awaited.
    pub(super) fn due(&self, due: &[DueAction], run: Option<RunId>) -> Result<(), String> {
        let mut awaited: Vec<(CallId, u32)> = due.iter().filter_map(awaits).collect();
        let live = run.into_iter().flat_map(|run| self.live(run));
        let mut live: Vec<(CallId, u32)> = live.map(|(call, n, _)| (call, n)).collect();
        awaited.sort_unstable();
        live.sort_unstable();
        hold!(awaited == live, "{awaited:?} are awaited, and {live:?} live");
        Ok(())
    }

    /// Notes that a subagent has spent from a run's account.
    pub(super) fn spend(&mut self, run: RunId, tokens: u64) {
        self.spent.push((run, tokens));
    }

    /// Tokens that subagents have spent from a run's account.
    pub(super) fn spent(&self, run: RunId) -> u64 {
        self.spent.iter().filter(|(of, _)| *of == run).map(|(_, tokens)| tokens).sum()
    }
}

fn awaits(effect: &DueAction) -> Option<(CallId, u32)> {
    if let DueAction::AwaitSubagent { call, n, .. } = effect { Some((*call, *n)) } else { None }
}

/// The accepted run of a spawned session.
fn accepted(founded: &SpawnedSession) -> Option<&RunAccepted> {
    let [opened, accepted] = &founded.records[..] else { return None };
    let (Body::SessionOpened(_), Body::RunAccepted(accepted)) = (&opened.body, &accepted.body) else {
        return None;
    };
    Some(accepted)
}
