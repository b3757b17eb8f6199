//! What was said and done, from the top to the bottom: bounded entries, each drawn when it is seen. Only lines near the
//! window are kept.

use std::collections::{BTreeMap, VecDeque};

use hermod_core::model::{Attempt, CallId};
use ratatui_core::{
    style::Style,
    text::{Line, Span},
};

use crate::{
    event::{CallOutcome, PageKind, Tone},
    highlight::diff_style,
    look::Look,
    markdown::{self, stable_end},
    tool_entry::ToolEntry,
    wrap::{Breaks, Margin, clean, counted, cut, wrap, wrap_text},
};

/// Bytes of text that are kept; older entries are forgotten.
const MAX_BYTES: usize = 8 << 20;
/// Entries that are kept.
const MAX_ENTRIES: usize = 10_000;
/// Bytes that are kept of what a model thinks: the end.
const MAX_REASONING_BYTES: usize = 64 << 10;
/// Lines that are shown of a long text of the user when it is folded.
const FOLDED_LINES: usize = 12;
/// Columns of the terms of a page, and what ends a term in a line: a tab would be made visible.
const TERM_COLUMNS: usize = 31;
const TERM_END: &str = "\u{2003}";
/// Entries beside the window whose lines are kept.
const KEPT_BESIDE: usize = 20;

/// The entries.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    entries: VecDeque<Entry>,
    /// The number of the first entry, which is the count of those that are forgotten.
    first: usize,
    bytes: usize,
    answers: BTreeMap<CallId, usize>,
    thoughts: BTreeMap<CallId, usize>,
    tools: BTreeMap<CallId, usize>,
    /// Everything that is folded is shown.
    pub(crate) is_unfolded: bool,
    /// Where the window begins; `None` if it ends with the last line.
    top: Option<Place>,
}

/// A line of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    entry: usize,
    line: usize,
}

#[derive(Debug)]
struct Entry {
    body: EntryBody,
    drawn: Option<Drawn>,
    /// No blank line stands behind it: a line of the same kind follows.
    is_tight: bool,
}

/// The lines of an entry.
#[derive(Debug)]
struct Drawn {
    width: usize,
    is_unfolded: bool,
    lines: Vec<Line<'static>>,
    /// Bytes of an answer whose lines do not change any more, and the number of those lines.
    stable: (usize, usize),
    is_stale: bool,
}

/// What stands in the conversation.
#[derive(Debug)]
pub(crate) enum EntryBody {
    /// What the user said, with the number of pictures; before or while a run was under way.
    User { text: String, images: usize, is_steer: bool },
    /// An answer, by the attempt that streams.
    Answer { text: String, attempt: Attempt },
    /// What a model thinks.
    Thoughts { text: String, attempt: Attempt, is_open: bool },
    /// A tool call.
    Tool(Box<ToolEntry>),
    /// A line.
    Notice(Tone, String),
    /// A longer text.
    Page { title: String, text: String, kind: PageKind },
}

impl EntryBody {
    fn size(&self) -> usize {
        match self {
            Self::User { text, .. }
            | Self::Answer { text, .. }
            | Self::Thoughts { text, .. }
            | Self::Notice(_, text) => text.len(),
            Self::Tool(tool) => tool.size(),
            Self::Page { title, text, .. } => title.len() + text.len(),
        }
    }
}

impl Transcript {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self { is_unfolded: self.is_unfolded, ..Self::default() };
    }

    /// True without entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry; returns its number.
    pub(crate) fn push(&mut self, body: EntryBody) -> usize {
        self.bytes += body.size();
        if let (EntryBody::Notice(..), Some(last)) = (&body, self.entries.back_mut())
            && matches!(last.body, EntryBody::Notice(..))
        {
            (last.is_tight, last.drawn) = (true, None);
        }
        self.entries.push_back(Entry { body, drawn: None, is_tight: false });
        self.forget();
        self.first + self.entries.len() - 1
    }

    fn forget(&mut self) {
        while self.entries.len() > 1 && (self.bytes > MAX_BYTES || self.entries.len() > MAX_ENTRIES) {
            if let Some(entry) = self.entries.pop_front() {
                self.bytes = self.bytes.saturating_sub(entry.body.size());
                self.first += 1;
            }
        }
        let first = self.first;
        for map in [&mut self.answers, &mut self.thoughts, &mut self.tools] {
            if map.len() > MAX_ENTRIES {
                map.retain(|_, number| *number >= first);
            }
        }
    }

    fn entry(&mut self, number: usize) -> Option<&mut Entry> {
        self.entries.get_mut(number.checked_sub(self.first)?)
    }

    /// Changes an entry, and draws it anew.
    fn change(&mut self, number: Option<usize>, change: impl FnOnce(&mut EntryBody)) {
        let Some(entry) = number.and_then(|number| self.entry(number)) else { return };
        let before = entry.body.size();
        change(&mut entry.body);
        let after = entry.body.size();
        if let Some(drawn) = &mut entry.drawn {
            drawn.is_stale = true;
        }
        self.bytes = (self.bytes + after).saturating_sub(before);
    }

    /// Lets an entry disappear.
    pub(crate) fn erase(&mut self, number: usize) {
        self.change(Some(number), |body| *body = EntryBody::Answer { text: String::new(), attempt: 0 });
    }

    /// Adds a piece of an answer.
    pub(crate) fn stream_text(&mut self, (call, attempt): (CallId, Attempt), delta: &str) {
        let number = match self.answers.get(&call) {
            Some(number) => *number,
            None if delta.trim().is_empty() => return,
            None => {
                let number = self.push(EntryBody::Answer { text: String::new(), attempt });
                self.answers.insert(call, number);
                number
            }
        };
        self.change(Some(number), |body| {
            if let EntryBody::Answer { text, attempt: last } = body {
                if *last < attempt {
                    (*last, *text) = (attempt, String::new());
                }
                text.push_str(delta);
            }
        });
        self.end_thoughts(call);
        self.forget();
    }

    /// Adds a piece of what a model thinks.
    pub(crate) fn stream_thoughts(&mut self, (call, attempt): (CallId, Attempt), delta: &str) {
        let number = if let Some(number) = self.thoughts.get(&call) {
            *number
        } else {
            let number = self.push(EntryBody::Thoughts { text: String::new(), attempt, is_open: true });
            self.thoughts.insert(call, number);
            number
        };
        self.change(Some(number), |body| {
            if let EntryBody::Thoughts { text, attempt: last, .. } = body {
                if *last < attempt {
                    (*last, *text) = (attempt, String::new());
                }
                text.push_str(delta);
                keep_end(text);
            }
        });
    }

    fn end_thoughts(&mut self, call: CallId) {
        let number = self.thoughts.get(&call).copied();
        self.change(number, |body| {
            if let EntryBody::Thoughts { is_open, .. } = body {
                *is_open = false;
            }
        });
    }

    /// Removes what streamed of a call; the next attempt stands at the end.
    pub(crate) fn void(&mut self, call: CallId) {
        for number in [self.answers.remove(&call), self.thoughts.remove(&call)] {
            self.change(number, |body| match body {
                EntryBody::Answer { text, .. } | EntryBody::Thoughts { text, .. } => text.clear(),
                EntryBody::User { .. }
                | EntryBody::Tool(_)
                | EntryBody::Notice(..)
                | EntryBody::Page { .. } => {}
            });
        }
    }

    /// Sets what a model thought and answered.
    pub(crate) fn answer(&mut self, call: CallId, whole: &str, reasoning: &str) {
        if !reasoning.trim().is_empty() {
            let id = (call, Attempt::MAX);
            self.stream_thoughts(id, reasoning);
        }
        self.end_thoughts(call);
        if let Some(number) = self.answers.get(&call).copied() {
            self.change(Some(number), |body| {
                if let EntryBody::Answer { text, .. } = body
                    && text != whole
                {
                    whole.clone_into(text);
                }
            });
        } else if !whole.trim().is_empty() {
            let number = self.push(EntryBody::Answer { text: whole.to_owned(), attempt: Attempt::MAX });
            self.answers.insert(call, number);
        }
    }

    /// Adds a tool call, or names it anew.
    pub(crate) fn call(&mut self, call: CallId, tool: String, arguments: String) {
        if let Some(number) = self.tools.get(&call).copied() {
            self.change(Some(number), |body| {
                if let EntryBody::Tool(entry) = body {
                    entry.rename(tool, arguments);
                }
            });
        } else {
            let number = self.push(EntryBody::Tool(Box::new(ToolEntry::new(tool, arguments))));
            self.tools.insert(call, number);
        }
    }

    /// Changes a tool call.
    pub(crate) fn change_tool(&mut self, call: CallId, change: impl FnOnce(&mut ToolEntry)) {
        let number = self.tools.get(&call).copied();
        self.change(number, |body| {
            if let EntryBody::Tool(entry) = body {
                change(entry);
            }
        });
    }

    /// A tool call.
    pub(crate) fn tool(&self, call: CallId) -> Option<&ToolEntry> {
        let number = self.tools.get(&call)?.checked_sub(self.first)?;
        match &self.entries.get(number)?.body {
            EntryBody::Tool(entry) => Some(entry),
            EntryBody::User { .. }
            | EntryBody::Answer { .. }
            | EntryBody::Thoughts { .. }
            | EntryBody::Notice(..)
            | EntryBody::Page { .. } => None,
        }
    }

    /// Ends calls that a run left open.
    pub(crate) fn close_calls(&mut self, run: hermod_core::model::RunId) {
        let open = |(call, _): &(&CallId, &usize)| call.run == run;
        let calls: Vec<CallId> = self.tools.iter().filter(open).map(|(call, _)| *call).collect();
        for call in calls {
            if self.tool(call).is_some_and(ToolEntry::is_open) {
                self.change_tool(call, |tool| tool.finish(CallOutcome::NotStarted, "", 0));
            }
        }
        let thoughts: Vec<CallId> = self.thoughts.keys().filter(|call| call.run == run).copied().collect();
        thoughts.into_iter().for_each(|call| self.end_thoughts(call));
    }

    /// The text of the last answer, if it is there.
    pub(crate) fn last_answer(&self) -> Option<&str> {
        self.entries.iter().rev().find_map(|entry| match &entry.body {
            EntryBody::Answer { text, .. } if !text.trim().is_empty() => Some(text.as_str()),
            EntryBody::User { .. }
            | EntryBody::Answer { .. }
            | EntryBody::Thoughts { .. }
            | EntryBody::Tool(_)
            | EntryBody::Notice(..)
            | EntryBody::Page { .. } => None,
        })
    }
}

/// Keeps the end of a long text.
fn keep_end(text: &mut String) {
    if text.len() > MAX_REASONING_BYTES {
        let mut start = text.len() - MAX_REASONING_BYTES / 2;
        while !text.is_char_boundary(start) {
            start += 1;
        }
        text.replace_range(..start, "");
    }
}

/// The window: which lines are seen.
impl Transcript {
    /// True if the last line is seen as it comes.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.top.is_none()
    }

    /// Shows the end again.
    pub(crate) const fn go_to_end(&mut self) {
        self.top = None;
    }

    /// Scrolls by so many lines, up if they are negative.
    pub(crate) fn scroll(&mut self, by: isize, (width, height): (usize, usize), look: Look) {
        let end = self.end_top((width, height), look);
        let mut place = self.top.unwrap_or(end);
        for _ in 0..by.unsigned_abs() {
            let next = if by < 0 {
                self.line_before(place, width, look)
            } else {
                self.line_after(place, width, look)
            };
            let Some(next) = next else { break };
            place = next;
        }
        self.top = (place < end).then_some(place);
    }

    fn line_before(&mut self, place: Place, width: usize, look: Look) -> Option<Place> {
        if let Some(line) = place.line.checked_sub(1) {
            return Some(Place { line, ..place });
        }
        (self.first..place.entry).rev().find_map(|entry| {
            let count = self.count(entry, width, look);
            (count > 0).then(|| Place { entry, line: count - 1 })
        })
    }

    fn line_after(&mut self, place: Place, width: usize, look: Look) -> Option<Place> {
        if place.line + 1 < self.count(place.entry, width, look) {
            return Some(Place { line: place.line + 1, ..place });
        }
        let last = self.first + self.entries.len();
        (place.entry + 1..last)
            .find(|entry| self.count(*entry, width, look) > 0)
            .map(|entry| Place { entry, line: 0 })
    }

    /// Where the window begins that ends with the last line.
    fn end_top(&mut self, (width, height): (usize, usize), look: Look) -> Place {
        let (mut left, last) = (height, self.first + self.entries.len());
        for entry in (self.first..last).rev() {
            let count = self.count(entry, width, look);
            if count >= left {
                return Place { entry, line: count - left };
            }
            left -= count;
        }
        Place { entry: self.first, line: 0 }
    }

    fn count(&mut self, entry: usize, width: usize, look: Look) -> usize {
        let is_unfolded = self.is_unfolded;
        self.entry(entry).map_or(0, |entry| entry.lines((width, is_unfolded), look).len())
    }

    /// The lines of the window.
    pub(crate) fn window(&mut self, (width, height): (usize, usize), look: Look) -> Vec<Line<'static>> {
        let end = self.end_top((width, height), look);
        let mut top = self.top.map_or(end, |top| top.min(end));
        if top.entry < self.first {
            top = Place { entry: self.first, line: 0 };
        }
        let count = self.count(top.entry, width, look);
        top.line = top.line.min(count.saturating_sub(1));
        if self.top.is_some() {
            self.top = (top < end).then_some(top);
        }
        let (mut lines, mut number, mut skipped) = (Vec::with_capacity(height), top.entry, top.line);
        let is_unfolded = self.is_unfolded;
        while lines.len() < height {
            let Some(entry) = self.entry(number) else { break };
            let own = entry.lines((width, is_unfolded), look);
            lines.extend(own.iter().skip(skipped).take(height - lines.len()).cloned());
            (number, skipped) = (number + 1, 0);
        }
        let (first, seen) = (self.first, top.entry.saturating_sub(KEPT_BESIDE)..number + KEPT_BESIDE);
        for (at, entry) in self.entries.iter_mut().enumerate() {
            if !seen.contains(&(first + at)) {
                entry.drawn = None;
            }
        }
        lines
    }

    /// The number of entries that are forgotten.
    pub(crate) const fn forgotten(&self) -> usize {
        self.first
    }
}

impl Entry {
    /// The lines of the entry, with a blank one behind them.
    fn lines(&mut self, (width, is_unfolded): (usize, bool), look: Look) -> &[Line<'static>] {
        let kept = self.drawn.take().filter(|drawn| drawn.width == width && drawn.is_unfolded == is_unfolded);
        let drawn = match (kept, &self.body) {
            (Some(drawn), _) if !drawn.is_stale => drawn,
            (kept, EntryBody::Answer { text, .. }) => {
                let before = kept.map(|drawn| (drawn.lines, drawn.stable));
                let (lines, stable) = answer_lines(text, before, width, look);
                Drawn { width, is_unfolded, lines, stable, is_stale: false }
            }
            (_, body) => {
                let mut lines = body_lines(body, (width, is_unfolded), look);
                if !lines.is_empty() && !self.is_tight {
                    lines.push(Line::default());
                }
                Drawn { width, is_unfolded, lines, stable: (0, 0), is_stale: false }
            }
        };
        &self.drawn.insert(drawn).lines
    }
}

/// The lines of an answer. Of one that grows, only what is not stable is drawn again.
fn answer_lines(
    text: &str,
    before: Option<(Vec<Line<'static>>, (usize, usize))>,
    width: usize,
    look: Look,
) -> (Vec<Line<'static>>, (usize, usize)) {
    let (mut lines, (start, count)) = before.unwrap_or_default();
    let start = if text.is_char_boundary(start) && start <= text.len() { start } else { 0 };
    lines.truncate(if start == 0 { 0 } else { count });
    let stable = start + stable_end(&text[start..]);
    if stable > start {
        lines.extend(markdown::lines(&text[start..stable], width, look));
        lines.push(Line::default());
    }
    let count = lines.len();
    lines.extend(markdown::lines(&text[stable..], width, look));
    if !lines.is_empty() {
        lines.push(Line::default());
    }
    (lines, (stable, count))
}

fn body_lines(body: &EntryBody, (width, is_unfolded): (usize, bool), look: Look) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    match body {
        EntryBody::User { text, images, is_steer } => {
            let symbol = if *is_steer { look.symbol("» ", ">> ") } else { look.symbol("❯ ", "> ") };
            let margin = Margin::symbol(symbol, look.user());
            let text = clean(text.trim_end());
            let (shown, hidden) = folded(&text, if is_unfolded { usize::MAX } else { FOLDED_LINES });
            wrap_text(shown, (width, Breaks::Words), (&margin, Look::bold()), &mut lines);
            let pictures = (*images > 0).then(|| format!("[{}]", counted(*images, "picture")));
            let more = (hidden > 0)
                .then(|| format!("{} {} (Ctrl-O)", look.ellipsis(), counted(hidden, "more line")));
            for line in pictures.into_iter().chain(more) {
                lines.push(Line::from(Span::styled(format!("  {line}"), Look::dim())));
            }
        }
        EntryBody::Answer { text, .. } => lines = markdown::lines(text, width, look),
        EntryBody::Thoughts { text, is_open, .. } => {
            push_thoughts(text, *is_open, (width, is_unfolded), (look, &mut lines));
        }
        EntryBody::Tool(tool) => lines = tool.lines((width, is_unfolded), look),
        EntryBody::Notice(tone, text) => {
            let (symbol, style) = match tone {
                Tone::Quiet => ("· ", Look::dim()),
                Tone::Bad => (look.symbol("✗ ", "x "), look.bad()),
                Tone::Action => ("! ", look.action()),
            };
            let margin = Margin::symbol(symbol, style);
            wrap_text(&clean(text), (width, Breaks::Words), (&margin, style), &mut lines);
        }
        EntryBody::Page { title, text, kind } => {
            wrap_text(&clean(title), (width, Breaks::Words), (&Margin::default(), Look::bold()), &mut lines);
            let text = if *kind == PageKind::Terms { text.replace('\t', TERM_END) } else { text.clone() };
            for line in clean(&text).trim_end().lines() {
                let (style, breaks) = match kind {
                    PageKind::Diff => (diff_style(line, look), Breaks::Anywhere),
                    PageKind::Plain => (Style::new(), Breaks::Words),
                    PageKind::Terms => {
                        push_term(line, width, &mut lines);
                        continue;
                    }
                    PageKind::Table => {
                        let line = cut(line, width.saturating_sub(2));
                        lines.push(Line::from(format!("  {line}")));
                        continue;
                    }
                };
                let margin = Margin::every("  ", Style::new());
                wrap(&[Span::styled(line.to_owned(), style)], (width, breaks), &margin, &mut lines);
            }
        }
    }
    lines
}

/// Pushes a term and its meaning: in two columns, or one below the other if the window is narrow.
fn push_term(line: &str, width: usize, to: &mut Vec<Line<'static>>) {
    let (term, meaning) = line.split_once(TERM_END).unwrap_or((line, ""));
    let column = TERM_COLUMNS + 2;
    if width >= 2 * column {
        let margin = Margin {
            first: vec![Span::raw(format!("  {term:<TERM_COLUMNS$} "))],
            rest: vec![Span::raw(" ".repeat(column + 1))],
        };
        return wrap_text(meaning, (width, Breaks::Words), (&margin, Style::new()), to);
    }
    wrap_text(term, (width, Breaks::Words), (&Margin::every("  ", Style::new()), Style::new()), to);
    wrap_text(meaning, (width, Breaks::Words), (&Margin::every("      ", Style::new()), Look::dim()), to);
}

/// The first lines of a text, and the number of those that are left out.
fn folded(text: &str, lines: usize) -> (&str, usize) {
    let count = text.split('\n').count();
    if count <= lines {
        return (text, 0);
    }
    let end: usize = text.split_inclusive('\n').take(lines).map(str::len).sum();
    (text[..end].trim_end_matches('\n'), count - lines)
}

fn push_thoughts(
    text: &str,
    is_open: bool,
    (width, is_unfolded): (usize, bool),
    (look, lines): (Look, &mut Vec<Line<'static>>),
) {
    let text = clean(text.trim());
    if text.is_empty() {
        return;
    }
    let style = Look::dim().add_modifier(ratatui_core::style::Modifier::ITALIC);
    let margin = Margin::symbol(look.symbol("∴ ", "~ "), style);
    if is_unfolded {
        wrap_text(&text, (width, Breaks::Words), (&margin, style), lines);
        return;
    }
    let count = text.lines().count();
    let line = match (is_open, text.lines().rfind(|line| !line.trim().is_empty())) {
        (true, Some(last)) => last.to_owned(),
        _ => format!("thought, {} (Ctrl-O)", counted(count, "line")),
    };
    let line = cut(&line, width.saturating_sub(2));
    wrap_text(&line, (width, Breaks::Words), (&margin, style), lines);
}
