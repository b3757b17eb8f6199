//! A transcript as text: a label in the first columns, and below it what belongs to it. Lines of models and tools are
//! indented, so that none of them looks like a line of Hermod.

use hermod_actors::model::{CallStatus, Outcome};
use hermod_chat::CommandEnd;

use super::entry::{Content, Entry, ToolCall};
use crate::cli::{
    format::{seconds, truncated_line},
    terminal::Tone,
};

/// Width of the labels.
const LABEL_COLUMNS: usize = 10;
/// Prefix of the lines that a tool has printed.
const OUTPUT_PREFIX: &str = "        | ";
/// Prefix of the lines of what a model thought.
const THOUGHT_PREFIX: &str = "        > ";
/// Characters of arguments, and of a line of a result.
const MAX_CHARS: usize = 160;
/// Lines of a result from its beginning and from its end.
const HEAD_LINES: usize = 8;
const TAIL_LINES: usize = 4;

/// A line with its tone.
pub(super) type Line = (Option<Tone>, String);

/// How much of a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Results and arguments are shortened, and thoughts left out.
    Short,
    /// All of it.
    Full,
}

/// The lines of an entry.
pub(super) fn lines(entry: &Entry, extent: Extent) -> Vec<Line> {
    let quiet = |text: String| (Some(Tone::Quiet), text);
    match &entry.content {
        Content::Task { text, images } => {
            let mut lines = block("task", text);
            if *images > 0 {
                lines.push(quiet(indented(&format!("[{images} images]"))));
            }
            lines.push((None, String::new()));
            lines
        }
        Content::Answer { text, reasoning, line, calls, flaw, .. } => {
            let mut lines = vec![quiet(line.clone())];
            if extent == Extent::Full {
                lines.extend(reasoning.lines().map(|line| quiet(format!("{THOUGHT_PREFIX}{line}"))));
            }
            let label = if *calls == 0 && flaw.is_none() { "answer" } else { "" };
            if !text.trim().is_empty() {
                lines.extend(block(label, text.trim_end()));
            }
            lines
        }
        Content::Call(call) => call_lines(call, extent),
        Content::Subagent { run, ended, iterations, usage } => {
            let tone = if ended.outcome == Outcome::Completed { Tone::Quiet } else { Tone::Bad };
            let tokens = usage.total();
            let text =
                format!("{run} {ended}: iterations {iterations}, tokens {tokens}; `hermod show {run}`");
            vec![(Some(tone), labelled("subagent", &text))]
        }
        Content::Message { text } => block("message", text),
        Content::Question { text, .. } => {
            block("asks", text).into_iter().map(|(_, line)| (Some(Tone::Action), line)).collect()
        }
        Content::Step { text, is_failure, .. } => {
            let tone = if *is_failure { Tone::Bad } else { Tone::Quiet };
            text.lines().map(|line| (Some(tone), line.to_owned())).collect()
        }
        Content::End { ended } => {
            let tone = (ended.outcome != Outcome::Completed).then_some(Tone::Bad);
            vec![(None, String::new()), (tone, labelled("ended", &ended.to_string()))]
        }
    }
}

fn call_lines(call: &ToolCall, extent: Extent) -> Vec<Line> {
    let command = CommandEnd::parse(&call.tool, &call.result);
    let failure = command.as_ref().and_then(CommandEnd::failure);
    let tone = match call.status {
        Some(CallStatus::Ok) if failure.is_none() => Tone::Quiet,
        None => Tone::Action,
        Some(_) => Tone::Bad,
    };
    let end = failure.unwrap_or_else(|| describe_status(call.status).to_owned());
    let took = call.took_ms.map_or_else(String::new, |ms| format!(" in {}", seconds(ms)));
    let label = format!("tool {}.{}", call.call.iteration, call.call.n);
    let tool = truncated_line(&call.tool, MAX_CHARS);
    let mut lines = vec![(Some(tone), labelled(&label, &format!("{tool} {end}{took}")))];
    lines.extend(arguments(&call.arguments, extent).into_iter().map(|line| (None, indented(&line))));
    lines.extend(
        call.subagents
            .iter()
            .map(|run| (Some(Tone::Quiet), indented(&format!("subagent {run}: `hermod show {run}`")))),
    );
    let output = match &command {
        Some(command) => format!("{}\n{}", command.stdout.trim_end(), command.stderr.trim_end()),
        None => call.result.to_string(),
    };
    let output = result_lines(output.trim_matches('\n'), extent);
    lines.extend(output.into_iter().map(|line| (Some(Tone::Quiet), format!("{OUTPUT_PREFIX}{line}"))));
    if let Some(artifact) = &call.artifact {
        lines.push((Some(Tone::Quiet), indented(&format!("[the whole output is {artifact}]"))));
    }
    lines
}

/// How a call ended, in words.
pub(super) const fn describe_status(status: Option<CallStatus>) -> &'static str {
    match status {
        None => "has no result yet",
        Some(CallStatus::Ok) => "ok",
        Some(CallStatus::Error) => "error",
        Some(CallStatus::Stopped) => "stopped",
        Some(CallStatus::NotStarted) => "not started",
        Some(CallStatus::InDoubt) => "in doubt",
    }
}

/// The lines of a call's arguments: in full, a line for each field, and for each line of a long text.
fn arguments(arguments: &str, extent: Extent) -> Vec<String> {
    if arguments.trim() == "{}" {
        return Vec::new();
    }
    if extent == Extent::Short {
        return vec![truncated_line(arguments, MAX_CHARS)];
    }
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(arguments) else {
        return arguments.lines().map(str::to_owned).collect();
    };
    let field = |(name, value): (String, serde_json::Value)| match value.as_str() {
        Some(text) if text.contains('\n') => {
            let lines = text.lines().map(|line| format!("  {line}"));
            std::iter::once(format!("{name}:")).chain(lines).collect::<Vec<_>>()
        }
        Some(text) => vec![format!("{name}: {text}")],
        None => vec![format!("{name}: {value}")],
    };
    fields.into_iter().flat_map(field).collect()
}

/// The lines of a result; a short form has its first and its last lines.
pub(super) fn result_lines(result: &str, extent: Extent) -> Vec<String> {
    let lines: Vec<&str> = result.lines().collect();
    if extent == Extent::Full {
        return lines.into_iter().map(str::to_owned).collect();
    }
    let shorten = |line: &&str| truncated_line(line, MAX_CHARS);
    let left_out = lines.len().saturating_sub(HEAD_LINES + TAIL_LINES);
    if left_out < 2 {
        return lines.iter().map(shorten).collect();
    }
    let head = lines[..HEAD_LINES].iter().map(shorten);
    let tail = lines[lines.len() - TAIL_LINES..].iter().map(shorten);
    head.chain([format!("[{left_out} lines left out; --full shows them]")]).chain(tail).collect()
}

/// A label with the first line of a text; its other lines are indented below.
fn block(label: &str, text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = text.lines().map(|line| (None, indented(line))).collect();
    match lines.first_mut() {
        Some((_, first)) => *first = labelled(label, text.lines().next().unwrap_or_default()),
        None => lines.push((None, labelled(label, "-"))),
    }
    lines
}

pub(super) fn labelled(label: &str, text: &str) -> String {
    format!("{label:<LABEL_COLUMNS$}{text}")
}

fn indented(line: &str) -> String {
    if line.is_empty() { String::new() } else { labelled("", line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_result_has_its_first_and_last_lines() {
        let text = |count: usize| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        assert_eq!(result_lines(&text(13), Extent::Short).len(), 13, "one line is not worth a remark");
        let lines = result_lines(&text(30), Extent::Short);
        assert_eq!(lines.len(), HEAD_LINES + TAIL_LINES + 1);
        assert_eq!(
            (&*lines[7], &*lines[8], &*lines[9]),
            ("8", "[18 lines left out; --full shows them]", "27")
        );
        assert_eq!(result_lines(&text(30), Extent::Full).len(), 30);
    }

    #[test]
    fn arguments_in_full_are_read_by_field() {
        let json = r#"{"command":"a\nb","timeout":5,"path":"x"}"#;
        assert_eq!(arguments(json, Extent::Short), [json]);
        assert_eq!(arguments(json, Extent::Full), ["command:", "  a", "  b", "timeout: 5", "path: x"]);
        assert_eq!(arguments("{broken", Extent::Full), ["{broken"]);
    }

    #[test]
    fn no_line_of_a_text_begins_where_labels_do() {
        let lines = block("answer", "one\nended     completed\n\nthree");
        let lines: Vec<&str> = lines.iter().map(|(_, line)| &**line).collect();
        assert_eq!(lines, ["answer    one", "          ended     completed", "", "          three"]);
        assert_eq!(block("task", ""), [(None, "task      -".to_owned())]);
    }
}
