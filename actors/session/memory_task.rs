//! The task that writes the entries of a memory flush, and the reasons for which there is no flush. An entry is judged by
//! the policy like a call of the tool `memory`. A write that panics or takes too long ends like one in which all entries
//! are refused, so that the summary that waits for it is made.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use serde_json::json;
use tracing::Instrument;

use crate::{
    active_deadline::ActiveDeadline,
    model::{
        CallId, Failure, FailureClass, HookPoint, MemoryEntry, MemoryRefusal, MemorySave, MemoryTarget,
        RunSpec, UnansweredModel, UnansweredReason,
    },
    policy::MEMORY_TOOL,
    port::{CallVerdict, ProposedCall},
    redaction::redact_string,
    session::{
        SessionInternalMsg,
        tasks::{InFlightTask, TaskSpawner, send},
    },
    supervisor::RuntimeParts,
    tool_executor::judge,
    turn::{Input, PendingMemory, Turn},
};

/// Limit of a write: the files may be locked for a while.
pub(super) const SAVE_LIMIT: Duration = Duration::from_secs(30);

impl TaskSpawner {
    /// Writes the entries of this flush. A write that has begun may outlive the task; the same entries may be written
    /// again.
    pub(super) fn save_memory(&self, turn: &Turn, call: CallId) -> InFlightTask {
        let (session, parts) = (self.session.clone(), Arc::clone(&self.parts));
        let pending = turn.pending_memory(call).cloned();
        let panic_guard = self.report_panic();
        let span = tracing::info_span!("memory_flush", session = %self.id, run = %call.run, call = %call);
        let task = async move {
            let _panic_guard = panic_guard;
            let Some(pending) = pending else { return };
            let entries = pending.entries.len();
            let write = async { ActiveDeadline::after(SAVE_LIMIT).bound(write(&parts, &pending)).await };
            let mut save = match AssertUnwindSafe(write).catch_unwind().await {
                Ok(Some(save)) => save,
                Ok(None) => MemorySave::all_refused(
                    entries,
                    &format!("it was not written within {} s", SAVE_LIMIT.as_secs()),
                ),
                Err(_) => MemorySave::all_refused(entries, "it was not written: that panicked"),
            };
            save.refused.iter_mut().for_each(|refusal| redact_string(&mut refusal.reason, &*parts.redactor));
            tracing::debug!(added = save.added, refused = save.refused.len(), "remembered");
            send(&session, SessionInternalMsg::Input(Input::MemorySaved { call, save }));
        };
        InFlightTask::Wait(self.tasks.spawn(task.instrument(span)))
    }
}

async fn write(parts: &RuntimeParts, PendingMemory { spec, entries, .. }: &PendingMemory) -> MemorySave {
    let hooked = hook_objection(parts);
    let judged = entries.iter().map(|entry| match &hooked {
        Some(objection) => Err(objection.clone()),
        None => {
            policy_objection(parts, spec, entry.target, &entry.text).map_or_else(|| Ok(entry.clone()), Err)
        }
    });
    let judged: Vec<Result<MemoryEntry, String>> = judged.collect();
    let allowed: Vec<MemoryEntry> = judged.iter().filter_map(|entry| entry.as_ref().ok()).cloned().collect();
    let mut written = match allowed.is_empty() {
        true => Vec::new(),
        false => parts.memory.get().add(&spec.agent, allowed).await,
    }
    .into_iter();
    let mut save = MemorySave::default();
    for (judged, n) in judged.into_iter().zip(1..) {
        let result = match judged {
            Ok(_) => written.next().unwrap_or_else(|| Err("it was not written".into())),
            Err(objection) => Err(objection),
        };
        match result {
            Ok(true) => save.added += 1,
            Ok(false) => save.present += 1,
            Err(reason) => save.refused.push(MemoryRefusal { n, reason }),
        }
    }
    save
}

/// Why no flush is made for runs of this spec, as the reason for which its first model is not called.
pub(super) fn flush_objection(parts: &RuntimeParts, spec: &RunSpec) -> Option<UnansweredModel> {
    // The entries are not known yet. A rule about their text is applied to each before it is written.
    let all_objected = || {
        let mut objections =
            MemoryTarget::ALL.iter().map(|target| policy_objection(parts, spec, *target, "…"));
        objections.next().flatten().filter(|_| objections.all(|objection| objection.is_some()))
    };
    let objection = hook_objection(parts).or_else(all_objected)?;
    let failure = Failure::new(FailureClass::NotSent, objection);
    let model = spec.memory.as_deref()?.chain.first()?.clone();
    Some(UnansweredModel { model, reason: UnansweredReason::Skipped { until: None, failure } })
}

/// Hooks decide about calls of the tool with their arguments. A flush is no such call, so it is not made behind their back.
fn hook_objection(parts: &RuntimeParts) -> Option<String> {
    let is_asked = parts.hooks.is_asked(HookPoint::PreToolCall, Some(MEMORY_TOOL));
    is_asked.then(|| format!("hooks decide about calls of `{MEMORY_TOOL}`, and a flush is none"))
}

/// Why the policy does not allow this entry. No person is asked about one.
fn policy_objection(
    parts: &RuntimeParts,
    RunSpec { agent, workspace, .. }: &RunSpec,
    target: MemoryTarget,
    text: &str,
) -> Option<String> {
    let arguments = json!({ "action": "add", "target": target.name(), "content": text });
    let call = ProposedCall { agent, tool: MEMORY_TOOL, arguments: &arguments, workspace };
    match judge(&*parts.executor.policy, &call) {
        CallVerdict::Allow => None,
        CallVerdict::Ask(_) => Some(format!("calls of `{MEMORY_TOOL}` need an approval")),
        CallVerdict::Deny(denied) => Some(denied.error),
    }
}
