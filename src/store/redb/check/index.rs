//! Checks the rows beside the log, such as those of sessions, runs and accounts: whether each can be read, and agrees
//! with the records.

use hermod_actors::model::{
    Delivery, DeliveryState, MessageRow, ModelRow, RunId, RunRow, RunState, SessionId, SessionRow,
};
use redb::ReadableTable;
use serde::de::IgnoredAny;

use super::{log::NUMBERS_ROW_BYTES, pass::CheckPass};
use crate::store::redb::{
    accounts,
    damage::Damage,
    error::Result,
    schedules::{check_occurrence, check_schedule},
    tables::{
        ACCOUNTS, DEAD_LETTERS, DELIVERED, INBOX, KEYS, MESSAGES, MESSAGES_BY_SESSION, MODELS, OCCURRENCES,
        OPEN_RUNS, OUTBOX, RUNS, RUNS_BY_SESSION, SCHEDULES, SESSION_KEYS, SESSIONS, for_each_row,
        open_existing,
    },
};

impl CheckPass<'_> {
    /// Checks all index rows, accounts, models and inbox rows.
    pub(super) fn check_index(&mut self) -> Result<()> {
        for_each_row(self.txn, RUNS_BY_SESSION, |(session, run), ()| {
            self.owners.insert(RunId::from_bits(run), SessionId::from_bits(session));
            Ok(())
        })?;
        self.sessions()?;
        self.runs()?;
        self.runs_by_session()?;
        self.open_runs()?;
        self.messages()?;
        self.keys()?;
        self.accounts()?;
        self.models()?;
        self.outbox()?;
        self.schedules()?;
        self.inbox()
    }

    /// Reports damage of the run's session, or of the store if no session lists the run.
    fn add_run_damage(&mut self, run: RunId, table: &'static str, what: String) {
        self.checked.add_damage(match self.owners.get(&run) {
            Some(session) => Damage::of(*session, table, what),
            None => Damage::store(table, what),
        });
    }

    /// Whether a record of the session cannot be read.
    fn is_damaged(&self, session: SessionId) -> bool {
        self.facts.sessions.get(&session).is_some_and(|session| session.damaged)
    }

    fn accounts(&mut self) -> Result<()> {
        for_each_row(self.txn, ACCOUNTS, |id, account| {
            self.count_bytes(account.len())?;
            self.checked.counts.accounts += 1;
            if let Err(why) = accounts::decode(account) {
                let run = RunId::from_bits(id);
                self.add_run_damage(run, "accounts", format!("the account of run {run}: {why}"));
            }
            Ok(())
        })
    }

    fn inbox(&mut self) -> Result<()> {
        for_each_row(self.txn, INBOX, |(session, row), item| {
            self.count_bytes(item.len())?;
            self.checked.counts.inbox += 1;
            if let Err(why) = self.read_json::<IgnoredAny>(item) {
                let what = format!("row {row}: {why}");
                self.checked.add_damage(Damage::of(SessionId::from_bits(session), "inbox", what));
            }
            Ok(())
        })
    }

    fn models(&mut self) -> Result<()> {
        let Some(models) = open_existing(self.txn, MODELS)? else { return Ok(()) };
        for row in models.iter()? {
            let (name, row) = row?;
            self.count_bytes(row.value().len())?;
            let what = match self.read_json::<ModelRow>(row.value()) {
                Ok(known) if known.model.to_string() == name.value() => continue,
                Ok(known) => format!("the row of model {} is that of {}", name.value(), known.model),
                Err(why) => format!("the row of model {}: {why}", name.value()),
            };
            self.checked.add_damage(Damage::store("models", what));
        }
        Ok(())
    }

    /// Checks the pending messages, and those that are delivered or dead.
    fn outbox(&mut self) -> Result<()> {
        if let Some(outbox) = open_existing(self.txn, OUTBOX)? {
            for row in outbox.iter()? {
                let (key, row) = row?;
                let (target, number) = key.value();
                self.delivery("outbox", (Some(target), number), row.value())?;
            }
        }
        for (name, table) in [("delivered", DELIVERED), ("dead_letters", DEAD_LETTERS)] {
            let Some(table) = open_existing(self.txn, table)? else { continue };
            for row in table.iter()? {
                let (number, row) = row?;
                self.delivery(name, (None, number.value()), row.value())?;
            }
        }
        Ok(())
    }

    /// Checks the schedules and their occurrences; a store of an earlier version has no such tables.
    fn schedules(&mut self) -> Result<()> {
        if let Some(schedules) = open_existing(self.txn, SCHEDULES)? {
            for row in schedules.iter()? {
                let (name, row) = row?;
                self.count_bytes(row.value().len())?;
                if let Err(what) = check_schedule(name.value(), row.value()) {
                    self.checked.add_damage(Damage::store("schedules", what));
                }
            }
        }
        if let Some(occurrences) = open_existing(self.txn, OCCURRENCES)? {
            for row in occurrences.iter()? {
                let (key, row) = row?;
                self.count_bytes(row.value().len())?;
                if let Err(what) = check_occurrence(key.value(), row.value()) {
                    self.checked.add_damage(Damage::store("occurrences", what));
                }
            }
        }
        Ok(())
    }

    fn delivery(&mut self, table: &'static str, key: (Option<&str>, u64), row: &[u8]) -> Result<()> {
        self.count_bytes(row.len())?;
        let (target, number) = key;
        let what = match serde_json::from_slice::<Delivery>(row) {
            Ok(delivery) if target.is_none_or(|target| *target == *delivery.message.target) => {
                self.attachments(table, number, &delivery);
                return Ok(());
            }
            Ok(delivery) => format!("message {number} is for target {}", delivery.message.target),
            Err(why) => format!("message {number}: {why}"),
        };
        self.checked.add_damage(Damage::store(table, what));
        Ok(())
    }

    /// Checks the files of a message. Once it is delivered they may go.
    fn attachments(&mut self, table: &'static str, number: u64, delivery: &Delivery) {
        if delivery.state == DeliveryState::Delivered {
            return;
        }
        for attachment in delivery.message.attachments() {
            if let Err(why) = self.check_artifact(delivery.message.session, &attachment.artifact) {
                self.checked.add_damage(Damage::store(table, format!("message {number}: {why}")));
            }
        }
    }

    /// Messages that did not become runs of their own; a store of an earlier version has no such table.
    fn messages(&mut self) -> Result<()> {
        let Some(messages) = open_existing(self.txn, MESSAGES)? else { return Ok(()) };
        let by_session = open_existing(self.txn, MESSAGES_BY_SESSION)?;
        for row in messages.iter()? {
            let (id, row) = row?;
            self.count_bytes(row.value().len())?;
            let id = RunId::from_bits(id.value());
            let damage = match self.read_json::<MessageRow>(row.value()) {
                Err(why) => Damage::store("messages", format!("the row of message {id}: {why}")),
                Ok(known) if known.id != id => {
                    Damage::store("messages", format!("the row of message {id} is that of {}", known.id))
                }
                Ok(known) => {
                    let key = (known.session.bits(), id.bits());
                    let is_listed = match &by_session {
                        Some(by_session) => by_session.get(key)?.is_some(),
                        None => false,
                    };
                    if is_listed {
                        continue;
                    }
                    Damage::of(known.session, "messages_by_session", format!("message {id} is missing"))
                }
            };
            self.checked.add_damage(damage);
        }
        Ok(())
    }

    fn keys(&mut self) -> Result<()> {
        let runs = self.txn.open_table(RUNS)?;
        let messages = open_existing(self.txn, MESSAGES)?;
        let any_damage = self.facts.sessions.values().any(|session| session.damaged);
        for_each_row(self.txn, KEYS, |key, id| {
            self.count_bytes(key.len() + NUMBERS_ROW_BYTES)?;
            self.checked.counts.keys += 1;
            let run = RunId::from_bits(id);
            if let Some(messages) = &messages
                && messages.get(id)?.is_some()
            {
                return Ok(());
            }
            let is_known = self.facts.runs.contains_key(&run) || any_damage;
            if !is_known || runs.get(id)?.is_none() {
                let what = format!("key `{key}` stands for run {run}, which is not there");
                self.checked.add_damage(Damage::store("keys", what));
            }
            Ok(())
        })
    }

    fn sessions(&mut self) -> Result<()> {
        let txn = self.txn;
        let (rows, keys) = (txn.open_table(SESSIONS)?, txn.open_table(SESSION_KEYS)?);
        for_each_row(txn, SESSIONS, |id, row| {
            self.count_bytes(row.len())?;
            let session = SessionId::from_bits(id);
            let row = match self.read_json::<SessionRow>(row) {
                Ok(row) => row,
                Err(why) => {
                    self.checked.add_damage(Damage::of(session, "sessions", format!("its row: {why}")));
                    return Ok(());
                }
            };
            let mut wrong = |table, what: String| self.checked.add_damage(Damage::of(session, table, what));
            let known = self.facts.sessions.get(&session);
            match known.map(|known| (known.key.as_ref(), known.damaged)) {
                Some((Some(key), _)) if *key == row.key => {}
                Some((None, true)) => {}
                Some((Some(key), _)) => {
                    wrong("sessions", format!("its key is `{}`, and by its records `{key}`", row.key));
                }
                Some((None, false)) | None => {
                    wrong("sessions", "it has a row, and was never opened".to_owned());
                }
            }
            if keys.get(&*row.key)?.map(|owner| owner.value()) != Some(id) {
                wrong("session_keys", format!("its key `{}` does not stand for it", row.key));
            }
            Ok(())
        })?;
        for_each_row(txn, SESSION_KEYS, |key, id| {
            if rows.get(id)?.is_none() {
                let what = format!("key `{key}` stands for it, and it has no row");
                self.checked.add_damage(Damage::of(SessionId::from_bits(id), "session_keys", what));
            }
            Ok(())
        })?;
        for session in self.facts.sessions.keys() {
            if rows.get(session.bits())?.is_none() {
                self.checked.add_damage(Damage::of(*session, "sessions", "it has records, and no row"));
            }
        }
        Ok(())
    }

    fn runs(&mut self) -> Result<()> {
        let txn = self.txn;
        let (rows, accounts) = (txn.open_table(RUNS)?, txn.open_table(ACCOUNTS)?);
        let (open, by_session) = (txn.open_table(OPEN_RUNS)?, txn.open_table(RUNS_BY_SESSION)?);
        for_each_row(txn, RUNS, |id, row| {
            self.count_bytes(row.len())?;
            self.checked.counts.runs += 1;
            let run = RunId::from_bits(id);
            let row = match self.read_json::<RunRow>(row) {
                Ok(row) => row,
                Err(why) => {
                    self.add_run_damage(run, "runs", format!("the row of run {run}: {why}"));
                    return Ok(());
                }
            };
            let contradiction = self.contradiction(&row);
            let mut wrong =
                |table, what: String| self.checked.add_damage(Damage::of(row.session, table, what));
            if let Some(what) = contradiction {
                wrong("runs", format!("run {run}: {what}"));
            }
            if by_session.get((row.session.bits(), id))?.is_none() {
                wrong("runs_by_session", format!("run {run} is missing"));
            }
            match (open.get(id)?.is_some(), row.state == RunState::Ended) {
                (true, true) => wrong("open_runs", format!("run {run} has ended, and is listed")),
                (false, false) => wrong("open_runs", format!("run {run} is not listed")),
                (true, false) | (false, true) => {}
            }
            if accounts.get(row.account.bits())?.is_none() {
                wrong("accounts", format!("run {run} has none"));
            }
            Ok(())
        })?;
        for (run, known) in &self.facts.runs {
            if rows.get(run.bits())?.is_none() {
                let what = format!("run {run} has no row");
                self.checked.add_damage(Damage::of(known.session, "runs", what).at(known.first));
            }
        }
        Ok(())
    }

    /// How a run's row contradicts the records.
    fn contradiction(&self, row: &RunRow) -> Option<String> {
        if self.is_damaged(row.session) {
            return None;
        }
        let Some(known) = self.facts.runs.get(&row.id) else {
            return Some("it was never accepted".to_owned());
        };
        if (known.session, known.first) != (row.session, row.first) {
            return Some(format!("it was accepted by record {} of session {}", known.first, known.session));
        }
        match (&known.ended, row.state, &row.ended) {
            (Some((last, ended)), RunState::Ended, Some(of_row)) if (*last, ended) == (row.last, of_row) => {
                None
            }
            (None, RunState::Queued | RunState::Running | RunState::Parked, None) => None,
            (Some((last, ended)), ..) => Some(format!("it has ended as {ended} with record {last}")),
            (None, ..) => Some("it has not ended".to_owned()),
        }
    }

    fn runs_by_session(&mut self) -> Result<()> {
        let rows = self.txn.open_table(RUNS)?;
        for_each_row(self.txn, RUNS_BY_SESSION, |(session, id), ()| {
            self.count_bytes(NUMBERS_ROW_BYTES)?;
            let (session, run) = (SessionId::from_bits(session), RunId::from_bits(id));
            let is_known = self.facts.runs.get(&run).is_some_and(|known| known.session == session);
            let what = match rows.get(id)? {
                None => format!("run {run} has no row"),
                Some(_) if is_known || self.is_damaged(session) => return Ok(()),
                Some(_) => format!("run {run} is not of this session"),
            };
            self.checked.add_damage(Damage::of(session, "runs_by_session", what));
            Ok(())
        })
    }

    fn open_runs(&mut self) -> Result<()> {
        let rows = self.txn.open_table(RUNS)?;
        for_each_row(self.txn, OPEN_RUNS, |id, ()| {
            self.count_bytes(NUMBERS_ROW_BYTES)?;
            self.checked.counts.open_runs += 1;
            if rows.get(id)?.is_none() {
                let run = RunId::from_bits(id);
                let what = format!("run {run} has no row");
                match self.facts.runs.get(&run) {
                    Some(known) => self.checked.add_damage(Damage::of(known.session, "open_runs", what)),
                    None => self.add_run_damage(run, "open_runs", what),
                }
            }
            Ok(())
        })
    }
}
