//! Warns the model after a start on another boot of the machine. Data that commands wrote and the kernel had not yet
//! flushed to disk may be lost.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use crate::{
    model::{Access, BootId, CallEnded, RUNTIME_TEXT_PREFIX, Timestamp},
    turn::{
        Turn,
        active_run::{CurrentRun, LoopState},
        model_call::ModelCallState,
        tool_calls::{ActiveToolCall, ToolCallState},
    },
};

/// The kernel flushes changed pages within 30 s: `vm.dirty_expire_centisecs`.
const DIRTY_EXPIRE_MS: u64 = 30_000;

/// Times of writes that may not be on disk, and the pending note about them.
#[derive(Debug, Clone, Default)]
pub(super) struct UnsyncedWrites {
    /// End of the last call that may have written without syncing.
    last_write: Option<Timestamp>,
    /// Time of the last record.
    last_record: Timestamp,
    note: Option<Arc<str>>,
}

impl Turn {
    /// Notes the time of a record.
    pub(super) fn track_time(&mut self, at: Timestamp) {
        self.unsynced_writes.last_record = at;
    }

    /// Notes the end of a call; called before the record is folded.
    pub(super) fn track_write(&mut self, ended: &CallEnded, at: Timestamp) {
        let CurrentRun::Running(run) = &self.current else { return };
        let mut calls = run.calls().iter();
        if ended.attempt > 0 && calls.any(|call| call.id == ended.call && may_write_unsynced(call)) {
            self.unsynced_writes.last_write = Some(at);
        }
    }

    /// Prepares the note if the session is revived on another boot; called before the record is folded.
    pub(super) fn track_revival(&mut self, boot: &BootId) {
        let UnsyncedWrites { last_write: last, last_record: seen, .. } = self.unsynced_writes;
        // A started call without a recorded end may have written until the last record or later.
        let last = if self.may_write() { Some(seen) } else { last };
        let Some(last) = last.filter(|last| seen.ms_since(*last) <= DIRTY_EXPIRE_MS) else { return };
        if *self.boot == **boot {
            return;
        }
        let at = UNIX_EPOCH + Duration::from_millis(last.ms_since(Timestamp::default()));
        let at = humantime::format_rfc3339_seconds(at);
        self.unsynced_writes.note = Some(
            format!(
                "\n\n{RUNTIME_TEXT_PREFIX}the machine was started anew, perhaps after a loss of power. What shell commands \
                 wrote in the 30 s before that, the last of them at {at}, may be missing: look before you rely on it.]"
            )
            .into(),
        );
        if let CurrentRun::Running(run) = &self.current
            && matches!(
                &run.state,
                LoopState::CallingModel(ModelCallState { since: None, is_repeated: false, .. })
            )
        {
            self.show_unsynced_note();
        }
    }

    /// Whether a started call may write without syncing.
    fn may_write(&self) -> bool {
        let CurrentRun::Running(run) = &self.current else { return false };
        run.calls()
            .iter()
            .any(|call| may_write_unsynced(call) && matches!(call.state, ToolCallState::Started(..)))
    }

    /// Appends the note to what the model reads next.
    pub(super) fn show_unsynced_note(&mut self) {
        if let Some(note) = self.unsynced_writes.note.take() {
            self.history.add_note(&note);
        }
    }
}

/// Whether a call may write without syncing.
fn may_write_unsynced(call: &ActiveToolCall) -> bool {
    call.is_once() && call.access == Access::Anything
}
