//! Markdown as lines of the screen: headings, lists, quotes, tables, links, and code in colours. Text that streams in is
//! drawn as it is: what is not closed yet is closed by the parser.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui_core::{
    style::{Modifier, Style},
    text::{Line, Span},
};

use crate::{
    highlight::Highlighter,
    look::Look,
    table::Table,
    wrap::{Breaks, Margin, clean, wrap},
};

/// Quotes and lists within each other are drawn to this depth; deeper ones stand at the same place.
const MAX_DEPTH: usize = 8;

/// The lines of a Markdown text in `width` columns. The text comes from a model.
pub(crate) fn lines(text: &str, width: usize, look: Look) -> Vec<Line<'static>> {
    let text = clean(text);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page::new(width, look);
    for event in Parser::new_ext(&text, options) {
        page.take(event);
    }
    page.lines
}

/// Where a text that grows may be cut so that what stands before is drawn once: behind a blank line that lies in no code
/// before no indented line and before no item of a list.
pub(crate) fn stable_end(text: &str) -> usize {
    let (mut at, mut stable, mut fence, mut is_blank_before) = (0, 0, None::<&str>, false);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let may_belong = trimmed.len() < line.len()
            || trimmed.starts_with(|c: char| "-*+".contains(c) || c.is_ascii_digit());
        if fence.is_none() && is_blank_before && !trimmed.is_empty() && !may_belong {
            stable = at;
        }
        fence = match fence {
            Some(open) if trimmed.starts_with(open) => None,
            None if trimmed.starts_with("```") => Some("```"),
            None if trimmed.starts_with("~~~") => Some("~~~"),
            unchanged => unchanged,
        };
        is_blank_before = trimmed.is_empty();
        at += line.len();
    }
    stable
}

/// A list that is open.
#[derive(Debug)]
struct List {
    /// The number of the next item.
    number: Option<u64>,
}

/// The code of a block that is open.
#[derive(Debug)]
struct Code {
    language: String,
    text: String,
}

/// Collects lines.
struct Page {
    width: usize,
    look: Look,
    lines: Vec<Line<'static>>,
    /// The text of the paragraph so far.
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    margins: Vec<Margin>,
    lists: Vec<List>,
    links: Vec<String>,
    code: Option<Code>,
    table: Option<Table>,
    /// A blank line is due before the next block.
    needs_gap: bool,
}

impl Page {
    fn new(width: usize, look: Look) -> Self {
        Self {
            width,
            look,
            lines: Vec::new(),
            spans: Vec::new(),
            styles: Vec::new(),
            margins: Vec::new(),
            lists: Vec::new(),
            links: Vec::new(),
            code: None,
            table: None,
            needs_gap: false,
        }
    }

    fn style(&self) -> Style {
        self.styles.iter().fold(Style::new(), |style, next| style.patch(*next))
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => self.push(&code, self.style().patch(self.look.code())),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.push(&text, self.style()),
            Event::Html(html) | Event::InlineHtml(html) => {
                self.push(html.trim_end_matches('\n'), self.style().patch(Look::dim()));
            }
            Event::FootnoteReference(name) => self.push(&format!("[{name}]"), self.style()),
            Event::SoftBreak => self.push(" ", self.style()),
            Event::HardBreak => self.flush(),
            Event::Rule => {
                self.gap();
                let rule = self.look.symbol("─", "-").repeat(self.width.min(40));
                self.push(&rule, Look::dim());
                self.flush();
                self.needs_gap = true;
            }
            Event::TaskListMarker(is_done) => {
                let mark =
                    if is_done { self.look.symbol("☑ ", "[x] ") } else { self.look.symbol("☐ ", "[ ] ") };
                self.push(mark, self.style());
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.gap();
                self.styles.push(self.look.heading());
                if level > HeadingLevel::H2 {
                    self.styles.push(Style::new().remove_modifier(Modifier::UNDERLINED));
                } else {
                    self.styles.push(Style::new().add_modifier(Modifier::UNDERLINED));
                }
            }
            Tag::BlockQuote(_) => {
                self.gap();
                self.indent(Margin::every(self.look.symbol("▌ ", "| "), Look::dim()));
            }
            Tag::CodeBlock(kind) => {
                self.gap();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => {
                        info.split([' ', ',', '{']).next().unwrap_or("").to_owned()
                    }
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some(Code { language, text: String::new() });
            }
            Tag::List(number) => {
                if self.lists.is_empty() {
                    self.gap();
                } else {
                    self.flush();
                }
                self.lists.push(List { number });
            }
            Tag::Item => self.item(),
            Tag::Table(_) => {
                self.gap();
                self.table = Some(Table::default());
            }
            Tag::Emphasis => self.styles.push(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(Look::bold()),
            Tag::Strikethrough => self.styles.push(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push(dest_url.into_string());
                self.styles.push(self.look.link());
            }
            Tag::Paragraph | Tag::HtmlBlock => self.gap(),
            Tag::TableHead
            | Tag::TableRow
            | Tag::TableCell
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.truncate(self.styles.len().saturating_sub(2));
                self.needs_gap = true;
            }
            TagEnd::Paragraph | TagEnd::HtmlBlock | TagEnd::FootnoteDefinition => {
                self.flush();
                self.needs_gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.margins.pop();
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.needs_gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                self.margins.pop();
                self.needs_gap = false;
            }
            TagEnd::Table => self.end_table(),
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                }
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                if let Some(table) = &mut self.table {
                    table.push(cell);
                }
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => drop(self.styles.pop()),
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    /// Begins an item with its bullet or number.
    fn item(&mut self) {
        self.flush();
        let bullet = match self.lists.last_mut().and_then(|list| list.number.as_mut()) {
            Some(number) => {
                *number = number.saturating_add(1);
                format!("{}. ", *number - 1)
            }
            None => self.look.symbol("• ", "* ").to_owned(),
        };
        self.needs_gap = false;
        self.indent(Margin::symbol(bullet, Look::dim()));
    }

    fn indent(&mut self, margin: Margin) {
        let fits = self.margins.len() < MAX_DEPTH;
        self.margins.push(if fits { margin } else { Margin::default() });
    }

    /// The address behind the text of a link, if that is another one.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some(address) = self.links.pop() else { return };
        let text = self.spans.last().map_or("", |span| &*span.content);
        if !address.is_empty() && text != address && address.trim_start_matches("mailto:") != text {
            self.push(&format!(" ({address})"), self.style().patch(Look::dim()));
        }
    }

    fn end_code(&mut self) {
        let Some(code) = self.code.take() else { return };
        let mut highlighter = Highlighter::new(&code.language, self.look);
        self.indent(Margin::every("  ", Style::new()));
        for line in code.text.trim_end_matches('\n').split('\n') {
            self.spans = highlighter.line(line, Style::new());
            self.write(Breaks::Anywhere);
        }
        self.margins.pop();
        self.needs_gap = true;
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else { return };
        let (margin, taken) = self.margin();
        let rows = table.lines(self.width.saturating_sub(taken), self.look);
        self.lines.extend(rows.into_iter().map(|row| {
            let mut spans = margin.rest.clone();
            spans.extend(row);
            Line::from(spans)
        }));
        self.needs_gap = true;
    }

    fn text(&mut self, text: &str) {
        match &mut self.code {
            Some(code) => code.text.push_str(text),
            None => self.push(text, self.style()),
        }
    }

    fn push(&mut self, text: &str, style: Style) {
        // A text without Markdown may have lines of its own, as HTML has.
        let mut lines = text.split('\n');
        self.spans.extend(lines.next().map(|line| Span::styled(line.to_owned(), style)));
        for line in lines {
            self.flush();
            self.spans.push(Span::styled(line.to_owned(), style));
        }
    }

    /// Ends the block before, with a blank line if one is due.
    fn gap(&mut self) {
        self.flush();
        if std::mem::take(&mut self.needs_gap) && !self.lines.is_empty() {
            let margin = self.margin().0;
            self.lines.push(Line::from(margin.rest));
        }
    }

    /// Writes the paragraph so far.
    fn flush(&mut self) {
        if !self.spans.is_empty() && self.table.is_none() {
            self.write(Breaks::Words);
        }
    }

    fn write(&mut self, breaks: Breaks) {
        let (margin, _) = self.margin();
        let spans = std::mem::take(&mut self.spans);
        wrap(&spans, (self.width, breaks), &margin, &mut self.lines);
        // A bullet stands before the first line of its item only.
        for margin in &mut self.margins {
            margin.first.clone_from(&margin.rest);
        }
    }

    /// All margins together, and their columns.
    fn margin(&self) -> (Margin, usize) {
        let first: Vec<Span<'static>> = self.margins.iter().flat_map(|margin| margin.first.clone()).collect();
        let rest: Vec<Span<'static>> = self.margins.iter().flat_map(|margin| margin.rest.clone()).collect();
        let columns = rest.iter().map(Span::width).sum();
        (Margin { first, rest }, columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, width: usize, expect: &str) {
        let lines: Vec<String> =
            lines(text, width, Look::default()).iter().map(ToString::to_string).collect();
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        assert_eq!(lines.join("\n"), expect);
    }

    #[test]
    fn blocks_are_drawn() {
        check("# Title\nSome *text* with `code`.\n\nNext", 40, "Title\n\nSome text with code.\n\nNext");
        check("- one\n- two\n  - deep\n\nend", 40, "• one\n• two\n  • deep\n\nend");
        check("9. nine\n10. ten is long", 12, "9. nine\n10. ten is\n    long");
        check("> quoted text\n> more", 12, "▌ quoted\n▌ text more");
        check("```rust\nfn main() {\n    x\n}\n```\ndone", 40, "  fn main() {\n      x\n  }\n\ndone");
        check("- a\n\n  ```\n  code\n  ```\n- b", 40, "• a\n\n    code\n• b");
        check("[x](http://a.b) <http://c.d>", 60, "x (http://a.b) http://c.d");
        check("- [ ] open\n- [x] done", 40, "• ☐ open\n• ☑ done");
        check("a\n\n---\n\nb", 4, "a\n\n────\n\nb");
        check("line  \nbreak", 40, "line\nbreak");
        check("<b>x</b>", 40, "<b>x</b>");
    }

    #[test]
    fn tables_are_aligned_or_listed() {
        let table = "| name | n |\n| --- | --- |\n| long name | 1 |\n| b | 22 |";
        check(table, 40, "name      │ n\n──────────┼───\nlong name │ 1\nb         │ 22");
        check(table, 10, "name: long\n  name\nn: 1\n\nname: b\nn: 22");
    }

    #[test]
    fn what_streams_in_is_drawn() {
        check("some **bo", 40, "some **bo");
        check("```py\nif x", 40, "  if x");
        check("", 40, "");
        check("esc \x1b[2J\x07", 40, "esc ␛[2J␇");
    }

    #[test]
    fn only_whole_blocks_are_stable() {
        let check = |text: &str, expect: &str| assert_eq!(&text[..stable_end(text)], expect, "{text:?}");
        check("one\n\ntwo", "one\n\n");
        check("one\n\n", "");
        check("one\n\ntwo\n\nthree", "one\n\ntwo\n\n");
        check("a\n\n```\nx\n\ny", "a\n\n");
        check("a\n\n```\nx\n\ny\n```\n\nz", "a\n\n```\nx\n\ny\n```\n\n");
        check("- a\n\n  more", "");
        check("- a\n\n- b\n\ntext", "- a\n\n- b\n\n");
    }

    #[test]
    fn deep_nesting_stays_narrow() {
        let text = "> ".repeat(500) + "x";
        assert!(lines(&text, 40, Look::default()).len() < 10);
    }
}
