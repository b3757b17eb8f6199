//! Makes events of the records of a session, and of what streams between them.

use std::{collections::BTreeMap, sync::Arc};

use hermod_core::model::{
    ApprovalAnswered, ApprovalRequested, ApprovalScope, AsideJob, Body, CallId, CallStatus, DecisionSource,
    EventBody, ModelAnswered, ModelFailed, ModelStarted, Outcome, Record, RunAccepted, RunEnded, TodoStatus,
};

use crate::{
    event::{CallOutcome, ChatEvent, Question, TodoLine, Tone, Used},
    wrap::clean_line,
};

/// Characters of a reason that are shown.
const MAX_REASON_CHARS: usize = 400;
/// Model calls whose price is remembered: those that have not ended.
const MAX_OPEN_CALLS: usize = 1_000;

/// Reads a session from its first record on.
#[derive(Debug, Default)]
pub struct RecordReader {
    started: BTreeMap<CallId, Arc<ModelStarted>>,
}

impl RecordReader {
    /// The events of the next record.
    pub fn record(&mut self, record: &Record) -> Vec<ChatEvent> {
        self.model_record(record)
            .or_else(|| call_record(record))
            .or_else(|| run_record(record))
            .unwrap_or_default()
    }

    /// The events of a record about a model call; `None` for any other.
    #[expect(clippy::wildcard_enum_match_arm, reason = "others are no model calls")]
    fn model_record(&mut self, record: &Record) -> Option<Vec<ChatEvent>> {
        Some(match &record.body {
            Body::ModelStarted(started) => {
                self.started.insert(started.call, Arc::clone(started));
                if self.started.len() > MAX_OPEN_CALLS {
                    self.started.pop_first();
                }
                vec![ChatEvent::Asked { call: started.call, model: started.model.to_string() }]
            }
            Body::ModelAnswered(answered) => self.answered(answered),
            Body::ModelFailed(failed) => {
                let notice = failure_text(failed, record).map(|text| ChatEvent::Notice(Tone::Bad, text));
                [ChatEvent::Voided { call: failed.call }].into_iter().chain(notice).collect()
            }
            Body::ModelWaiting(waiting) => {
                let seconds = waiting.until.ms_since(record.at) / 1_000;
                let reason = waiting.skipped.first().map(|link| reason(&link.to_string()));
                let text = format!(
                    "waits {seconds} s: {}",
                    reason.unwrap_or_else(|| "no model may be asked".to_owned())
                );
                vec![ChatEvent::Notice(Tone::Action, text)]
            }
            Body::SummaryStarted(_) => vec![notice("the conversation is long, and is being summarised")],
            Body::ContextCompacted(compacted) => vec![notice(format!(
                "the model reads a shorter conversation: {} tokens before, {} now",
                compacted.tokens_before, compacted.tokens_after
            ))],
            Body::AsideStarted(started) => {
                self.started.insert(started.call, Arc::clone(started));
                Vec::new()
            }
            Body::AsideAnswered(answered) => {
                self.started.remove(&answered.call);
                let is_title = answered.call.job() == Some(AsideJob::Title) && answered.unusable.is_none();
                is_title.then(|| named(Some(&answered.text), None)).into_iter().collect()
            }
            _ => return None,
        })
    }

    fn answered(&mut self, answered: &ModelAnswered) -> Vec<ChatEvent> {
        let (call, message) = (answered.call, &answered.message);
        let started = self.started.remove(&call);
        let usage = answered.usage.unwrap_or_default();
        let spent = started.and_then(|started| started.spent(answered.usage.as_ref()).usd);
        let used =
            Used { input: usage.input_tokens, output: usage.output_tokens, nano_usd: spent.unwrap_or(0) };
        let mut events = vec![ChatEvent::Answered {
            call,
            text: message.text.clone(),
            reasoning: message.reasoning.clone(),
            is_discarded: answered.is_discarded(),
            usage: used,
        }];
        if !answered.is_discarded() {
            events.extend((1..).zip(&message.calls).map(|(n, requested)| ChatEvent::Call {
                call: CallId { n, ..call },
                tool: requested.name.clone(),
                arguments: requested.arguments.clone(),
            }));
        }
        events
    }
}

/// The events of what is no record; `None` for what the chat does not show.
pub fn streamed(body: &EventBody) -> Option<ChatEvent> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "others follow from records")]
    Some(match body {
        EventBody::TextDelta { call, attempt, delta } => {
            ChatEvent::Text { call: *call, attempt: *attempt, delta: delta.to_string() }
        }
        EventBody::ReasoningDelta { call, attempt, delta } => {
            ChatEvent::Reasoning { call: *call, attempt: *attempt, delta: delta.to_string() }
        }
        EventBody::ToolCallStreamed { call, tool, arguments, .. } => {
            ChatEvent::Call { call: *call, tool: tool.to_string(), arguments: arguments.to_string() }
        }
        EventBody::ToolProgress { call, note, .. } => {
            ChatEvent::Progress { call: *call, note: note.to_string() }
        }
        EventBody::Retry { call, .. } if call.n == 0 => ChatEvent::Voided { call: *call },
        _ => return None,
    })
}

/// The question of a record.
pub fn question(request: &ApprovalRequested) -> Question {
    Question {
        call: request.call,
        text: request.question.clone(),
        wants_text: request.wants_text,
        can_always: !request.allow_rules.is_empty(),
    }
}

/// The events of a record about a tool call; `None` for any other.
#[expect(clippy::wildcard_enum_match_arm, reason = "others are no tool calls")]
fn call_record(record: &Record) -> Option<Vec<ChatEvent>> {
    Some(vec![match &record.body {
        Body::CallStarted(started) => ChatEvent::Started { call: started.call, at_ms: record.active_ms },
        Body::CallEnded(ended) => ChatEvent::Ended {
            call: ended.call,
            end: match ended.end.status {
                CallStatus::Ok => CallOutcome::Ok,
                CallStatus::Error => CallOutcome::Failed,
                CallStatus::Stopped => CallOutcome::Stopped,
                CallStatus::NotStarted => CallOutcome::NotStarted,
                CallStatus::InDoubt => CallOutcome::InDoubt,
            },
            content: ended.end.content.to_string(),
            at_ms: record.active_ms,
        },
        Body::CallLost(_) => notice("the process of a call was lost; the call is made again"),
        Body::ApprovalRequested(request) => ChatEvent::Question(question(request)),
        Body::ApprovalAnswered(answered) => {
            ChatEvent::Decided { call: answered.call, answer: decision_text(answered) }
        }
        Body::ChildEnded(ended) => {
            let id = ended.child.run.to_string();
            let id = id.get(id.len().saturating_sub(8)..).unwrap_or_default().to_owned();
            let text =
                format!("subagent {id} {}, {} tokens", reason(&ended.ended.to_string()), ended.usage.total());
            let is_bad = ended.ended.outcome != Outcome::Completed;
            ChatEvent::Notice(if is_bad { Tone::Bad } else { Tone::Quiet }, text)
        }
        Body::TodoChanged(changed) => {
            let line = |item: &hermod_core::model::TodoItem| TodoLine {
                text: item.content.clone(),
                is_done: matches!(item.status, TodoStatus::Completed | TodoStatus::Cancelled),
                is_active: item.status == TodoStatus::InProgress,
            };
            ChatEvent::Todo(changed.items.0.iter().map(line).collect())
        }
        _ => return None,
    }])
}

/// The events of a record about a run or the session; `None` for any other.
#[expect(clippy::wildcard_enum_match_arm, reason = "others are not shown")]
fn run_record(record: &Record) -> Option<Vec<ChatEvent>> {
    Some(match &record.body {
        Body::SessionOpened(opened) => vec![named(None, Some(opened.agent.to_string()))],
        Body::RunAccepted(accepted) => accepted_events(accepted, ms_since_1970(record)),
        Body::RunReopened(reopened) => vec![
            ChatEvent::Begun { run: reopened.run, at_ms: ms_since_1970(record) },
            notice(format!("{} more: the run goes on", reopened.increase)),
        ],
        Body::BudgetRaised(raised) => vec![notice(format!("{} more for the run", raised.increase))],
        Body::RunExhausted(exhausted) => {
            vec![ChatEvent::Notice(
                Tone::Action,
                format!("{}: a last answer is asked for", exhausted.refusal),
            )]
        }
        Body::MessageSteered(steered) => {
            vec![ChatEvent::Steered { message: steered.followup_run, text: steered.text.to_string() }]
        }
        Body::MessageCollected(collected) => {
            vec![ChatEvent::Steered { message: collected.message, text: collected.text.to_string() }]
        }
        Body::MessageDropped(dropped) => {
            vec![ChatEvent::Notice(Tone::Bad, format!("a message was dropped: {}", dropped.reason))]
        }
        Body::RunVerified(verified) => {
            let miss = |miss: &hermod_core::model::ExpectationMiss| {
                ChatEvent::Notice(Tone::Bad, format!("missing: {}", reason(&miss.to_string())))
            };
            verified.misses.iter().map(miss).collect()
        }
        Body::RunEnded(ended) => vec![run_end(ended)],
        _ => return None,
    })
}

/// Zero for a clock that was before 1970.
fn ms_since_1970(record: &Record) -> u64 {
    u64::try_from(record.at.0).unwrap_or(0)
}

fn accepted_events(accepted: &RunAccepted, at_ms: u64) -> Vec<ChatEvent> {
    let spec = &accepted.spec;
    let model = spec.chain.first().map_or_else(String::new, ToString::to_string);
    let windows = spec.chain.iter().zip(&spec.profiles);
    let windows = windows.filter_map(|(model, profile)| {
        Some(ChatEvent::Window { model: model.to_string(), tokens: profile.window? })
    });
    let task = ChatEvent::Task {
        run: accepted.run,
        text: accepted.input.to_string(),
        images: accepted.images.len(),
        model,
        workspace: spec.workspace.clone(),
        at_ms,
    };
    windows.chain([task]).collect()
}

fn run_end(ended: &RunEnded) -> ChatEvent {
    let outcome = match ended.ended.outcome {
        Outcome::Stopped => "stopped".to_owned(),
        Outcome::Completed
        | Outcome::Failed
        | Outcome::TimedOut
        | Outcome::BudgetExhausted
        | Outcome::LoopDetected
        | Outcome::Refused => reason(&ended.ended.to_string()),
    };
    let hint = match ended.ended.outcome {
        Outcome::BudgetExhausted => "; /budget with amounts lets it go on",
        Outcome::Completed
        | Outcome::Failed
        | Outcome::Stopped
        | Outcome::TimedOut
        | Outcome::LoopDetected
        | Outcome::Refused => "",
    };
    let is_completed = ended.ended.outcome == Outcome::Completed;
    ChatEvent::RunEnded { run: ended.run, is_completed, outcome: format!("{outcome}{hint}") }
}

/// Why a model failed that is asked again, or another one; `None` for the last failure, which the end of the run tells.
fn failure_text(failed: &ModelFailed, record: &Record) -> Option<String> {
    let next = match (failed.retry_at?, failed.fallback) {
        (_, Some(_)) => "the next model is asked".to_owned(),
        (at, None) => format!("asked again in {} s", at.ms_since(record.at).div_ceil(1_000)),
    };
    Some(format!("the model failed: {}; {next}", reason(&failed.failure.to_string())))
}

fn decision_text(answered: &ApprovalAnswered) -> String {
    let scope = match answered.scope {
        ApprovalScope::Once => "",
        ApprovalScope::Run => " for this run",
        ApprovalScope::Always => " for always",
    };
    match answered.by {
        DecisionSource::Person => format!("{}{scope}", answered.decision),
        DecisionSource::Expiry => format!("{}: no answer in time", answered.decision),
    }
}

fn reason(text: &str) -> String {
    clean_line(text, MAX_REASON_CHARS)
}

fn notice(text: impl Into<String>) -> ChatEvent {
    ChatEvent::Notice(Tone::Quiet, text.into())
}

fn named(title: Option<&str>, agent: Option<String>) -> ChatEvent {
    ChatEvent::Named { title: title.map(str::to_owned), agent }
}
