//! Progress lines of a run, one per step: records in, text out. Also the tone of a line, and the lines that a tool has
//! printed. `display.rs` writes them.

use std::collections::{BTreeSet, HashMap};

use hermod_actors::model::{
    ApprovalAnswered, AsideJob, Body, CallEnded, CallId, CallStarted, CallStatus, ChildEnded,
    ContextCompacted, DecisionSource, Flaw, MemorySave, MemorySaved, ModelAnswered, ModelFailed,
    ModelWaiting, Outcome, Record, RetryReason, RunId, RunVerified, TodoItem, TodoList, TodoStatus,
};
use hermod_chat::CommandEnd;

use super::{
    display::Verbosity,
    format::{seconds, truncated_line},
    terminal::Tone,
    tree,
};
use crate::clock::rfc3339;

/// Characters of arguments that are shown.
const MAX_ARGUMENT_CHARS: usize = 100;
/// Lines that are shown of a command's output.
const MAX_OUTPUT_LINES: usize = 10;
/// Characters of a failure's text that are shown.
const MAX_ERROR_CHARS: usize = 300;

/// Formats the records of one session.
#[derive(Debug)]
pub(crate) struct ProgressLines {
    /// The run that the command waits for.
    run: RunId,
    /// The runs without an end so far.
    open_runs: BTreeSet<RunId>,
    /// Name and arguments of the requested tool calls.
    requested_calls: HashMap<CallId, (String, String)>,
    /// When attempts started, in milliseconds of the session's active time.
    started_at: HashMap<CallId, u64>,
    /// The runs with a reported usage anomaly; it is reported once per run.
    warned: BTreeSet<RunId>,
}

impl ProgressLines {
    /// Formats records from the point of view of one run.
    pub(crate) fn new(run: RunId) -> Self {
        Self {
            run,
            open_runs: BTreeSet::from([run]),
            requested_calls: HashMap::new(),
            started_at: HashMap::new(),
            warned: BTreeSet::new(),
        }
    }

    /// The tone of the record's line.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds are quiet, and have no line")]
    pub(crate) fn tone(&self, record: &Record) -> Tone {
        match &record.body {
            Body::ModelFailed(_) | Body::SummaryFailed(_) | Body::CallLost(_) => Tone::Bad,
            Body::ApprovalRequested(_) => Tone::Action,
            Body::ChildEnded(ended) if ended.ended.outcome != Outcome::Completed => Tone::Bad,
            Body::CallEnded(ended) => match ended.end.status {
                CallStatus::Ok => match self.command(ended).and_then(|command| command.failure()) {
                    Some(_) => Tone::Bad,
                    None => Tone::Quiet,
                },
                CallStatus::Error | CallStatus::Stopped | CallStatus::NotStarted | CallStatus::InDoubt => {
                    Tone::Bad
                }
            },
            _ => Tone::Quiet,
        }
    }

    /// Adds the next record, and returns its lines; `None` if it has none.
    pub(crate) fn line(&mut self, record: &Record) -> Option<String> {
        let now = record.active_ms;
        self.track(record);
        let line = self.step(record, now);
        let warning = self.usage_warning(&record.body).or_else(|| loop_warning(&record.body));
        match (line, warning) {
            (Some(line), Some(warning)) => Some(format!("{line}\n{warning}")),
            (line, warning) => line.or(warning),
        }
    }

    /// The warning about an implausible usage, once per run.
    fn usage_warning(&mut self, body: &Body) -> Option<String> {
        let (call, anomaly) = if let Body::ModelAnswered(answered) = body {
            (answered.call, answered.anomaly.as_deref())
        } else if let Body::SummaryAnswered(answered) | Body::AsideAnswered(answered) = body {
            (answered.call, answered.anomaly.as_deref())
        } else if let Body::ModelLate(late) = body {
            (late.call, late.anomaly.as_deref())
        } else if let Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed) =
            body
        {
            (failed.call, failed.failure.anomaly.as_deref())
        } else {
            return None;
        };
        let anomaly = anomaly.filter(|_| self.warned.insert(call.run))?;
        Some(format!(
            "usage     not believed: {anomaly}; what was reserved is booked instead, for each such answer (`hermod providers \
             status` counts them)"
        ))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds are quiet, and have no line")]
    fn step(&mut self, record: &Record, now: u64) -> Option<String> {
        match &record.body {
            // Without an open run nothing is resumed: an idle session gets its next task.
            Body::SessionRevived(_) if self.open_runs.is_empty() => None,
            Body::SessionRevived(_) => Some("session   taken up again where it was".into()),
            Body::RunStopping(stopping) if stopping.run == self.run => {
                Some(format!("stopping  {}", stopping.ended))
            }
            Body::RunEnded(ended) if ended.run != self.run => {
                Some(format!("run       {} of this session ended: {}", ended.run, ended.ended))
            }
            Body::ModelStarted(started) => {
                self.started_at.insert(started.call, now);
                let suffix = attempt_suffix(started.attempt);
                Some(format!("model {}   asks {}{suffix}", started.call.iteration, started.model))
            }
            Body::ModelAnswered(answered) => Some(self.answered(answered, now)),
            Body::ModelFailed(failed) => Some(format_failure(failed, record)),
            Body::ContextCompacted(_)
            | Body::SummaryStarted(_)
            | Body::SummaryAnswered(_)
            | Body::SummaryFailed(_) => compaction_line(&record.body),
            Body::AsideStarted(_) | Body::AsideAnswered(_) | Body::AsideFailed(_) | Body::MemorySaved(_) => {
                flush_line(&record.body)
            }
            Body::ModelWaiting(waiting) => Some(format_wait(waiting, record)),
            Body::CallStarted(started) => Some(self.started(started, now)),
            Body::CallEnded(ended) => Some(self.ended(ended, now)),
            Body::CallLost(lost) => Some(format!("{} {}", self.tool(lost.call), retry_reason(lost.reason))),
            Body::ApprovalRequested(request) => {
                let (call, until) = (request.call, rfc3339(request.expires_at));
                let question = truncated_line(&request.question, MAX_ERROR_CHARS);
                let answers = if request.wants_text {
                    format!("`hermod approvals answer {call} TEXT`")
                } else {
                    format!("`hermod approvals allow {call}` or `hermod approvals deny {call}`")
                };
                Some(format!("asks      {question}\nasks      {answers}, until {until}"))
            }
            Body::ApprovalAnswered(answered) => {
                Some(format!("{} {}", self.tool(answered.call), format_decision(answered)))
            }
            Body::RunExhausted(exhausted) => {
                Some(format!("budget    {}: a last answer is asked for, if that fits", exhausted.refusal))
            }
            Body::RunReopened(reopened) => {
                Some(format!("budget    {} more: the run goes on, leg {}", reopened.increase, reopened.leg))
            }
            Body::BudgetRaised(raised) => Some(format!("budget    {} more", raised.increase)),
            Body::MessageSteered(steered) => {
                Some(format!("steered   {}", truncated_line(&steered.text, MAX_ERROR_CHARS)))
            }
            Body::RunVerified(verified) => Some(format_check(verified)),
            Body::TodoChanged(changed) => Some(format_todo(&changed.items)),
            Body::ChildEnded(ended) => Some(format_child_end(ended)),
            _ => None,
        }
    }

    /// Tracks the open runs and the names of calls.
    fn track(&mut self, record: &Record) {
        if let Body::RunAccepted(accepted) = &record.body {
            self.open_runs.insert(accepted.run);
        } else if let Body::RunReopened(reopened) = &record.body {
            self.open_runs.insert(reopened.run);
        } else if let Body::RunEnded(ended) = &record.body {
            self.open_runs.remove(&ended.run);
        } else if let Body::CallAdmitted(admitted) = &record.body
            && let Some((tool, arguments)) = self.requested_calls.get_mut(&admitted.call)
        {
            // The tool's own name; the model's may have been repaired.
            admitted.tool.as_ref().clone_into(tool);
            if let Some(replaced) = admitted.hooks.as_ref().and_then(|hooks| hooks.arguments.as_deref()) {
                replaced.clone_into(arguments);
            }
        }
    }

    fn answered(&mut self, answered: &ModelAnswered, now: u64) -> String {
        let call = answered.call;
        for (n, requested) in (1..).zip(&answered.message.calls) {
            self.requested_calls
                .insert(CallId { n, ..call }, (requested.name.clone(), requested.arguments.clone()));
        }
        let took = self.took(call, now);
        let tokens = answered.usage.map_or_else(String::new, |usage| {
            format!(", {} tokens read, {} written", usage.input_tokens, usage.output_tokens)
        });
        let calls = match answered.message.calls.len() {
            0 => String::new(),
            1 => ", 1 tool call".into(),
            calls => format!(", {calls} tool calls"),
        };
        format!("model {}   answered{took}{tokens}{calls}{}", call.iteration, format_flaw(answered))
    }

    fn started(&mut self, started: &CallStarted, now: u64) -> String {
        self.started_at.insert(started.call, now);
        let arguments = self.requested_calls.get(&started.call).map_or("", |(_, arguments)| arguments);
        let children: Vec<String> = started.children.iter().map(|child| tree::id_suffix(child.run)).collect();
        let children = match &children[..] {
            [] => String::new(),
            [one] => format!(", subagent {one}"),
            many => format!(", subagents {}", many.join(" ")),
        };
        let (tool, suffix) = (self.tool(started.call), attempt_suffix(started.attempt));
        format!("{tool} {}{suffix}{children}", truncated_line(arguments, MAX_ARGUMENT_CHARS))
    }

    /// Output lines of this record's call, limited by the verbosity.
    pub(crate) fn output(&self, record: &Record, verbosity: Verbosity) -> Vec<String> {
        let Body::CallEnded(ended) = &record.body else { return Vec::new() };
        let command = self.command(ended);
        let max_lines = match (verbosity, &command) {
            (Verbosity::Off, _) | (Verbosity::On, None) => return Vec::new(),
            (Verbosity::On, Some(_)) => MAX_OUTPUT_LINES,
            (Verbosity::Full, _) => usize::MAX,
        };
        let lines: Vec<&str> = match &command {
            Some(command) => command.stdout.lines().chain(command.stderr.lines()).collect(),
            None => ended.end.content.lines().collect(),
        };
        let left_out = lines.len().saturating_sub(max_lines);
        let more = (left_out > 0).then(|| format!("[{left_out} lines before]"));
        more.into_iter().chain(lines[left_out..].iter().map(ToString::to_string)).collect()
    }

    fn ended(&mut self, ended: &CallEnded, now: u64) -> String {
        let took = self.took(ended.call, now);
        let (tool, end) = (self.tool(ended.call), &ended.end);
        if let Some(command) = self.command(ended) {
            return format!("{tool} {}", format_command_end(&command, end.status, &took));
        }
        let error = match end.status {
            CallStatus::Ok => String::new(),
            CallStatus::Error | CallStatus::Stopped | CallStatus::NotStarted | CallStatus::InDoubt => {
                format!(": {}", truncated_line(&end.content, MAX_ERROR_CHARS))
            }
        };
        format!("{tool} {}{took}{error}", status_name(end.status))
    }

    /// The command of the call, if it is one of the `shell` tool.
    fn command(&self, ended: &CallEnded) -> Option<CommandEnd> {
        let (tool, _) = self.requested_calls.get(&ended.call)?;
        CommandEnd::parse(tool, &ended.end.content)
    }

    fn tool(&self, call: CallId) -> String {
        let name = self.requested_calls.get(&call).map_or("?", |(name, _)| name);
        format!("tool {}.{}  {}", call.iteration, call.n, truncated_line(name, MAX_ARGUMENT_CHARS))
    }

    fn took(&mut self, call: CallId, now: u64) -> String {
        let start = self.started_at.remove(&call);
        start.map_or_else(String::new, |start| format!(" in {}", seconds(now.saturating_sub(start))))
    }
}

/// The warning of a repetition that the model gets with this record.
fn loop_warning(body: &Body) -> Option<String> {
    let Body::CallEnded(CallEnded { repetition: Some(repetition), .. }) = body else { return None };
    let next = if repetition.ends_run() { "the run ends" } else { "the model is warned" };
    Some(format!("loop      {}; {next}", truncated_line(&repetition.to_string(), MAX_ERROR_CHARS)))
}

/// How a command ended. A failed one has the exit code or the signal, and its last printed line.
fn format_command_end(command: &CommandEnd, status: CallStatus, took: &str) -> String {
    let failure = command.failure();
    let outcome = match (&failure, status) {
        (Some(_), CallStatus::Stopped) | (None, _) => status_name(status),
        (Some(failure), _) => failure,
    };
    let last = failure.as_ref().and_then(|_| command.last_line());
    let last = last.map_or_else(String::new, |line| format!(": {}", truncated_line(line, MAX_ERROR_CHARS)));
    format!("{outcome}{took}{last}")
}

const fn status_name(status: CallStatus) -> &'static str {
    match status {
        CallStatus::Ok => "ok",
        CallStatus::Error => "error",
        CallStatus::Stopped => "stopped",
        CallStatus::NotStarted => "not started",
        CallStatus::InDoubt => "in doubt",
    }
}

/// The flaw of an answer, and the recovery.
fn format_flaw(answered: &ModelAnswered) -> String {
    let (problem, next) = match answered.flaw {
        None => return String::new(),
        Some(Flaw::UnknownTools) => return "; no such tool".into(),
        Some(Flaw::Malformed) => ("arguments are not JSON", "asked again"),
        Some(Flaw::Truncated) => ("cut off within a call", "asked again"),
        Some(Flaw::Partial) => ("cut off", "asked to continue"),
        Some(Flaw::EmptyAfterTool) => ("nothing said", "told to go on"),
        Some(Flaw::ReasoningOnly) => ("only thought", "asked to go on from there"),
        Some(Flaw::Empty) => ("nothing said", "asked again"),
        Some(Flaw::Refused) => ("refused", "asked again"),
        Some(Flaw::Silent) => ("no reply", "asked to answer"),
    };
    let next = if answered.fallback.is_some() { "the next of the chain is asked" } else { next };
    format!("; {problem}, {next}")
}

/// The failure of an attempt, and what follows.
pub(crate) fn format_failure(failed: &ModelFailed, record: &Record) -> String {
    let next = match (failed.retry_at, failed.fallback) {
        (None, _) => "; not asked again".into(),
        (Some(_), Some(_)) => "; the next of the chain is asked".into(),
        (Some(at), None) => format!("; asked again in {}", seconds(at.ms_since(record.at))),
    };
    let failure = truncated_line(&failed.failure.to_string(), MAX_ERROR_CHARS);
    format!("model {}   attempt {} failed: {failure}{next}", failed.call.iteration, failed.attempt)
}

/// How long a model call waits, and for what.
pub(crate) fn format_wait(waiting: &ModelWaiting, record: &Record) -> String {
    let skipped: Vec<String> =
        waiting.skipped.iter().map(|link| truncated_line(&link.to_string(), MAX_ERROR_CHARS)).collect();
    let wait = seconds(waiting.until.ms_since(record.at));
    format!("model {}   waits {wait}: {}", waiting.call.iteration, skipped.join("; "))
}

/// How a subagent ended; its id is shortened as in `hermod tree`.
fn format_child_end(ended: &ChildEnded) -> String {
    let ChildEnded { child, ended, iterations, usage, .. } = ended;
    let (id, tokens) = (tree::id_suffix(child.run), usage.total());
    format!(
        "subagent  {id} {}: iterations {iterations}, tokens {tokens}",
        truncated_line(&ended.to_string(), MAX_ERROR_CHARS)
    )
}

/// The progress of the model's to-do list, and its current item.
fn format_todo(list: &TodoList) -> String {
    let has_status = |status| move |item: &&TodoItem| item.status == status;
    let (all, done) = (list.0.len(), list.0.iter().filter(has_status(TodoStatus::Completed)).count());
    let current = list.0.iter().find(has_status(TodoStatus::InProgress));
    let current = current.map_or_else(String::new, |item| {
        format!(", now {}", truncated_line(&item.content, MAX_ARGUMENT_CHARS))
    });
    format!("todo      {done} of {all} done{current}")
}

/// What the check of the run's expectations has found.
fn format_check(verified: &RunVerified) -> String {
    let misses = verified.misses.iter();
    let lines: Vec<String> = misses
        .map(|miss| format!("missing   {}", truncated_line(&miss.to_string(), MAX_ERROR_CHARS)))
        .collect();
    if lines.is_empty() { "checked   all that was expected holds".into() } else { lines.join("\n") }
}

fn retry_reason(reason: RetryReason) -> &'static str {
    match reason {
        RetryReason::Lost => "lost, is started again",
        RetryReason::Interrupted => "lost with its process, is started again",
        RetryReason::NeverStarted => "lost before it began, is started again",
        RetryReason::InDoubt => "lost and in doubt, is started again",
    }
}

fn format_decision(answered: &ApprovalAnswered) -> String {
    match answered.by {
        DecisionSource::Person => answered.decision.to_string(),
        DecisionSource::Expiry => format!("{}: no answer in time", answered.decision),
    }
}

fn attempt_suffix(attempt: u32) -> String {
    if attempt > 1 { format!(" (attempt {attempt})") } else { String::new() }
}

/// The line about a compaction or a summary.
fn compaction_line(body: &Body) -> Option<String> {
    if let Body::ContextCompacted(compacted) = body {
        let ContextCompacted { method, tokens_before, tokens_after, waited_ms, .. } = &**compacted;
        let waited = seconds(*waited_ms);
        return Some(format!(
            "view      {}: {tokens_before} tokens before, {tokens_after} now, waited {waited}",
            method.name()
        ));
    }
    if let Body::SummaryStarted(started) = body {
        return Some(format!(
            "summary   asks {}{}",
            started.started.model,
            attempt_suffix(started.started.attempt)
        ));
    }
    if let Body::SummaryFailed(failed) = body {
        return Some(format!("summary   failed: {}", failed.failure));
    }
    let Body::SummaryAnswered(answered) = body else { return None };
    answered.unusable.map(|reason| format!("summary   of no use: {}", reason.name()))
}

/// The line about a memory flush; calls for other jobs are quiet.
fn flush_line(body: &Body) -> Option<String> {
    let is_flush = |call: CallId| call.job() == Some(AsideJob::Memory);
    if let Body::AsideStarted(started) = body {
        let suffix = attempt_suffix(started.attempt);
        return is_flush(started.call).then(|| format!("memory    asks {}{suffix}", started.model));
    }
    if let Body::AsideFailed(failed) = body {
        return is_flush(failed.call).then(|| format!("memory    failed: {}", failed.failure));
    }
    if let Body::AsideAnswered(answered) = body {
        let unusable = answered.unusable.filter(|_| is_flush(answered.call));
        return unusable.map(|reason| format!("memory    of no use: {}", reason.name()));
    }
    let Body::MemorySaved(MemorySaved { save: MemorySave { added, present, refused }, .. }) = body else {
        return None;
    };
    let known = (*present > 0).then(|| format!("{present} known already"));
    let refused = refused.first().map(|first| {
        let reason = truncated_line(&first.reason, MAX_ERROR_CHARS);
        format!("{} refused: {reason}", refused.len())
    });
    let parts: Vec<_> = [Some(format!("{added} added")), known, refused].into_iter().flatten().collect();
    Some(format!("memory    {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hermod_actors::model::{
        AccountId, AssistantMessage, BudgetRefusal, CallEnd, Dimension, ExpectationMiss, Failure,
        FailureClass, FinishReason, Incarnation, Outcome, OutcomeDetail, Repetition, RepetitionPattern,
        RunEnded, RunExhausted, SessionRevived, Timestamp, ToolCall, Usage, UsageAnomaly, UsageAnomalyKind,
    };

    use super::*;

    const RUN: RunId = RunId::from_bits(1);
    const MODEL: CallId = CallId { run: RUN, iteration: 2, n: 0 };
    const TOOL: CallId = CallId { run: RUN, iteration: 2, n: 1 };

    #[track_caller]
    fn check(bodies: Vec<Body>, expect: &[Option<&str>]) {
        let mut progress = ProgressLines::new(RUN);
        let records = (0..).map(|n| n * 1500).zip(bodies);
        let lines: Vec<_> = records
            .map(|(active_ms, body)| progress.line(&Record { at: Timestamp(0), active_ms, body }))
            .collect();
        assert_eq!(lines.iter().map(Option::as_deref).collect::<Vec<_>>(), expect);
    }

    fn answered() -> Body {
        let arguments = "{\"command\":\"ls\n-l\"}".into();
        let calls = vec![ToolCall { id: "c".into(), name: "shell".into(), arguments }];
        Body::ModelAnswered(Box::new(ModelAnswered {
            call: MODEL,
            attempt: 1,
            message: Arc::new(AssistantMessage { calls, ..AssistantMessage::default() }),
            finish: FinishReason::ToolCalls,
            flaw: None,
            fallback: None,
            usage: Some(Usage { input_tokens: 12, output_tokens: 3, ..Usage::default() }),
            anomaly: None,
        }))
    }

    fn started(attempt: u32) -> Body {
        let incarnation = Incarnation::default();
        Body::CallStarted(CallStarted {
            call: TOOL,
            attempt,
            incarnation,
            boot: "b".into(),
            children: Arc::default(),
        })
    }

    #[test]
    fn a_tool_call_is_told_from_what_the_model_asked() {
        let end = CallEnd::new(CallStatus::Ok, "secret");
        let ended = Body::CallEnded(CallEnded::new(TOOL, 1, end));
        check(
            vec![answered(), started(1), ended],
            &[
                Some("model 2   answered, 12 tokens read, 3 written, 1 tool call"),
                Some("tool 2.1  shell {\"command\":\"ls -l\"}"),
                Some("tool 2.1  shell ok in 1.5 s"),
            ],
        );
    }

    #[test]
    fn a_command_that_failed_is_not_ok() {
        let check_end = |status, content: &str, expect: &str, tone| {
            let end = CallEnd::new(status, content);
            let ended = Body::CallEnded(CallEnded::new(TOOL, 1, end));
            let line = format!("tool 2.1  shell {expect}");
            let mut progress = ProgressLines::new(RUN);
            let record = |body| Record { at: Timestamp(0), active_ms: 0, body };
            assert_eq!(progress.line(&record(answered())).map(drop), Some(()));
            assert_eq!(progress.tone(&record(ended.clone())), tone, "{expect}");
            check(
                vec![answered(), started(1), ended],
                &[
                    Some("model 2   answered, 12 tokens read, 3 written, 1 tool call"),
                    Some("tool 2.1  shell {\"command\":\"ls -l\"}"),
                    Some(&line),
                ],
            );
        };
        let end = |code: &str, signal: &str, timed_out: bool| {
            format!(
                r#"{{"exit_code":{code},"signal":{signal},"timed_out":{timed_out},"stdout":"","stderr":"no\u200b\n"}}"#
            )
        };
        check_end(CallStatus::Ok, &end("0", "null", false), "ok in 1.5 s", Tone::Quiet);
        check_end(CallStatus::Ok, &end("1", "null", false), "exit 1 in 1.5 s: no<U+200B>", Tone::Bad);
        let killed = "killed by SIGKILL in 1.5 s: no<U+200B>";
        check_end(CallStatus::Ok, &end("null", "9", false), killed, Tone::Bad);
        let late = "timed out in 1.5 s: no<U+200B>";
        check_end(CallStatus::Error, &end("null", "9", true), late, Tone::Bad);
        let stopped = "stopped in 1.5 s: no<U+200B>";
        check_end(CallStatus::Stopped, &end("null", "15", false), stopped, Tone::Bad);
        check_end(CallStatus::Error, "{\"error\":\"x\"}", "error in 1.5 s: {\"error\":\"x\"}", Tone::Bad);
    }

    #[test]
    fn a_repetition_is_told_behind_the_call() {
        let check = |times, next: &str| {
            let repetition =
                Repetition { pattern: RepetitionPattern::SameResult, tool: "shell".into(), times };
            let ended = CallEnded::new(TOOL, 1, CallEnd::ok("x"));
            let record = Body::CallEnded(CallEnded { repetition: Some(repetition), ..ended });
            let line = format!(
                "tool 2.1  shell ok\nloop      `shell` was called {times} times with the same arguments and the same \
                 result; {next}"
            );
            let mut progress = ProgressLines::new(RUN);
            progress.line(&Record { at: Timestamp(0), active_ms: 0, body: answered() });
            assert_eq!(progress.line(&Record { at: Timestamp(0), active_ms: 0, body: record }), Some(line));
        };
        check(3, "the model is warned");
        check(5, "the run ends");
    }

    #[test]
    fn what_a_command_has_printed_is_shown_as_far_as_it_is_wanted() {
        let mut progress = ProgressLines::new(RUN);
        let record = |body| Record { at: Timestamp(0), active_ms: 0, body };
        assert!(progress.line(&record(answered())).is_some());
        let stdout: String = (1..=12).map(|n| n.to_string() + "\\n").collect();
        let content =
            format!(r#"{{"exit_code":0,"signal":null,"timed_out":false,"stdout":"{stdout}","stderr":"e"}}"#);
        let end = |call, content: &str| {
            let end = CallEnd::new(CallStatus::Ok, content);
            record(Body::CallEnded(CallEnded::new(call, 1, end)))
        };
        let lines = |verbosity| progress.output(&end(TOOL, &content), verbosity);
        assert_eq!(lines(Verbosity::Off), [""; 0]);
        assert_eq!(
            lines(Verbosity::On),
            ["[3 lines before]", "4", "5", "6", "7", "8", "9", "10", "11", "12", "e"]
        );
        assert_eq!(lines(Verbosity::Full).len(), 13);
        let other = end(CallId { n: 2, ..TOOL }, "one\ntwo");
        assert_eq!(progress.output(&other, Verbosity::On), [""; 0]);
        assert_eq!(progress.output(&other, Verbosity::Full), ["one", "two"]);
    }

    #[test]
    fn an_answer_that_is_not_plain_is_told_with_what_is_done_about_it() {
        let flawed = |flaw, fallback| {
            let Body::ModelAnswered(answered) = answered() else { unreachable!("it is an answer") };
            let message = Arc::default();
            Body::ModelAnswered(Box::new(ModelAnswered {
                message,
                flaw: Some(flaw),
                fallback,
                usage: None,
                anomaly: None,
                ..*answered
            }))
        };
        check(
            vec![flawed(Flaw::Partial, None), flawed(Flaw::Empty, None), flawed(Flaw::Empty, Some(1))],
            &[
                Some("model 2   answered; cut off, asked to continue"),
                Some("model 2   answered; nothing said, asked again"),
                Some("model 2   answered; nothing said, the next of the chain is asked"),
            ],
        );
    }

    #[test]
    fn what_went_wrong_is_told_with_its_reason() {
        let end = CallEnd::new(CallStatus::InDoubt, "who knows");
        let ended = Body::CallEnded(CallEnded::new(TOOL, 1, end));
        check(vec![ended], &[Some("tool 2.1  ? in doubt: who knows")]);
        let failure = Failure::new(FailureClass::Overloaded, "try\nlater");
        let failed = |retry_at| {
            Body::ModelFailed(ModelFailed {
                call: MODEL,
                attempt: 1,
                failure: failure.clone(),
                retry_at,
                fallback: None,
            })
        };
        check(
            vec![failed(Some(Timestamp(2500))), failed(None)],
            &[
                Some("model 2   attempt 1 failed: overloaded: try later; asked again in 2.5 s"),
                Some("model 2   attempt 1 failed: overloaded: try later; not asked again"),
            ],
        );
    }

    #[test]
    fn a_budget_that_is_used_up_is_told() {
        let (account, dimension) = (AccountId::from(RUN), Dimension::Iterations);
        let refusal = BudgetRefusal { account, dimension, limit: 10, spent: 10, reserved: 0, needed: None };
        let line = format!(
            "budget    iterations limit of 10 reached: 10 spent, 0 reserved, account {account}: a last answer is asked for, if that fits"
        );
        check(vec![Body::RunExhausted(RunExhausted { run: RUN, refusal })], &[Some(&line)]);
    }

    #[test]
    fn a_check_tells_what_misses() {
        let call = CallId { run: RUN, iteration: 1, n: 0 };
        let verified = |misses| Body::RunVerified(RunVerified { call, misses });
        let miss = |n, expected: &str| ExpectationMiss {
            n,
            expected: expected.into(),
            reason: "it is empty".into(),
        };
        check(
            vec![verified(Vec::new()), verified(vec![miss(0, "file a"), miss(2, "file c")])],
            &[
                Some("checked   all that was expected holds"),
                Some("missing   file a: it is empty\nmissing   file c: it is empty"),
            ],
        );
    }

    #[test]
    fn only_the_end_of_another_run_is_told_here() {
        let ended = |run| {
            let ended = OutcomeDetail { outcome: Outcome::Completed, cause: None };
            Body::RunEnded(RunEnded { run, ended, iterations: 1, usage: Usage::default() })
        };
        let other = RunId::from_bits(2);
        let line = format!("run       {other} of this session ended: completed");
        check(vec![ended(RUN), ended(other)], &[None, Some(&line)]);
        let revived =
            || Body::SessionRevived(SessionRevived { incarnation: Incarnation::default(), boot: "b".into() });
        let again = Some("session   taken up again where it was");
        check(vec![revived(), ended(RUN), revived()], &[again, None, None]);
    }

    #[test]
    fn a_usage_that_is_not_believed_is_said_once_in_a_run() {
        let disbelieved = || {
            let Body::ModelAnswered(answered) = answered() else { unreachable!("it is an answer") };
            let reported = Usage { input_tokens: 1 << 50, output_tokens: 3, ..Usage::default() };
            let anomaly = UsageAnomaly { kind: UsageAnomalyKind::InputBeyondRequest, reported };
            let anomaly = Some(Box::new(anomaly));
            Body::ModelAnswered(Box::new(ModelAnswered { usage: None, anomaly, ..*answered }))
        };
        let said = "model 2   answered, 1 tool call\nusage     not believed: input_beyond_request (1125899906842624 tokens \
                    read, of these 0 from the cache and 0 to it, 3 written); what was reserved is booked instead, for each \
                    such answer (`hermod providers status` counts them)";
        check(vec![disbelieved(), disbelieved()], &[Some(said), Some("model 2   answered, 1 tool call")]);
    }
}
