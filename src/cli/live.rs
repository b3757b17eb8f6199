//! Lines for the calls in progress and for the subagents: events in, text out. No I/O; `display.rs` draws them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use hermod_actors::model::{CallId, EventBody, RunStatus};

use super::{
    format::{seconds, truncated_line},
    terminal::{Charset, truncate},
};
use crate::host::millis;

/// How long each frame of the spinner is shown.
pub(crate) const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// Limit of lines for calls; the last one counts the remaining calls.
const MAX_LINES: usize = 8;
/// Characters shown of arguments and of text being written.
const MAX_PREVIEW_CHARS: usize = 60;
/// Lines shown of a tool's output; one per tool if several calls are shown.
const MAX_OUTPUT_LINES: usize = 5;
/// Characters kept of an output line; a terminal shows fewer.
const MAX_LINE_CHARS: usize = 300;
/// Lines shown of subagents.
const MAX_SUBAGENT_LINES: usize = 10;

/// The calls in progress in a session.
#[derive(Debug, Default)]
pub(crate) struct LiveView {
    model: Option<LiveCall>,
    tools: BTreeMap<CallId, LiveCall>,
    subagents: Vec<String>,
}

/// A call in progress.
#[derive(Debug)]
struct LiveCall {
    label: String,
    since: Duration,
    /// The end of the text it is writing.
    text: String,
    /// The last lines it has printed.
    output: VecDeque<String>,
}

impl LiveView {
    /// Updates the view with an event at `now`, a time since an arbitrary start.
    pub(crate) fn take(&mut self, body: &EventBody, now: Duration) {
        match body {
            EventBody::ThinkingStart { call, .. } => {
                self.model = Some(LiveCall::new(format!("model {}   thinking", call.iteration), now));
            }
            EventBody::ThinkingEnd { .. } => self.model = None,
            EventBody::Status(RunStatus::Waiting { reason, .. }) => {
                self.model = Some(LiveCall::new(
                    format!("waiting   {}", truncated_line(reason, MAX_PREVIEW_CHARS)),
                    now,
                ));
            }
            EventBody::Status(RunStatus::Parked { call, .. }) => {
                self.tools.insert(*call, LiveCall::new("parked    a person is asked".into(), now));
            }
            EventBody::TextDelta { delta, .. } => {
                if let Some(model) = &mut self.model {
                    model.write(delta);
                }
            }
            EventBody::ToolStart { call, tool, arguments, .. } => {
                let label = format!(
                    "tool {}.{}  {} {}",
                    call.iteration,
                    call.n,
                    truncated_line(tool, MAX_PREVIEW_CHARS),
                    truncated_line(arguments, MAX_PREVIEW_CHARS)
                );
                self.tools.insert(*call, LiveCall::new(label, now));
            }
            EventBody::ToolProgress { call, note, .. } => {
                if let Some(tool) = self.tools.get_mut(call) {
                    tool.print(note);
                }
            }
            EventBody::ToolEnd { call, .. } => drop(self.tools.remove(call)),
            EventBody::Status(RunStatus::Ended(_)) => *self = Self::default(),
            EventBody::Status(
                RunStatus::Accepted
                | RunStatus::Queued
                | RunStatus::Thinking
                | RunStatus::Compacting
                | RunStatus::Executing,
            )
            | EventBody::Recorded { .. }
            | EventBody::Lifecycle(_)
            | EventBody::Compaction(_)
            | EventBody::ReasoningDelta { .. }
            | EventBody::ToolCallStreamed { .. }
            | EventBody::ToolCallParsed { .. }
            | EventBody::IterationEnd { .. }
            | EventBody::Retry { .. } => {}
        }
    }

    /// Sets the lines of the subagents, one each.
    pub(crate) fn show_subagents(&mut self, lines: Vec<String>) {
        self.subagents = lines;
    }

    /// The lines to show at `now`, none wider than `columns`.
    pub(crate) fn lines(&self, now: Duration, columns: usize) -> Vec<String> {
        let frames = Charset::current().spinner();
        let frame = now.as_millis() / FRAME_INTERVAL.as_millis() % frames.len() as u128;
        let spinner = frames[usize::try_from(frame).unwrap_or(0)];
        let calls: Vec<&LiveCall> = self.model.iter().chain(self.tools.values()).collect();
        let (listed, rest) = match calls.len() > MAX_LINES {
            true => calls.split_at(MAX_LINES - 1),
            false => (&calls[..], &[][..]),
        };
        let max_output_lines = if listed.len() > 1 { 1 } else { MAX_OUTPUT_LINES };
        let mut lines = Vec::new();
        for call in listed {
            let time = seconds(millis(now.saturating_sub(call.since)));
            let text = if call.text.is_empty() { String::new() } else { format!(": {}", call.text) };
            lines.push(format!("{spinner} {time:>7}  {}{text}", call.label));
            let last_lines = call.output.iter().skip(call.output.len().saturating_sub(max_output_lines));
            lines.extend(last_lines.map(|line| format!("           | {line}")));
        }
        lines.extend((!rest.is_empty()).then(|| format!("{spinner}          and {} more", rest.len())));
        lines.extend(self.subagents.iter().take(MAX_SUBAGENT_LINES).map(|line| format!("           {line}")));
        let more = self.subagents.len().saturating_sub(MAX_SUBAGENT_LINES);
        lines.extend((more > 0).then(|| format!("           and {more} more")));
        // On some terminals a line of the full width starts another line.
        let columns = columns.saturating_sub(1);
        lines.iter().map(|line| truncate(line, columns)).collect()
    }
}

impl LiveCall {
    const fn new(label: String, since: Duration) -> Self {
        Self { label, since, text: String::new(), output: VecDeque::new() }
    }

    /// Keeps the last lines of a tool's output.
    fn print(&mut self, note: &str) {
        for line in note.lines().filter(|line| !line.trim().is_empty()) {
            self.output.push_back(truncated_line(line, MAX_LINE_CHARS));
        }
        self.output.drain(..self.output.len().saturating_sub(MAX_OUTPUT_LINES));
    }

    /// Keeps the end of the text being written.
    fn write(&mut self, delta: &Arc<str>) {
        self.text.push_str(&truncated_line(delta, usize::MAX));
        let count = self.text.chars().count();
        if count > MAX_PREVIEW_CHARS {
            self.text = self.text.chars().skip(count - MAX_PREVIEW_CHARS).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{CallStatus, RunId};

    use super::*;

    const MODEL: CallId = CallId { run: RunId::from_bits(1), iteration: 2, n: 0 };

    fn tool(n: u32) -> CallId {
        CallId { n, ..MODEL }
    }

    fn started(n: u32) -> EventBody {
        EventBody::ToolStart {
            call: tool(n),
            attempt: 1,
            tool: "shell".into(),
            arguments: "{\"a\":\n1}".into(),
        }
    }

    #[track_caller]
    fn check(bodies: &[EventBody], columns: usize, expect: &[&str]) {
        let mut live = LiveView::default();
        bodies.iter().for_each(|body| live.take(body, Duration::ZERO));
        assert_eq!(live.lines(Duration::from_millis(1_230), columns), expect);
    }

    #[test]
    fn the_model_is_told_with_what_it_writes() {
        let start = EventBody::ThinkingStart { call: MODEL, attempt: 1 };
        let text = |delta: &str| EventBody::TextDelta { call: MODEL, attempt: 1, delta: delta.into() };
        check(&[], 80, &[]);
        check(std::slice::from_ref(&start), 80, &["⠹   1.2 s  model 2   thinking"]);
        let written = [start.clone(), text("one\n"), text("\x1b[31mtwo")];
        check(&written, 80, &["⠹   1.2 s  model 2   thinking: one  [31mtwo"]);
        check(&written, 20, &["⠹   1.2 s  model 2…"]);
        check(&[start, EventBody::ThinkingEnd { call: MODEL, attempt: 1 }], 80, &[]);
    }

    #[test]
    fn tools_have_a_line_each_until_they_end() {
        let note = EventBody::ToolProgress { call: tool(2), attempt: 1, note: "half\n".into() };
        let (tool_name, status) = ("shell".into(), CallStatus::Ok);
        let ended = EventBody::ToolEnd { call: tool(1), attempt: 1, tool: tool_name, status };
        let line = "⠹   1.2 s  tool 2.2  shell {\"a\": 1}";
        check(&[started(1), started(2), note, ended], 80, &[line, "           | half"]);
    }

    #[test]
    fn the_last_lines_of_a_tool_are_shown_with_nothing_hidden() {
        let note =
            |n: u32, note: &str| EventBody::ToolProgress { call: tool(n), attempt: 1, note: note.into() };
        let one = "⠹   1.2 s  tool 2.1  shell {\"a\": 1}";
        let two = "⠹   1.2 s  tool 2.2  shell {\"a\": 1}";
        let printed = [started(1), note(1, "1\n2\n\n3\n"), note(1, "4\n5\u{200b}\x1b[2J\n6\n")];
        let five = ["| 2", "| 3", "| 4", "| 5<U+200B> [2J", "| 6"].map(|line| format!("           {line}"));
        check(&printed, 80, &[&[one], &five.each_ref().map(String::as_str)[..]].concat());
        let both = [&printed[..], &[started(2)]].concat();
        check(&both, 80, &[one, "           | 6", two]);
    }

    #[test]
    fn subagents_stand_below_what_is_under_way() {
        let mut live = LiveView::default();
        live.take(&started(1), Duration::ZERO);
        live.show_subagents((1..=12).map(|n| format!("agent {n}")).collect());
        let lines = live.lines(Duration::ZERO, 80);
        assert_eq!(lines.len(), 12);
        assert_eq!((&*lines[1], &*lines[11]), ("           agent 1", "           and 2 more"));
    }

    #[test]
    fn many_tools_are_counted() {
        let many: Vec<_> = (1..=20).map(started).collect();
        let mut live = LiveView::default();
        many.iter().for_each(|body| live.take(body, Duration::ZERO));
        let lines = live.lines(Duration::ZERO, 80);
        assert_eq!(
            (lines.len(), lines.last().map(String::as_str)),
            (MAX_LINES, Some("⠋          and 13 more"))
        );
    }
}
