use hermod_actors::{
    model::{Access, CallEnd, CallStatus, EffectClass},
    port::BadArguments,
};
use serde_json::{Value, json};

use super::{
    Settings,
    blocking::{Asker, blocking_for},
    notes,
    typed::{Site, Typed},
};
use crate::memory::{Entries, Fault, Locked, Made, Memory, Note, Order, Unfit, decide};

/// Changes what agents remember from one conversation to the next.
///
/// Idempotent by its content, and by a note of the entries that a change takes and brings, which is durable before the file
/// changes: a repetition after a crash finds its own result and leaves it.
#[derive(Debug)]
pub(super) struct MemoryTool;

impl Typed for MemoryTool {
    const NAME: &'static str = super::MEMORY;
    const DESCRIPTION: &'static str = "Changes what you remember from one conversation to the next: entries of `memory` (facts \
        about the work) and `user` (who the user is and wants). Later conversations begin with them; this one goes on with \
        those that it began with. Room is small: keep what will matter again. Returns {ok, entries, used, limit}.";
    const EFFECT: EffectClass = EffectClass::Idempotent;
    type Arguments = Order;

    fn check(order: &Order) -> Result<(), BadArguments> {
        order.check().map_err(|Unfit { field, error, hint }| BadArguments {
            field: Some(field.into()),
            error,
            hint,
        })
    }

    fn access(order: &Order, _workspace: &str, settings: &Settings) -> Access {
        let path = settings.memory.as_ref().map(|memory| memory.path(order.target));
        path.map_or_else(Access::default, |path| Access::writes(path.to_string_lossy()))
    }

    async fn run(order: Order, site: Site) -> CallEnd {
        let Some(memory) = site.settings.memory else {
            let hint = "the operator has to set `memory.enabled`";
            return CallEnd::error(CallStatus::Error, "nothing is remembered here", None, hint);
        };
        let noted = match notes::earlier(&site.shelf).await {
            Ok(noted) => noted,
            Err(error) => return notes::unkept("change", &error),
        };
        let looked = blocking_for(&site.cancel, move |asker| {
            asker.still_waits()?;
            Ok(look(memory, order, (noted, asker)))
        });
        let change = match looked.await {
            Ok(Ok(change)) => change,
            Ok(Err(end)) | Err(end) => return end,
        };
        if let Err(error) = notes::keep(&site.shelf, &change.note).await {
            return notes::unkept("change", &error);
        }
        let made = blocking_for(&site.cancel, move |asker| {
            asker.still_waits()?;
            Ok(change.make())
        });
        made.await.unwrap_or_else(|end| end)
    }
}

/// A change that was found to be possible. Nobody else changes the files meanwhile.
struct Change {
    memory: Memory,
    order: Order,
    locked: Locked,
    then: Entries,
    note: Note,
}

/// The change; else the end of the call.
fn look(memory: Memory, order: Order, (noted, asker): (Option<Note>, &Asker)) -> Result<Change, CallEnd> {
    let locked = memory.lock(|| asker.still_waits().is_ok()).map_err(|fault| faulty(&fault))?;
    let entries = locked.read(order.target).map_err(|fault| faulty(&fault))?;
    match decide(&order, &entries, (noted, memory.limit(order.target))) {
        Ok(Made::Changed(then, note)) => Ok(Change { memory, order, locked, then, note }),
        Ok(Made::Unchanged) => {
            let mut told = told(&memory, &order, &entries);
            told["unchanged"] = true.into();
            Err(CallEnd::ok(told.to_string()))
        }
        Err(unfit) => Err(unfit_for(&memory, &order, (&entries, &unfit))),
    }
}

impl Change {
    fn make(self) -> CallEnd {
        match self.locked.write(self.order.target, &self.then) {
            Ok(()) => CallEnd::ok(told(&self.memory, &self.order, &self.then).to_string()),
            Err(fault) => faulty(&fault),
        }
    }
}

fn told(memory: &Memory, order: &Order, entries: &Entries) -> Value {
    json!({
        "ok": true,
        "action": order.action,
        "target": order.target,
        "entries": entries.all(),
        "used": entries.used(),
        "limit": memory.limit(order.target),
    })
}

/// `{error, field, hint, entries: [{characters, text}], used, limit}`.
fn unfit_for(memory: &Memory, order: &Order, (entries, unfit): (&Entries, &Unfit)) -> CallEnd {
    let all = entries.all().iter();
    let all: Vec<_> = all.map(|entry| json!({"characters": entry.chars().count(), "text": entry})).collect();
    let content = json!({
        "error": unfit.error,
        "field": unfit.field,
        "hint": unfit.hint,
        "entries": all,
        "used": entries.used(),
        "limit": memory.limit(order.target),
    });
    CallEnd::new(CallStatus::Error, content.to_string())
}

fn faulty(fault: &Fault) -> CallEnd {
    let (status, hint) = match fault {
        Fault::Stopped => (CallStatus::Stopped, "call again if it is still wanted"),
        Fault::Held(_) => (CallStatus::Error, "call again; the operator has to look who holds it"),
        Fault::Unreadable { .. } | Fault::Io { .. } => {
            (CallStatus::Error, "call again; the operator has to look at the file and the disk")
        }
    };
    CallEnd::error(status, &fault.to_string(), None, hint)
}
