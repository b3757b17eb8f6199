//! The tool `memory`: changes the memory files, with an intent before each change. The edits themselves are in
//! `src/memory`.

use hermod_actors::{
    model::{Access, CallEnd, CallStatus, EffectClass},
    port::BadArguments,
};
use serde_json::{Value, json};

use super::{
    Settings,
    blocking::{CancelCheck, try_blocking},
    intent_log,
    typed_tool::{ToolContext, TypedTool},
};
use crate::memory::{
    EditError, EditIntent, EditResult, LockedMemory, MemoryEntries, MemoryError, MemoryFiles, Order, decide,
};

/// Changes the memory files that later conversations begin with.
///
/// Idempotent by its content, and by an intent with the removed and added entries, durable before the file changes. A
/// repetition after a crash recognizes its own result and keeps it.
#[derive(Debug)]
pub(super) struct MemoryTool;

impl TypedTool for MemoryTool {
    const NAME: &'static str = super::MEMORY;
    const DESCRIPTION: &'static str = "Changes what you remember from one conversation to the next: entries of `memory` (facts \
        about the work) and `user` (who the user is and wants). Later conversations begin with them; this one goes on with \
        those that it began with. Room is small: keep what will matter again. Returns {ok, entries, used, limit}.";
    const EFFECT: EffectClass = EffectClass::Idempotent;
    type Arguments = Order;

    fn check(order: &Order) -> Result<(), BadArguments> {
        order.check().map_err(|EditError { field, error, hint }| BadArguments {
            field: Some(field.into()),
            error,
            hint,
        })
    }

    fn access(order: &Order, _workspace: &str, settings: &Settings) -> Access {
        let path = settings.memory.as_ref().map(|memory| memory.path(order.target));
        path.map_or_else(Access::default, |path| Access::writes(path.to_string_lossy()))
    }

    async fn run(order: Order, site: ToolContext) -> CallEnd {
        let Some(memory) = site.settings.memory else {
            let hint = "the operator has to set `memory.enabled`";
            return CallEnd::error(CallStatus::Error, "nothing is remembered here", None, hint);
        };
        let noted = match intent_log::read_earlier_intent(&site.artifacts).await {
            Ok(noted) => noted,
            Err(error) => return intent_log::intent_not_written("change", &error),
        };
        let looked = try_blocking(&site.cancel, move |asker| {
            asker.check()?;
            Ok(prepare(memory, order, noted, asker))
        });
        let change = match looked.await {
            Ok(Ok(change)) => change,
            Ok(Err(end)) | Err(end) => return end,
        };
        if let Err(error) = intent_log::write_intent(&site.artifacts, &change.intent).await {
            return intent_log::intent_not_written("change", &error);
        }
        let made = try_blocking(&site.cancel, move |asker| {
            asker.check()?;
            Ok(change.write())
        });
        made.await.unwrap_or_else(|end| end)
    }
}

/// A possible change. The lock keeps other processes from changing the files.
struct MemoryChange {
    memory: MemoryFiles,
    order: Order,
    locked: LockedMemory,
    new_entries: MemoryEntries,
    intent: EditIntent,
}

/// Prepares the change; `Err` is the end of the call.
fn prepare(
    memory: MemoryFiles,
    order: Order,
    noted: Option<EditIntent>,
    asker: &CancelCheck,
) -> Result<MemoryChange, CallEnd> {
    let locked = memory.lock(|| asker.check().is_ok()).map_err(|fault| failed_end(&fault))?;
    let entries = locked.read(order.target).map_err(|fault| failed_end(&fault))?;
    match decide(&order, &entries, noted, memory.limit(order.target)) {
        Ok(EditResult::Changed(then, note)) => {
            Ok(MemoryChange { memory, order, locked, new_entries: then, intent: note })
        }
        Ok(EditResult::Unchanged) => {
            let mut reply = reply_json(&memory, &order, &entries);
            reply["unchanged"] = true.into();
            Err(CallEnd::ok(reply.to_string()))
        }
        Err(unfit) => Err(rejected_end(&memory, &order, &entries, &unfit)),
    }
}

impl MemoryChange {
    fn write(self) -> CallEnd {
        match self.locked.write(self.order.target, &self.new_entries) {
            Ok(()) => CallEnd::ok(reply_json(&self.memory, &self.order, &self.new_entries).to_string()),
            Err(fault) => failed_end(&fault),
        }
    }
}

fn reply_json(memory: &MemoryFiles, order: &Order, entries: &MemoryEntries) -> Value {
    json!({
        "ok": true,
        "action": order.action,
        "target": order.target,
        "entries": entries.all(),
        "used": entries.chars(),
        "limit": memory.limit(order.target),
    })
}

/// The error reply: `{error, field, hint, entries: [{characters, text}], used, limit}`.
fn rejected_end(memory: &MemoryFiles, order: &Order, entries: &MemoryEntries, unfit: &EditError) -> CallEnd {
    let all = entries.all().iter();
    let all: Vec<_> = all.map(|entry| json!({"characters": entry.chars().count(), "text": entry})).collect();
    let content = json!({
        "error": unfit.error,
        "field": unfit.field,
        "hint": unfit.hint,
        "entries": all,
        "used": entries.chars(),
        "limit": memory.limit(order.target),
    });
    CallEnd::new(CallStatus::Error, content.to_string())
}

fn failed_end(fault: &MemoryError) -> CallEnd {
    let (status, hint) = match fault {
        MemoryError::Stopped => (CallStatus::Stopped, "call again if it is still wanted"),
        MemoryError::LockHeld(_) => (CallStatus::Error, "call again; the operator has to look who holds it"),
        MemoryError::Unreadable { .. } | MemoryError::Io { .. } => {
            (CallStatus::Error, "call again; the operator has to look at the file and the disk")
        }
    };
    CallEnd::error(status, &fault.to_string(), None, hint)
}
