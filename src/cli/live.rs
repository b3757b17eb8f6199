//! What is under way, a line each: events in, text out. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hermod_actors::model::{CallId, EventBody, RunStatus};

use super::{
    terminal::cut,
    words::{millis, seconds, shown},
};

/// The turning sign before every line.
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// How long each is shown.
pub(crate) const FRAME: Duration = Duration::from_millis(100);
/// At most so many lines; the last one counts the rest.
const LINES: usize = 8;
/// Characters of arguments and of what is being written.
const PREVIEW: usize = 60;

/// What is under way in a session.
#[derive(Debug, Default)]
pub(crate) struct Live {
    model: Option<Work>,
    tools: BTreeMap<CallId, Work>,
}

/// One thing that is under way.
#[derive(Debug)]
struct Work {
    what: String,
    since: Duration,
    /// What it says at the moment.
    says: String,
}

impl Live {
    /// Takes in what happened at `now`, a time since some beginning.
    pub(crate) fn take(&mut self, body: &EventBody, now: Duration) {
        match body {
            EventBody::ThinkingStart { call, .. } => {
                self.model = Some(Work::new(format!("model {}   thinking", call.iteration), now));
            }
            EventBody::ThinkingEnd { .. } => self.model = None,
            EventBody::Status(RunStatus::Waiting { reason, .. }) => {
                self.model = Some(Work::new(format!("waiting   {}", shown(reason, PREVIEW)), now));
            }
            EventBody::Status(RunStatus::Parked { call, .. }) => {
                self.tools.insert(*call, Work::new("parked    a person is asked".into(), now));
            }
            EventBody::TextDelta { delta, .. } => {
                if let Some(model) = &mut self.model {
                    model.write(delta);
                }
            }
            EventBody::ToolStart { call, tool, arguments, .. } => {
                let what = format!(
                    "tool {}.{}  {} {}",
                    call.iteration,
                    call.n,
                    shown(tool, PREVIEW),
                    shown(arguments, PREVIEW)
                );
                self.tools.insert(*call, Work::new(what, now));
            }
            EventBody::ToolProgress { call, note, .. } => {
                if let Some(tool) = self.tools.get_mut(call) {
                    tool.says = shown(note.trim(), PREVIEW);
                }
            }
            EventBody::ToolEnd { call, .. } => drop(self.tools.remove(call)),
            EventBody::Status(RunStatus::Ended(_)) => *self = Self::default(),
            EventBody::Status(
                RunStatus::Accepted
                | RunStatus::Queued
                | RunStatus::Thinking
                | RunStatus::Compressing
                | RunStatus::Executing,
            )
            | EventBody::Recorded { .. }
            | EventBody::Lifecycle(_)
            | EventBody::ReasoningDelta { .. }
            | EventBody::ToolCallStreamed { .. }
            | EventBody::ToolCallParsed { .. }
            | EventBody::IterationEnd { .. }
            | EventBody::Retry { .. } => {}
        }
    }

    /// The lines to show at `now`, none wider than so many columns.
    pub(crate) fn lines(&self, now: Duration, columns: usize) -> Vec<String> {
        let frame = now.as_millis() / FRAME.as_millis() % FRAMES.len() as u128;
        let sign = FRAMES[usize::try_from(frame).unwrap_or(0)];
        let works: Vec<&Work> = self.model.iter().chain(self.tools.values()).collect();
        let (shown, rest) = match works.len() > LINES {
            true => works.split_at(LINES - 1),
            false => (&works[..], &[][..]),
        };
        let line = |work: &&Work| {
            let time = seconds(millis(now.saturating_sub(work.since)));
            let says = if work.says.is_empty() { String::new() } else { format!(": {}", work.says) };
            format!("{sign} {time:>7}  {}{says}", work.what)
        };
        let more = (!rest.is_empty()).then(|| format!("{sign}          and {} more", rest.len()));
        // A line as wide as the terminal would make some of them begin another one.
        let columns = columns.saturating_sub(1);
        shown.iter().map(line).chain(more).map(|line| cut(&line, columns)).collect()
    }
}

impl Work {
    const fn new(what: String, since: Duration) -> Self {
        Self { what, since, says: String::new() }
    }

    /// Keeps the end of what is written.
    fn write(&mut self, delta: &Arc<str>) {
        self.says.push_str(&shown(delta, usize::MAX));
        let count = self.says.chars().count();
        if count > PREVIEW {
            self.says = self.says.chars().skip(count - PREVIEW).collect();
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
        let mut live = Live::default();
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
        check(&[started(1), started(2), note, ended], 80, &["⠹   1.2 s  tool 2.2  shell {\"a\": 1}: half"]);
    }

    #[test]
    fn many_tools_are_counted() {
        let many: Vec<_> = (1..=20).map(started).collect();
        let mut live = Live::default();
        many.iter().for_each(|body| live.take(body, Duration::ZERO));
        let lines = live.lines(Duration::ZERO, 80);
        assert_eq!((lines.len(), lines.last().map(String::as_str)), (LINES, Some("⠋          and 13 more")));
    }
}
