//! The tool `memory`: changes the memory files, with an intent before each change. The edits themselves are in
//! `src/memory`.

use hermod_actors::{
    model::{Access, CallEnd, CallStatus, EffectClass},
    port::BadArguments,
};
use serde_json::{Value, json};

use super::{
    Settings, intents,
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
        let Some(memory) = context.settings.memory.clone() else {
            let hint = "the operator has to set `memory.enabled`";
            return CallEnd::error(CallStatus::Error, "nothing is remembered here", None, hint);
        };
        let prepare = move |earlier, context: &ToolContext| prepare(memory, arguments, earlier, context);
        intents::change(&context, "change", prepare, MemoryChange::write).await
    }
}

/// A possible change. The lock keeps other processes from changing the files.
struct MemoryChange {
    memory: MemoryFiles,
    arguments: Order,
    locked: LockedMemory,
    new_entries: MemoryEntries,
}

/// Prepares the change; `Err` is the end of the call.
fn prepare(
    memory: MemoryFiles,
    arguments: Order,
    earlier_intent: Option<EditIntent>,
    context: &ToolContext,
) -> Result<(EditIntent, MemoryChange), CallEnd> {
    context.check_stopped()?;
    let locked = memory.lock(|| !context.cancel.is_cancelled()).map_err(|error| failed_end(&error))?;
    let entries = locked.read(arguments.target).map_err(|error| failed_end(&error))?;
    match decide(&arguments, &entries, earlier_intent, memory.limit(arguments.target)) {
        Ok(EditResult::Changed(new_entries, intent)) => {
            Ok((intent, MemoryChange { memory, arguments, locked, new_entries }))
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
    fn write(self, context: &ToolContext) -> Result<String, CallEnd> {
        context.check_stopped()?;
        let written = self.locked.write(self.arguments.target, &self.new_entries);
        written.map_err(|error| failed_end(&error))?;
        Ok(reply_json(&self.memory, &self.arguments, &self.new_entries).to_string())
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
