//! Draws the chat: the conversation above, below it what is under way, what is asked, the input and the status line.

use ratatui_core::{
    buffer::Buffer,
    layout::{Position, Rect},
    style::Style,
    text::{Line, Span},
};
use unicode_segmentation::UnicodeSegmentation as _;

use crate::{
    event::{Link, Subagent},
    input::QUIT_WINDOW_MS,
    look::Look,
    state::{AskedQuestion, ChatState, Popup},
    status::status_line,
    wrap::{Breaks, Margin, cells, clean, clean_line, columns, counted, cut, wrap, wrap_text},
};

/// Rows that the conversation keeps.
const MIN_ROWS: usize = 3;
/// Rows of completions.
const MAX_POPUP_ROWS: usize = 8;
/// Rows of the subagents, of the todo list and of messages that are being sent.
const MAX_SUBAGENT_ROWS: usize = 6;
const MAX_TODO_ROWS: usize = 7;
const MAX_PENDING_ROWS: usize = 3;
/// Rows of a question.
const MAX_QUESTION_ROWS: usize = 10;

impl ChatState {
    /// Draws the state at a time in milliseconds; returns where the cursor stands.
    pub fn draw(&mut self, buffer: &mut Buffer, now_ms: u64) -> Position {
        self.quit_pressed_ms.take_if(|pressed| now_ms >= pressed.saturating_add(QUIT_WINDOW_MS));
        let area = buffer.area;
        let (width, height) = (usize::from(area.width).max(1), usize::from(area.height));
        let (input, (row, column)) = self.input_rows(width, (height / 3).max(1));
        let fixed = input.len() + 2;
        let mut panel = self.panel(width, now_ms);
        let space = height.saturating_sub(fixed + MIN_ROWS);
        // What is nearest to the input matters most.
        panel.drain(..panel.len().saturating_sub(space));
        let rows = height.saturating_sub(fixed + panel.len());
        // The blank line behind the last entry is not seen.
        self.window = (width, rows + 1);
        let mut lines = self.conversation(width, rows);
        lines.resize(rows, Line::default());
        lines.extend(panel);
        lines.push(self.separator(width));
        let input_row = lines.len() + row;
        lines.extend(input);
        lines.push(status_line(self, width));
        lines.drain(..lines.len().saturating_sub(height));
        for (y, line) in (area.y..).zip(&lines) {
            buffer.set_line(area.x, y, line, area.width);
        }
        if !self.look.is_unicode {
            to_ascii(buffer);
        }
        let (x, y) = (cells(column).min(area.width.saturating_sub(1)), cells(input_row));
        Position::new(area.x + x, area.y + y.min(area.height.saturating_sub(1)))
    }

    fn conversation(&mut self, width: usize, rows: usize) -> Vec<Line<'static>> {
        if self.transcript.is_empty() {
            return self.welcome(width, rows);
        }
        let mut lines = self.transcript.window((width, rows + 1), self.look);
        if self.transcript.is_at_end() {
            lines.pop_if(|line| line.width() == 0);
            lines.drain(..lines.len().saturating_sub(rows));
        }
        lines.truncate(rows);
        lines
    }

    fn welcome(&self, width: usize, rows: usize) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let title = vec![
            Span::styled("Hermod", Look::bold()),
            Span::styled(format!("  {}", self.workspace), Look::dim()),
        ];
        wrap(&title, (width, Breaks::Anywhere), &Margin::default(), &mut lines);
        lines.push(Line::default());
        for hint in [
            "Say what is to be done. While it works, what you type steers it.",
            "Esc stops it, /help lists commands and keys, @ and Tab complete paths.",
            "Leave at any time: what runs goes on, and `hermod attach` comes back.",
        ] {
            let margin = Margin::symbol(self.look.symbol("· ", "- "), Look::dim());
            wrap_text(hint, (width, Breaks::Words), (&margin, Look::dim()), &mut lines);
        }
        lines.truncate(rows);
        lines
    }

    /// What stands between the conversation and the input.
    fn panel(&self, width: usize, now_ms: u64) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if !self.open_runs.is_empty() {
            self.push_todo(width, &mut lines);
            self.push_subagents(width, &mut lines);
        }
        self.push_pending(width, &mut lines);
        match self.question() {
            Some(asked) => self.push_question(asked, width, &mut lines),
            None => lines.extend(self.activity_line(width, now_ms)),
        }
        if let Some(overview) = &self.overview {
            let margin = Margin::symbol(self.look.symbol("· ", "- "), Look::dim());
            wrap_text(&clean(overview), (width, Breaks::Words), (&margin, Look::dim()), &mut lines);
        }
        self.push_popup(width, &mut lines);
        lines
    }

    fn push_todo(&self, width: usize, to: &mut Vec<Line<'static>>) {
        if self.todo.iter().all(|todo| todo.is_done) {
            return;
        }
        let first = self.todo.iter().position(|todo| !todo.is_done).unwrap_or(0).saturating_sub(1);
        for todo in self.todo.iter().skip(first).take(MAX_TODO_ROWS) {
            let (mark, style) = match (todo.is_done, todo.is_active) {
                (true, _) => (self.look.symbol("☑ ", "[x] "), Look::dim()),
                (false, true) => (self.look.symbol("▸ ", "> "), self.look.action()),
                (false, false) => (self.look.symbol("☐ ", "[ ] "), Style::new()),
            };
            let text = clean_line(&todo.text, width.saturating_sub(columns(mark) + 1));
            to.push(Line::from(Span::styled(format!("{mark}{text}"), style)));
        }
    }

    fn push_subagents(&self, width: usize, to: &mut Vec<Line<'static>>) {
        for (n, subagent) in self.subagents.iter().enumerate().take(MAX_SUBAGENT_ROWS) {
            let below = self.subagents[n + 1..].iter().take_while(|other| other.depth >= subagent.depth);
            let is_last = below.filter(|other| other.depth == subagent.depth).count() == 0;
            to.push(self.subagent_line(subagent, is_last, width));
        }
        let more = self.subagents.len().saturating_sub(MAX_SUBAGENT_ROWS);
        if more > 0 {
            to.push(Line::from(Span::styled(format!("  and {more} more: /tree"), Look::dim())));
        }
    }

    fn subagent_line(&self, subagent: &Subagent, is_last: bool, width: usize) -> Line<'static> {
        let branch =
            if is_last { self.look.symbol("└─ ", "`- ") } else { self.look.symbol("├─ ", "|- ") };
        let branch = format!("{}{branch}", "  ".repeat(subagent.depth.min(6)));
        let tokens = short_count(subagent.tokens);
        let state =
            format!("{} {} {tokens} tokens", clean_line(&subagent.id, 12), clean_line(&subagent.state, 30));
        let space = width.saturating_sub(columns(&branch) + columns(&state) + 2);
        let style = if subagent.has_ended { Look::dim() } else { Style::new() };
        Line::from(vec![
            Span::styled(branch, Look::dim()),
            Span::styled(format!("{state}  "), Look::dim()),
            Span::styled(clean_line(&subagent.task, space), style),
        ])
    }

    fn push_pending(&self, width: usize, to: &mut Vec<Line<'static>>) {
        let skipped = self.pending.len().saturating_sub(MAX_PENDING_ROWS);
        for pending in self.pending.iter().skip(skipped) {
            let state = if pending.message.is_some() { "sent" } else { "being sent" };
            let text = clean_line(&pending.text, width.saturating_sub(state.len() + 6));
            to.push(Line::from(Span::styled(
                format!("{} {text}  [{state}]", self.look.symbol("❯", ">")),
                Look::dim(),
            )));
        }
    }

    /// What is under way, and since when.
    fn activity_line(&self, width: usize, now_ms: u64) -> Option<Line<'static>> {
        let (run, since) = self.open_runs.first()?;
        let seconds = now_ms.saturating_sub(*since) / 1_000;
        let what = match &self.activity {
            _ if self.stopping.contains(run) => "is being stopped",
            _ if matches!(self.link, Some(Link::Lost(_))) => "waits for the service",
            Some(activity) => activity,
            None => "works",
        };
        let hint = format!("  {} · Esc stops", short_time(seconds));
        let hint = if self.look.is_unicode { hint } else { hint.replace('·', "-") };
        let space = width.saturating_sub(columns(&hint) + 2);
        Some(Line::from(vec![
            Span::styled(format!("{} ", self.look.spinner(now_ms)), self.look.action()),
            Span::raw(clean_line(what, space)),
            Span::styled(hint, Look::dim()),
        ]))
    }

    fn push_question(&self, asked: &AskedQuestion, width: usize, to: &mut Vec<Line<'static>>) {
        let mut lines = Vec::new();
        let margin = Margin::symbol(self.look.symbol("? ", "? "), self.look.action());
        let who = if asked.is_subagent { "A subagent asks: " } else { "" };
        let text = format!("{who}{}", clean(asked.question.text.trim()));
        wrap_text(&text, (width, Breaks::Words), (&margin, self.look.action()), &mut lines);
        if let Some(call) = self.question_label(&asked.question) {
            wrap_text(
                &call,
                (width, Breaks::Anywhere),
                (&Margin::every("    ", Style::new()), Look::bold()),
                &mut lines,
            );
        }
        let hidden = lines.len().saturating_sub(MAX_QUESTION_ROWS);
        if hidden > 0 {
            lines.truncate(MAX_QUESTION_ROWS);
            lines.push(Line::from(Span::styled(
                format!("  {}: /approvals shows all", counted(hidden, "more line")),
                Look::dim(),
            )));
        }
        let answers: &[&str] = if asked.question.wants_text {
            &["Enter sends what you write as the answer", "/deny leaves the choice to the model"]
        } else if asked.question.can_always {
            &["y allow", "r allow for this run", "a allow always", "n deny, then Enter"]
        } else {
            &["y allow", "r allow for this run", "n deny, then Enter"]
        };
        // A message reaches the run of the conversation, and no subagent.
        let has_other = !asked.question.wants_text && !asked.is_subagent;
        let other = has_other.then_some("other text skips it");
        let answers: Vec<&str> = answers.iter().copied().chain(other).collect();
        let answers = answers.join(self.look.symbol("  ·  ", "  |  "));
        wrap_text(
            &answers,
            (width, Breaks::Words),
            (&Margin::every("  ", Style::new()), Style::new()),
            &mut lines,
        );
        let more = self.questions.len().saturating_sub(1);
        if more > 0 {
            lines.push(Line::from(Span::styled(format!("  {more} more behind it"), Look::dim())));
        }
        to.extend(lines);
    }

    fn push_popup(&self, width: usize, to: &mut Vec<Line<'static>>) {
        let (texts, chosen) = match &self.popup {
            None => return,
            Some(Popup::Completions { candidates, chosen, .. }) => (candidates, *chosen),
            Some(Popup::Conversations(picker)) => return picker.push_lines(width, self.look, to),
        };
        let first = chosen.saturating_sub(MAX_POPUP_ROWS - 1);
        for (n, text) in texts.iter().enumerate().skip(first).take(MAX_POPUP_ROWS) {
            let (mark, style) = match n == chosen {
                true => (self.look.symbol("▸ ", "> "), self.look.user()),
                false => ("  ", Look::dim()),
            };
            let help =
                crate::command::COMMANDS.iter().find(|command| text.strip_prefix('/') == Some(command.name));
            let text = match help {
                Some(help) => format!("{text:<10} {}", help.text),
                None => clean(text),
            };
            to.push(Line::from(Span::styled(cut(&format!("{mark}{text}"), width), style)));
        }
        if texts.len() > MAX_POPUP_ROWS {
            let place = format!("  {} of {}", chosen + 1, texts.len());
            to.push(Line::from(Span::styled(place, Look::dim())));
        }
    }

    /// The line above the input: what is attached, and that the end of the conversation is not seen.
    fn separator(&self, width: usize) -> Line<'static> {
        let mut notes: Vec<String> =
            self.attached.iter().map(|(name, _)| format!("[{}]", clean_line(name, 30))).collect();
        if !self.transcript.is_at_end() {
            notes.push("more below: Ctrl-End".to_owned());
            let forgotten = self.transcript.forgotten();
            if forgotten > 0 {
                let entries = if forgotten == 1 { "entry" } else { "entries" };
                notes.push(format!("{forgotten} earlier {entries}: /export"));
            }
        }
        if self.quit_pressed_ms.is_some() {
            notes.push("Ctrl-C again leaves".to_owned());
        }
        let notes = cut(&notes.join(" "), width.saturating_sub(4));
        let rule = self.look.symbol("─", "-");
        let rest = width.saturating_sub(columns(&notes) + if notes.is_empty() { 0 } else { 4 });
        if notes.is_empty() {
            return Line::from(Span::styled(rule.repeat(rest), Look::dim()));
        }
        Line::from(vec![
            Span::styled(format!("{} ", rule.repeat(2)), Look::dim()),
            Span::styled(notes, self.look.action()),
            Span::styled(format!(" {}", rule.repeat(rest)), Look::dim()),
        ])
    }

    /// The rows of the input that are seen, and the row and column of the cursor among them.
    fn input_rows(&self, width: usize, max_rows: usize) -> (Vec<Line<'static>>, (usize, usize)) {
        let (prompt, style) = match self.question() {
            Some(asked) if asked.question.wants_text => (self.look.symbol("? ", "? "), self.look.action()),
            _ => (self.look.symbol("❯ ", "> "), self.look.user()),
        };
        let (rows, (row, column)) =
            layout_input(self.editor.text(), self.editor.cursor(), width.saturating_sub(3).max(1));
        let first = (row + 1).saturating_sub(max_rows);
        let lines = rows.into_iter().enumerate().skip(first).take(max_rows).map(|(n, text)| {
            let prompt = if n == 0 { Span::styled(prompt, style) } else { Span::raw("  ") };
            Line::from(vec![prompt, Span::raw(text)])
        });
        (lines.collect(), (row - first, column + 2))
    }
}

/// The rows of a text, and the row and column of its byte `cursor`.
fn layout_input(text: &str, cursor: usize, width: usize) -> (Vec<String>, (usize, usize)) {
    let (mut rows, mut used, mut place) = (vec![String::new()], 0, (0, 0));
    for (at, grapheme) in text.grapheme_indices(true) {
        let own = columns(grapheme);
        if grapheme != "\n" && used + own > width {
            rows.push(String::new());
            used = 0;
        }
        if at == cursor {
            place = (rows.len() - 1, used);
        }
        if grapheme == "\n" {
            rows.push(String::new());
            used = 0;
        } else {
            used += own;
            if let Some(row) = rows.last_mut() {
                row.push_str(grapheme);
            }
        }
    }
    if cursor >= text.len() {
        place = (rows.len() - 1, used);
    }
    (rows, place)
}

/// A time in seconds, in words.
pub(crate) fn short_time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// A count with a letter for thousands and millions.
pub(crate) fn short_count(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{}.{}k", count / 1_000, count % 1_000 / 100),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// Replaces the marks that every part of the screen uses.
fn to_ascii(buffer: &mut Buffer) {
    let Rect { x, y, width, height } = buffer.area;
    for row in y..y + height {
        for column in x..x + width {
            if let Some(cell) = buffer.cell_mut((column, row)) {
                match cell.symbol() {
                    "…" => drop(cell.set_symbol("~")),
                    "·" => drop(cell.set_symbol("-")),
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_found_in_wrapped_lines() {
        let check = |text: &str, cursor: usize, expect_rows: &[&str], expect: (usize, usize)| {
            let (rows, place) = layout_input(text, cursor, 4);
            assert_eq!(
                (rows.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), place),
                (expect_rows, expect)
            );
        };
        check("", 0, &[""], (0, 0));
        check("abcdef", 6, &["abcd", "ef"], (1, 2));
        check("abcdef", 4, &["abcd", "ef"], (1, 0));
        check("ab\n", 3, &["ab", ""], (1, 0));
        check("ab\ncd", 2, &["ab", "cd"], (0, 2));
        check("漢字漢", 6, &["漢字", "漢"], (1, 0));
    }

    #[test]
    fn counts_and_times_are_short() {
        let counts = [7, 1_234, 12_345_678].map(short_count);
        assert_eq!(counts, ["7", "1.2k", "12.3M"]);
        assert_eq!([5, 65, 3_700].map(short_time), ["5 s", "1 m 5 s", "1 h 1 m"]);
    }
}
