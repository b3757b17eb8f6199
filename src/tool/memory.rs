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
    intents,
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

    fn check(arguments: &Order) -> Result<(), BadArguments> {
        arguments.check().map_err(|EditError { field, error, hint }| BadArguments {
            field: Some(field.into()),
            error,
            hint,
        })
    }

    fn access(arguments: &Order, _workspace: &str, settings: &Settings) -> Access {
        let path = settings.memory.as_ref().map(|memory| memory.path(arguments.target));
        path.map_or_else(Access::default, |path| Access::writes(path.to_string_lossy()))
    }

    async fn run(arguments: Order, context: ToolContext) -> CallEnd {
        let Some(memory) = context.settings.memory else {
            let hint = "the operator has to set `memory.enabled`";
            return CallEnd::error(CallStatus::Error, "nothing is remembered here", None, hint);
        };
        let earlier_intent = match intents::read_earlier_intent(&context.artifacts).await {
            Ok(earlier_intent) => earlier_intent,
            Err(error) => return intents::intent_not_written("change", &error),
        };
        let preparation = try_blocking(&context.cancel, move |cancel| {
            cancel.check()?;
            Ok(prepare(memory, arguments, earlier_intent, cancel))
        });
        let change = match preparation.await {
            Ok(Ok(change)) => change,
            Ok(Err(end)) | Err(end) => return end,
        };
        if let Err(error) = intents::write_intent(&context.artifacts, &change.intent).await {
            return intents::intent_not_written("change", &error);
        }
        let write = try_blocking(&context.cancel, move |cancel| {
            cancel.check()?;
            Ok(change.write())
        });
        write.await.unwrap_or_else(|end| end)
    }
}

/// A possible change. The lock keeps other processes from changing the files.
struct MemoryChange {
    memory: MemoryFiles,
    arguments: Order,
    locked: LockedMemory,
    new_entries: MemoryEntries,
    intent: EditIntent,
}

/// Prepares the change; `Err` is the end of the call.
fn prepare(
    memory: MemoryFiles,
    arguments: Order,
    earlier_intent: Option<EditIntent>,
    cancel: &CancelCheck,
) -> Result<MemoryChange, CallEnd> {
    let locked = memory.lock(|| cancel.check().is_ok()).map_err(|error| failed_end(&error))?;
    let entries = locked.read(arguments.target).map_err(|error| failed_end(&error))?;
    match decide(&arguments, &entries, earlier_intent, memory.limit(arguments.target)) {
        Ok(EditResult::Changed(new_entries, intent)) => {
            Ok(MemoryChange { memory, arguments, locked, new_entries, intent })
        }
        Ok(EditResult::Unchanged) => {
            let mut reply = reply_json(&memory, &arguments, &entries);
            reply["unchanged"] = true.into();
            Err(CallEnd::ok(reply.to_string()))
        }
        Err(error) => Err(rejected_end(&memory, &arguments, &entries, &error)),
    }
}

impl MemoryChange {
    fn write(self) -> CallEnd {
        match self.locked.write(self.arguments.target, &self.new_entries) {
            Ok(()) => CallEnd::ok(reply_json(&self.memory, &self.arguments, &self.new_entries).to_string()),
            Err(error) => failed_end(&error),
        }
    }
}

fn reply_json(memory: &MemoryFiles, arguments: &Order, entries: &MemoryEntries) -> Value {
    json!({
        "ok": true,
        "action": arguments.action,
        "target": arguments.target,
        "entries": entries.all(),
        "used": entries.chars(),
        "limit": memory.limit(arguments.target),
    })
}

/// The error reply: `{error, field, hint, entries: [{characters, text}], used, limit}`.
fn rejected_end(
    memory: &MemoryFiles,
    arguments: &Order,
    entries: &MemoryEntries,
    error: &EditError,
) -> CallEnd {
    let all = entries.all().iter();
    let all: Vec<_> = all.map(|entry| json!({"characters": entry.chars().count(), "text": entry})).collect();
    let content = json!({
        "error": error.error,
        "field": error.field,
        "hint": error.hint,
        "entries": all,
        "used": entries.chars(),
        "limit": memory.limit(arguments.target),
    });
    CallEnd::new(CallStatus::Error, content.to_string())
}

fn failed_end(error: &MemoryError) -> CallEnd {
    let (status, hint) = match error {
        MemoryError::Stopped => (CallStatus::Stopped, "call again if it is still wanted"),
        MemoryError::LockHeld(_) => (CallStatus::Error, "call again; the operator has to look who holds it"),
        MemoryError::Unreadable { .. } | MemoryError::Io { .. } => {
            (CallStatus::Error, "call again; the operator has to look at the file and the disk")
        }
    };
    CallEnd::error(status, &error.to_string(), None, hint)
}
