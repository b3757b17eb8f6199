//! Folds the records of a run to the entries of its transcript.

use std::{collections::BTreeMap, sync::Arc};

use hermod_actors::model::{Body, CallEnded, CallId, ModelAnswered, ModelRef, Record, RunId, Seq, Timestamp};

use super::entry::{Content, Entry, ToolCall};
use crate::cli::{progress::ProgressLines, terminal::Tone};

/// A call without an end so far.
#[derive(Debug, Default)]
struct OpenCall {
    tool: String,
    arguments: String,
    started_ms: Option<u64>,
    subagents: Vec<RunId>,
}

/// The fold of one run's records.
#[derive(Debug)]
pub(super) struct TranscriptFold {
    run: RunId,
    progress: ProgressLines,
    /// Models of the attempts under way, and the active time of their start.
    models: BTreeMap<CallId, (ModelRef, u64)>,
    calls: BTreeMap<CallId, OpenCall>,
    last: Timestamp,
}

impl TranscriptFold {
    pub(super) fn new(run: RunId) -> Self {
        let (models, calls) = (BTreeMap::new(), BTreeMap::new());
        Self { run, progress: ProgressLines::new(run), models, calls, last: Timestamp::default() }
    }

    /// The entries of the next record.
    pub(super) fn take(&mut self, record: &Record) -> Vec<Entry> {
        self.last = record.at;
        let is_failure = self.progress.tone(record) == Tone::Bad;
        let line = self.progress.line(record);
        // A warning stands below the line of the record.
        let (line, warning) = match line.as_deref().and_then(|line| line.split_once('\n')) {
            Some((line, warning)) if has_entry(&record.body) => {
                (Some(line.to_owned()), Some(warning.to_owned()))
            }
            _ => (line, None),
        };
        let step = |text: String, is_failure| {
            let kind = record.body.kind().name();
            Content::Step { kind, text, is_failure }
        };
        let content = match self.own_content(record, line.as_deref().unwrap_or_default()) {
            Some(content) => Some(content),
            None if has_entry(&record.body) => None,
            None => line.map(|line| step(line, is_failure)),
        };
        let warning = warning.map(|warning| step(warning, true));
        content.into_iter().chain(warning).map(|content| Entry { at: record.at, content }).collect()
    }

    /// An entry for a record that cannot be read.
    pub(super) fn unreadable(&self, seq: Seq, reason: &str) -> Entry {
        let text = format!("unreadable record {seq}: {reason}");
        Entry { at: self.last, content: Content::Step { kind: "unreadable", text, is_failure: true } }
    }

    /// The calls that have no end.
    pub(super) fn finish(self) -> Vec<Entry> {
        let at = self.last;
        let entry = |(call, open): (CallId, OpenCall)| {
            let call = ToolCall {
                call,
                tool: open.tool,
                arguments: open.arguments,
                status: None,
                result: "".into(),
                took_ms: None,
                artifact: None,
                subagents: open.subagents,
            };
            Entry { at, content: Content::Call(Box::new(call)) }
        };
        self.calls.into_iter().map(entry).collect()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds are steps, or nothing that is read")]
    fn own_content(&mut self, record: &Record, line: &str) -> Option<Content> {
        match &record.body {
            Body::RunAccepted(accepted) if accepted.run == self.run => {
                Some(Content::Task { text: Arc::clone(&accepted.input), images: accepted.images.len() })
            }
            Body::ModelStarted(started) => {
                self.models.insert(started.call, (started.model.clone(), record.active_ms));
                None
            }
            Body::ModelAnswered(answered) => Some(self.answered(answered, record.active_ms, line)),
            Body::CallAdmitted(admitted) => {
                let call = self.calls.entry(admitted.call).or_default();
                admitted.tool.as_ref().clone_into(&mut call.tool);
                if let Some(replaced) = admitted.hooks.as_ref().and_then(|hooks| hooks.arguments.as_deref()) {
                    replaced.clone_into(&mut call.arguments);
                }
                None
            }
            Body::CallStarted(started) => {
                let call = self.calls.entry(started.call).or_default();
                call.started_ms = Some(record.active_ms);
                call.subagents = started.children.iter().map(|child| child.run).collect();
                None
            }
            Body::CallEnded(ended) => Some(self.ended(ended, record.active_ms)),
            Body::ChildEnded(ended) => Some(Content::Subagent {
                run: ended.child.run,
                ended: ended.ended.clone(),
                iterations: ended.iterations,
                usage: ended.usage,
            }),
            Body::MessageSteered(steered) => Some(Content::Message { text: Arc::clone(&steered.text) }),
            Body::MessageCollected(collected) => Some(Content::Message { text: Arc::clone(&collected.text) }),
            Body::ApprovalRequested(request) => {
                Some(Content::Question { call: request.call, text: request.question.clone() })
            }
            Body::RunEnded(ended) if ended.run == self.run => {
                Some(Content::End { ended: ended.ended.clone() })
            }
            _ => None,
        }
    }

    fn answered(&mut self, answered: &ModelAnswered, now: u64, line: &str) -> Content {
        let ModelAnswered { call, message, usage, flaw, .. } = answered;
        if !answered.is_discarded() {
            for (n, requested) in (1..).zip(&message.calls) {
                let open = OpenCall {
                    tool: requested.name.clone(),
                    arguments: requested.arguments.clone(),
                    ..OpenCall::default()
                };
                self.calls.insert(CallId { n, ..*call }, open);
            }
        }
        let (model, started) = self.models.remove(call).unzip();
        Content::Answer {
            iteration: call.iteration,
            model,
            text: message.text.clone(),
            reasoning: message.reasoning.clone(),
            calls: message.calls.len(),
            usage: *usage,
            took_ms: started.map(|started| now.saturating_sub(started)),
            flaw: *flaw,
            line: line.to_owned(),
        }
    }

    fn ended(&mut self, ended: &CallEnded, now: u64) -> Content {
        let open = self.calls.remove(&ended.call).unwrap_or_default();
        let end = &ended.end;
        Content::Call(Box::new(ToolCall {
            call: ended.call,
            tool: open.tool,
            arguments: open.arguments,
            status: Some(end.status),
            result: Arc::clone(&end.content),
            took_ms: open.started_ms.map(|started| now.saturating_sub(started)),
            artifact: end.artifact.as_ref().map(|artifact| artifact.handle.clone()),
            subagents: open.subagents,
        }))
    }
}

/// Whether a record of this kind has an entry of its own, or only opens one.
const fn has_entry(body: &Body) -> bool {
    matches!(
        body,
        Body::ModelStarted(_)
            | Body::ModelAnswered(_)
            | Body::CallAdmitted(_)
            | Body::CallStarted(_)
            | Body::CallEnded(_)
    )
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{
        AssistantMessage, CallEnd, FinishReason, Incarnation, MessageSteered, Outcome, OutcomeDetail,
        RunAccepted, RunEnded, RunSpec, SessionRevived, Usage,
    };

    use super::*;

    const RUN: RunId = RunId::from_bits(1);

    fn record(active_ms: u64, body: Body) -> Record {
        Record { at: Timestamp(0), active_ms, body }
    }

    fn answered(iteration: u32, text: &str, calls: &[(&str, &str)]) -> Body {
        let calls = calls.iter().map(|(name, arguments)| hermod_actors::model::ToolCall {
            id: "x".into(),
            name: (*name).into(),
            arguments: (*arguments).into(),
        });
        let message =
            AssistantMessage { text: text.into(), calls: calls.collect(), ..AssistantMessage::default() };
        Body::ModelAnswered(Box::new(ModelAnswered {
            call: CallId { run: RUN, iteration, n: 0 },
            attempt: 1,
            message: Arc::new(message),
            finish: FinishReason::Stop,
            flaw: None,
            fallback: None,
            usage: None,
            anomaly: None,
        }))
    }

    #[test]
    fn a_run_is_read_in_the_order_in_which_it_happened() {
        let mut fold = TranscriptFold::new(RUN);
        let spec = Arc::new(RunSpec::new(vec!["p/m".parse().unwrap()], "/w"));
        let call = CallId { run: RUN, iteration: 1, n: 1 };
        let ended = OutcomeDetail { outcome: Outcome::Completed, cause: None };
        let revived = SessionRevived { incarnation: Incarnation::default(), boot: "b".into() };
        let steered = MessageSteered {
            run: RUN,
            text: "faster".into(),
            followup_run: RunId::from_bits(9),
            request_hash: None,
        };
        let bodies = vec![
            Body::RunAccepted(Box::new(RunAccepted::new(RUN, "look", spec))),
            answered(1, "I look.", &[("shell", "{}"), ("shell", "{\"n\":2}")]),
            Body::CallEnded(CallEnded::new(call, 0, CallEnd::ok("seen"))),
            Body::SessionRevived(revived),
            Body::MessageSteered(steered),
            Body::RunEnded(RunEnded {
                run: RUN,
                ended: ended.clone(),
                iterations: 1,
                usage: Usage::default(),
            }),
        ];
        let mut seen: Vec<String> = Vec::new();
        let describe = |entry: &Entry| match &entry.content {
            Content::Task { text, .. } => format!("task {text}"),
            Content::Answer { text, calls, .. } => format!("answer {text} {calls}"),
            Content::Call(call) => format!("call {} {:?} {}", call.call.n, call.status, call.result),
            Content::Message { text } => format!("message {text}"),
            Content::Step { kind, .. } => format!("step {kind}"),
            Content::End { ended } => format!("end {ended}"),
            Content::Subagent { .. } | Content::Question { .. } => "other".to_owned(),
        };
        for body in bodies {
            seen.extend(fold.take(&record(5, body)).iter().map(describe));
        }
        seen.extend(fold.finish().iter().map(describe));
        let expect = [
            "task look",
            "answer I look. 2",
            "call 1 Some(Ok) seen",
            "step session.revived",
            "message faster",
            "end completed",
            "call 2 None ",
        ];
        assert_eq!(seen, expect);
    }
}
