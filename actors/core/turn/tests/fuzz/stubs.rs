//! Stubs of the subagents that the session has spawned: each ends some time in some way. Its end is a row of the inbox,
//! which is handed in until it is consumed. Rows arrive in any order, and may be of unknown senders.

use std::sync::Arc;

use super::{chance::Chance, hold, view, world::World};
use crate::{
    journal::Append,
    model::{
        Amounts, CallId, ChildEnded, InboxMessage, LedgerChange, Outcome, OutcomeDetail, Reservation, RunId,
        SessionId, Settlement, StopReason, SubagentRef, Usage,
    },
    turn::Input,
};

#[derive(Debug, Default)]
pub(super) struct Stubs {
    stubs: Vec<Stub>,
    inbox: Vec<Row>,
    /// The number of the last row.
    last: u64,
}

#[derive(Debug)]
struct Stub {
    call: CallId,
    n: u32,
    child: SubagentRef,
    is_stopped: bool,
    /// The row that reports its end.
    row: Option<u64>,
}

/// A row of the inbox.
#[derive(Debug)]
struct Row {
    id: u64,
    says: Input,
    /// Whether it was handed in during this incarnation.
    is_handed: bool,
}

impl Stubs {
    /// Makes all rows unread, as after a crash.
    pub(super) fn die(&mut self) {
        self.inbox.iter_mut().for_each(|row| row.is_handed = false);
    }

    /// Applies an append to the stubs, and returns the inputs of the rows that it consumes.
    pub(super) fn appended(&mut self, decision: &Append) -> Result<Vec<Input>, String> {
        for founded in &decision.spawned {
            hold!(self.stubs.iter().all(|stub| stub.child.session != founded.session), "{founded:?} again");
            for record in &founded.records {
                let crate::model::Body::RunAccepted(accepted) = &record.body else { continue };
                let Some(parent) = accepted.parent else { continue };
                let child = SubagentRef { session: founded.session, run: accepted.run };
                let (call, n) = (parent.call, parent.n);
                self.stubs.push(Stub { call, n, child, is_stopped: false, row: None });
            }
        }
        for (session, item) in &decision.deliver {
            let to = self.stubs.iter_mut().find(|stub| stub.child.session == *session);
            let Some(stub) = to else { return Err(format!("{item} is for nobody")) };
            let stop = InboxMessage::Stop { run: stub.child.run, reason: StopReason::Parent };
            hold!(InboxMessage::parse(item) == Ok(stop), "{stub:?} is told {item}");
            stub.is_stopped = true;
        }
        let (taken, left) = self.inbox.drain(..).partition(|row: &Row| decision.consumed.contains(&row.id));
        self.inbox = left;
        let taken: Vec<Row> = taken;
        Ok(taken.into_iter().map(|row| row.says).collect())
    }

    fn put(&mut self, says: Input) -> u64 {
        self.last += 1;
        self.inbox.push(Row { id: self.last, says, is_handed: false });
        self.last
    }

    fn live(&self) -> Vec<usize> {
        (0..self.stubs.len()).filter(|at| self.stubs[*at].row.is_none()).collect()
    }
}

impl World {
    /// A subagent ends, or an unknown sender puts a row into the inbox.
    pub(super) fn others_go_on(&mut self, chance: &mut Chance) -> Result<(), String> {
        let live = self.stubs.live();
        match chance.place(live.len()) {
            Some(at) if !chance.one_in(4) => self.child_ends(live[at], chance)?,
            Some(_) | None => {
                let says = self.strange(chance);
                self.stubs.put(says);
            }
        }
        if chance.one_in(2) { self.hand_in(chance) } else { self.decide(chance) }
    }

    /// A row that no living subagent of this session has written.
    fn strange(&self, chance: &mut Chance) -> Input {
        let known = chance.place(self.stubs.stubs.len()).map(|at| &self.stubs.stubs[at]);
        let run = self.watch.ids().pop().unwrap_or(RunId::from_bits(1));
        let call = known.map_or(CallId { run, iteration: 1, n: 1 }, |stub| stub.call);
        let nobody = SubagentRef { session: SessionId::from_bits(2), run: RunId::from_bits(3) };
        match chance.below(4) {
            0 => Input::Stop { run: Some(run), reason: StopReason::Parent },
            1 => Input::EmptyInboxRow,
            2 => ended(call, nobody, (Outcome::Completed, 0)),
            _ => {
                let child = known.map_or(nobody, |stub| stub.child);
                ended(CallId { n: call.n + 1, ..call }, child, (Outcome::Failed, 0))
            }
        }
    }

    /// Hands in a row of the inbox, sometimes one that was handed in before.
    pub(super) fn hand_in(&mut self, chance: &mut Chance) -> Result<(), String> {
        let again = chance.one_in(16);
        let rows = self.stubs.inbox.iter_mut().filter(|row| again || !row.is_handed);
        let mut rows: Vec<&mut Row> = rows.collect();
        let Some(at) = chance.place(rows.len()) else { return self.decide(chance) };
        rows[at].is_handed = true;
        let (row, says) = (rows[at].id, Box::new(rows[at].says.clone()));
        self.hear(Input::FromInbox { row, input: says }, chance)
    }

    /// Lets an awaited subagent end, if it has not, and hands in a row.
    pub(super) fn rings(&mut self, (call, n): (CallId, u32), chance: &mut Chance) -> Result<(), String> {
        let Some(at) = self.stubs.stubs.iter().position(|stub| (stub.call, stub.n) == (call, n)) else {
            return Err(format!("nobody is task {n} of {call}"));
        };
        if self.stubs.stubs[at].row.is_none() {
            self.child_ends(at, chance)?;
        }
        self.hand_in(chance)
    }

    /// A subagent ends: it returns its slot in `children`, and may have spent tokens.
    fn child_ends(&mut self, at: usize, chance: &mut Chance) -> Result<(), String> {
        let Stub { call, child, is_stopped, .. } = self.stubs.stubs[at];
        let mut outcome = chance.pick(&[
            Outcome::Completed,
            Outcome::Completed,
            Outcome::Failed,
            Outcome::Failed,
            Outcome::TimedOut,
            Outcome::Refused,
        ]);
        if is_stopped && !chance.one_in(4) {
            outcome = Outcome::Stopped;
        } else if chance.one_in(3) && !self.spends((call.run, child.run), 1 + chance.below(1_500))? {
            outcome = Outcome::BudgetExhausted;
        }
        self.watch.child_left(call.run)?;
        let number = self.stubs.last + 1;
        let row = self.stubs.put(ended(call, child, (outcome, number)));
        self.stubs.stubs[at].row = Some(row);
        self.tell(|| format!("  task {call} of {} has ended as {outcome}, in row {row}", child.run));
        Ok(())
    }

    /// Spends tokens on the accounts of the subagent and its parent; false if they do not fit the limits.
    fn spends(&mut self, (above, run): (RunId, RunId), tokens: u64) -> Result<bool, String> {
        let (account, tokens) = (run.into(), Amounts { tokens: Some(tokens), ..Amounts::default() });
        let reserve = vec![Reservation { account, amounts: tokens }];
        let fits =
            self.watch.post(&LedgerChange { reservations: reserve, ..LedgerChange::default() })?.is_none();
        if fits {
            let settle = Settlement { account, reserved: tokens, spent: tokens, refund: Amounts::default() };
            self.watch.post(&LedgerChange { settlements: vec![settle], ..LedgerChange::default() })?;
            self.watch.family.spend(above, tokens.tokens.unwrap_or(0));
        }
        Ok(fits)
    }
}

/// The row of a subagent's end.
fn ended(call: CallId, child: SubagentRef, (outcome, number): (Outcome, u64)) -> Input {
    Input::ChildEnded(Arc::new(ChildEnded {
        call,
        child,
        ended: OutcomeDetail { outcome, cause: None },
        result: view::result(number).into(),
        iterations: 1,
        usage: Usage::default(),
    }))
}
