//! A tool call in the conversation: what is called, what it prints, how it ended. Outputs are kept with their beginning and
//! their end, and are folded unless the user unfolds them.

use ratatui_core::{
    style::Style,
    text::{Line, Span},
};
use serde_json::Value;

use crate::{
    command_end::CommandEnd,
    diff::diff,
    event::CallOutcome,
    highlight::{Highlighter, diff_style},
    look::Look,
    result_text::{KEPT_BYTES, command_output, result_text},
    wrap::{Breaks, Margin, clean, clean_line, counted, cut, wrap, wrap_text},
};

/// Bytes that are kept of arguments.
const MAX_ARGUMENT_BYTES: usize = 64 << 10;
/// Lines that are shown of an output when it is folded: of a command that runs or went well, and of a failure.
const FOLDED_LINES: (usize, usize) = (5, 12);
/// Lines that are shown of a diff or a new file when it is folded.
const FOLDED_DIFF_LINES: usize = 16;
/// Lines that are shown of a command when it is folded.
const FOLDED_COMMAND_LINES: usize = 4;

/// A tool call.
#[derive(Debug)]
pub(crate) struct ToolEntry {
    tool: String,
    arguments: String,
    started_ms: Option<u64>,
    progress: String,
    /// What a person has decided about it.
    decision: Option<String>,
    end: Option<ToolEnd>,
}

#[derive(Debug)]
struct ToolEnd {
    outcome: CallOutcome,
    took_ms: Option<u64>,
    /// How a command failed.
    failure: Option<String>,
    output: String,
}

impl ToolEntry {
    /// A call that has not started.
    pub(crate) fn new(tool: String, arguments: String) -> Self {
        let mut end = arguments.len().min(MAX_ARGUMENT_BYTES);
        while !arguments.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            tool,
            arguments: arguments[..end].to_owned(),
            started_ms: None,
            progress: String::new(),
            decision: None,
            end: None,
        }
    }

    /// Sets the arguments and the name that the tool has.
    pub(crate) fn rename(&mut self, tool: String, arguments: String) {
        let (started_ms, progress) = (self.started_ms, std::mem::take(&mut self.progress));
        let (decision, end) = (self.decision.take(), self.end.take());
        *self = Self { started_ms, progress, decision, end, ..Self::new(tool, arguments) };
    }

    /// The call started.
    pub(crate) fn start(&mut self, at_ms: u64) {
        self.started_ms = Some(at_ms);
        self.end = None;
    }

    /// A person has answered the question about the call.
    pub(crate) fn decide(&mut self, decision: String) {
        self.decision = Some(decision);
    }

    /// The tool printed.
    pub(crate) fn print(&mut self, note: &str) {
        if !self.progress.is_empty() {
            self.progress.push('\n');
        }
        self.progress.push_str(note);
        if self.progress.len() > KEPT_BYTES.1 {
            let mut start = self.progress.len() - KEPT_BYTES.0;
            while !self.progress.is_char_boundary(start) {
                start += 1;
            }
            self.progress.replace_range(..start, "");
        }
    }

    /// The call ended.
    pub(crate) fn finish(&mut self, outcome: CallOutcome, content: &str, at_ms: u64) {
        let command = CommandEnd::parse(&self.tool, content);
        let failure = command.as_ref().and_then(CommandEnd::failure);
        let output = match &command {
            Some(command) => command_output(command),
            None => result_text(&self.tool, content, outcome),
        };
        let took_ms = self.started_ms.map(|started| at_ms.saturating_sub(started));
        self.end = Some(ToolEnd { outcome, took_ms, failure, output });
        self.progress = String::new();
    }

    /// Bytes that it holds.
    pub(crate) fn size(&self) -> usize {
        let output = self.end.as_ref().map_or(0, |end| end.output.len());
        self.tool.len() + self.arguments.len() + self.progress.len() + output
    }

    /// True while its result is missing.
    pub(crate) const fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// What it does, in a line.
    pub(crate) fn label(&self, columns: usize) -> String {
        let (tool, detail) = (clean_line(&self.tool, 40), self.detail());
        cut(&format!("{tool} {}", clean_line(&detail, columns)), columns)
    }

    fn argument(&self, name: &str) -> Option<String> {
        let arguments: Value = serde_json::from_str(&self.arguments).ok()?;
        arguments.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// What stands behind the tool's name.
    fn detail(&self) -> String {
        let argument = |name| self.argument(name);
        let detail = match &*self.tool {
            "shell" => argument("command"),
            "read_file" | "write_file" | "edit_file" | "list_files" => {
                argument("path").or_else(|| Some(".".to_owned()))
            }
            "search_files" => argument("pattern").map(|pattern| match argument("path") {
                Some(path) => format!("{pattern} in {path}"),
                None => pattern,
            }),
            "delegate_task" => argument("goal"),
            "clarify" => argument("question"),
            "skill_view" => argument("name"),
            _ => None,
        };
        detail.unwrap_or_else(|| self.arguments.clone())
    }

    /// The lines of the call.
    pub(crate) fn lines(&self, (width, is_unfolded): (usize, bool), look: Look) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        self.push_head((width, is_unfolded), look, &mut lines);
        if let Some(decision) = &self.decision {
            let margin = Margin::every("  ", Style::new());
            wrap_text(&clean(decision), (width, Breaks::Words), (&margin, Look::dim()), &mut lines);
        }
        if self.is_change() && self.end.as_ref().is_none_or(|end| end.outcome == CallOutcome::Ok) {
            self.push_change((width, is_unfolded), look, &mut lines);
            return lines;
        }
        match &self.end {
            None => push_output(&self.progress, (width, FOLDED_LINES.0), (look, Look::dim()), &mut lines),
            Some(end) => self.push_end(end, (width, is_unfolded), look, &mut lines),
        }
        lines
    }

    fn push_head(&self, (width, is_unfolded): (usize, bool), look: Look, to: &mut Vec<Line<'static>>) {
        let style = match self.end.as_ref().map(|end| (end.outcome, end.failure.is_some())) {
            None => look.action(),
            Some((CallOutcome::Ok, false)) => look.good(),
            Some(_) => look.bad(),
        };
        let margin = Margin::symbol(look.symbol("● ", "* "), style);
        let detail = clean(&self.detail());
        let shown = if is_unfolded { usize::MAX } else { FOLDED_COMMAND_LINES };
        let count = detail.lines().count();
        let is_command = self.tool == "shell";
        let mut highlighter = Highlighter::new(if is_command { "sh" } else { "" }, look);
        let mut margin = margin;
        for (n, line) in detail.lines().take(shown).enumerate() {
            let mut spans = Vec::new();
            if n == 0 {
                spans.push(Span::styled(format!("{} ", clean_line(&self.tool, 40)), Look::bold()));
            }
            // One long line takes no more rows than as many lines as are shown.
            let limit = if is_unfolded { usize::MAX } else { width.saturating_mul(FOLDED_COMMAND_LINES) };
            spans.extend(highlighter.line(&cut(line, limit), Style::new()));
            let ending = self.ending();
            if let (Some((text, style)), 0) = (&ending, n) {
                spans.push(Span::styled(format!("  {text}"), if *style { look.bad() } else { Look::dim() }));
            }
            wrap(&spans, (width, Breaks::Words), &margin, to);
            margin.first.clone_from(&margin.rest);
        }
        if count > shown {
            let more = format!("{} {}", look.ellipsis(), counted(count - shown, "more line"));
            wrap(&[Span::styled(more, Look::dim())], (width, Breaks::Words), &margin, to);
        }
    }

    /// How the call ended and how long it took, and whether that is bad.
    fn ending(&self) -> Option<(String, bool)> {
        let end = self.end.as_ref()?;
        let took =
            end.took_ms.filter(|ms| *ms >= 1_000).map(|ms| format!("{}.{} s", ms / 1_000, ms % 1_000 / 100));
        let word = match (&end.failure, end.outcome) {
            (Some(failure), CallOutcome::Ok | CallOutcome::Failed) => Some(failure.as_str()),
            (None, CallOutcome::Ok) => None,
            (None, CallOutcome::Failed) => Some("error"),
            (_, CallOutcome::Stopped) => Some("stopped"),
            (_, CallOutcome::NotStarted) => Some("not started"),
            (_, CallOutcome::InDoubt) => Some("in doubt: it may have been carried out"),
        };
        let is_bad = word.is_some();
        let parts: Vec<&str> = word.into_iter().chain(took.as_deref()).collect();
        (!parts.is_empty()).then(|| (parts.join(", "), is_bad))
    }

    fn push_end(
        &self,
        end: &ToolEnd,
        (width, is_unfolded): (usize, bool),
        look: Look,
        to: &mut Vec<Line<'static>>,
    ) {
        let is_bad = end.outcome != CallOutcome::Ok || end.failure.is_some();
        let style = if is_bad && self.tool != "shell" { look.bad() } else { Look::dim() };
        let is_reading =
            matches!(&*self.tool, "read_file" | "list_files" | "search_files" | "skill_view" | "todo");
        if is_reading && !is_bad && !is_unfolded {
            let count = end.output.lines().count();
            let text = counted(count, "line");
            push_output(&text, (width, 1), (look, style), to);
            return;
        }
        let shown = match (is_unfolded, is_bad) {
            (true, _) => usize::MAX,
            (false, true) => FOLDED_LINES.1,
            (false, false) => FOLDED_LINES.0,
        };
        push_output(&end.output, (width, shown), (look, style), to);
    }

    fn is_change(&self) -> bool {
        matches!(&*self.tool, "edit_file" | "write_file")
    }

    /// The lines that an edit changes, or those of a new file.
    fn push_change(&self, (width, is_unfolded): (usize, bool), look: Look, to: &mut Vec<Line<'static>>) {
        let path = self.argument("path").unwrap_or_default();
        let mut signed: Vec<(char, String)> = Vec::new();
        for (old, new) in self.replacements() {
            if !signed.is_empty() {
                signed.push(('@', look.symbol("⋮", ":").to_owned()));
            }
            let (old, new) = (clean(&old), clean(&new));
            signed.extend(diff(&old, &new).into_iter().map(|(sign, line)| (sign, line.to_owned())));
        }
        let shown = if is_unfolded { usize::MAX } else { FOLDED_DIFF_LINES };
        let mut highlighter = Highlighter::of_path(&path, look);
        for (sign, line) in signed.iter().take(shown) {
            let base = match sign {
                '@' => Look::dim(),
                sign => diff_style(&sign.to_string(), look),
            };
            let sign = if *sign == '@' { ' ' } else { *sign };
            let margin = Margin {
                first: vec![Span::raw("  "), Span::styled(format!("{sign} "), base)],
                rest: vec![Span::raw("    ")],
            };
            let spans = match sign {
                ' ' => highlighter.line(line, base),
                _ => vec![Span::styled(line.clone(), base)],
            };
            wrap(&spans, (width, Breaks::Anywhere), &margin, to);
        }
        push_folded(signed.len().saturating_sub(shown), look, to);
    }

    /// The replaced texts of an edit; a new file replaces nothing.
    fn replacements(&self) -> Vec<(String, String)> {
        if self.tool == "write_file" {
            return self.argument("content").map(|content| (String::new(), content)).into_iter().collect();
        }
        let arguments: Value = serde_json::from_str(&self.arguments).unwrap_or(Value::Null);
        let text = |edit: &Value, name: &str| edit[name].as_str().unwrap_or_default().to_owned();
        let edits = arguments["edits"].as_array().map(Vec::as_slice).unwrap_or_default();
        edits.iter().map(|edit| (text(edit, "old"), text(edit, "new"))).collect()
    }
}

/// The last lines of an output.
fn push_output(
    text: &str,
    (width, shown): (usize, usize),
    (look, style): (Look, Style),
    to: &mut Vec<Line<'static>>,
) {
    let text = clean(text.trim_end_matches('\n'));
    if text.trim().is_empty() {
        return;
    }
    let lines: Vec<&str> = text.lines().collect();
    let hidden = lines.len().saturating_sub(shown);
    push_folded(hidden, look, to);
    let margin = Margin::every("  ", Style::new());
    for line in &lines[hidden..] {
        // A folded line takes at most two rows.
        let limit = if shown == usize::MAX { usize::MAX } else { width.saturating_mul(2).saturating_sub(4) };
        wrap_text(&cut(line, limit), (width, Breaks::Anywhere), (&margin, style), to);
    }
}

/// The line about lines that are folded.
fn push_folded(count: usize, look: Look, to: &mut Vec<Line<'static>>) {
    if count > 0 {
        let text = format!("  {} {} folded (Ctrl-O)", look.ellipsis(), counted(count, "line"));
        to.push(Line::from(Span::styled(text, Look::dim())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entry: &ToolEntry, is_unfolded: bool, expect: &[&str]) {
        let lines: Vec<String> =
            entry.lines((40, is_unfolded), Look::default()).iter().map(ToString::to_string).collect();
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        assert_eq!(lines, expect);
    }

    fn shell(command: &str) -> ToolEntry {
        ToolEntry::new("shell".to_owned(), serde_json::json!({ "command": command }).to_string())
    }

    fn command_result(code: i32, stdout: &str) -> String {
        serde_json::json!({ "exit_code": code, "signal": null, "timed_out": false, "stdout": stdout, "stderr": "" })
            .to_string()
    }

    #[test]
    fn a_command_shows_its_output_folded() {
        let mut entry = shell("seq 9");
        check(&entry, false, &["● shell seq 9"]);
        entry.start(1_000);
        entry.print("1");
        entry.print("2\x1b[0m");
        check(&entry, false, &["● shell seq 9", "  1", "  2␛[0m"]);
        entry.finish(CallOutcome::Ok, &command_result(0, "1\n2\n3\n4\n5\n6\n7\n"), 3_450);
        check(
            &entry,
            false,
            &["● shell seq 9  2.4 s", "  … 2 lines folded (Ctrl-O)", "  3", "  4", "  5", "  6", "  7"],
        );
        check(&entry, true, &["● shell seq 9  2.4 s", "  1", "  2", "  3", "  4", "  5", "  6", "  7"]);
    }

    #[test]
    fn a_failure_says_how() {
        let mut entry = shell("false");
        entry.start(0);
        entry.finish(CallOutcome::Ok, &command_result(1, ""), 10);
        check(&entry, false, &["● shell false  exit 1"]);
        let mut entry = ToolEntry::new("read_file".to_owned(), r#"{"path":"a.txt"}"#.to_owned());
        entry.finish(CallOutcome::Failed, "there is no such file", 0);
        check(&entry, false, &["● read_file a.txt  error", "  there is no such file"]);
    }

    #[test]
    fn an_edit_is_a_diff() {
        let arguments = serde_json::json!({
            "path": "src/a.rs",
            "edits": [{ "old": "let x = 1;\nlet y;", "new": "let x = 2;\nlet y;" }, { "old": "b", "new": "" }],
        });
        let entry = ToolEntry::new("edit_file".to_owned(), arguments.to_string());
        check(
            &entry,
            false,
            &["● edit_file src/a.rs", "  - let x = 1;", "  + let x = 2;", "    let y;", "    ⋮", "  - b"],
        );
    }

    #[test]
    fn arguments_that_are_no_json_are_shown_as_they_are() {
        check(&ToolEntry::new("shell".to_owned(), "{\"comm".to_owned()), false, &["● shell {\"comm"]);
        let entry = ToolEntry::new("other".to_owned(), "\x1b]0;x\x07".to_owned());
        check(&entry, false, &["● other ␛]0;x␇"]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut entry = shell(&"x".repeat(1 << 20));
        entry.finish(CallOutcome::Ok, &command_result(0, &"é\n".repeat(1 << 20)), 0);
        assert!(entry.size() < 128 << 10, "{}", entry.size());
        assert!(entry.lines((40, false), Look::default()).len() < 20);
    }
}
