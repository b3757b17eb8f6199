//! Prepares a note for the model after a start on another boot of the machine. What commands wrote, and the kernel had
//! not yet flushed to disk, may be lost then. Checks no disk and repeats no call.

use std::sync::Arc;

use crate::{
    model::{Access, Body, RUNTIME_TEXT_PREFIX, Timestamp},
    turn::tool_calls::ActiveToolCall,
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

impl UnsyncedWrites {
    /// Folds a record, before it changes the calls of the run under way. `boot` is the boot on which the calls ran.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds write nothing")]
    pub(super) fn apply(&mut self, body: &Body, at: Timestamp, calls: &[ActiveToolCall], boot: &str) {
        match body {
            Body::CallEnded(ended)
                if ended.attempt > 0
                    && calls.iter().any(|call| call.id == ended.call && may_write_unsynced(call)) =>
            {
                self.last_write = Some(at);
            }
            Body::SessionRevived(revived) if revived.boot != boot => self.on_reboot(calls),
            _ => {}
        }
        self.last_record = at;
    }

    /// Prepares the note, if calls may have written within the last seconds before the reboot.
    fn on_reboot(&mut self, calls: &[ActiveToolCall]) {
        let is_writing = |call: &ActiveToolCall| may_write_unsynced(call) && call.started().is_some();
        let seen = self.last_record;
        // A started call without a recorded end may have written until the last record or later.
        let last = if calls.iter().any(is_writing) { Some(seen) } else { self.last_write };
        let Some(last) = last.filter(|last| seen.ms_since(*last) <= DIRTY_EXPIRE_MS) else { return };
        self.note = Some(
            format!(
                "\n\n{RUNTIME_TEXT_PREFIX}the machine was started anew, perhaps after a loss of power. What shell commands \
                 wrote in the 30 s before that, the last of them at {last}, may be missing: look before you rely on it.]"
            )
            .into(),
        );
    }

    pub(super) const fn has_note(&self) -> bool {
        self.note.is_some()
    }

    pub(super) fn take_note(&mut self) -> Option<Arc<str>> {
        self.note.take()
    }
}

/// Whether a call may write without syncing.
fn may_write_unsynced(call: &ActiveToolCall) -> bool {
    call.is_once() && call.access == Access::Anything
}
