//! The list of conversations to choose from: a filter that is typed, and what is chosen among the rest.

use crate::{
    editor::Motion,
    event::Choice,
    input::Key,
    look::Look,
    wrap::{clean_line, cut},
};

use ratatui_core::text::{Line, Span};

/// Rows that are seen, without the one of the filter.
const MAX_ROWS: usize = 8;
/// Characters of a filter.
const MAX_FILTER_CHARS: usize = 100;

/// Conversations to choose from.
#[derive(Debug)]
pub(crate) struct Picker {
    choices: Vec<Choice>,
    /// There are more than these.
    is_cut: bool,
    filter: String,
    /// The indices of those that fit the filter.
    fitting: Vec<usize>,
    /// The index in `fitting`.
    chosen: usize,
}

/// What a key does with the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Picked {
    /// The list stays.
    Stays,
    /// The list is closed.
    Closed,
    /// The conversation with this id is chosen.
    Id(String),
    /// The key is not for the list.
    Other,
}

impl Picker {
    /// A list without a filter, the first chosen.
    pub(crate) fn new(choices: Vec<Choice>, is_cut: bool) -> Self {
        let fitting = (0..choices.len()).collect();
        Self { choices, is_cut, filter: String::new(), fitting, chosen: 0 }
    }

    /// Takes a key.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other keys are for the chat")]
    pub(crate) fn key(&mut self, key: Key) -> Picked {
        let last = self.fitting.len().saturating_sub(1);
        match key {
            Key::Up => self.chosen = self.chosen.checked_sub(1).unwrap_or(last),
            Key::Down => self.chosen = if self.chosen >= last { 0 } else { self.chosen + 1 },
            Key::PageUp => self.chosen = self.chosen.saturating_sub(MAX_ROWS),
            Key::PageDown => self.chosen = self.chosen.saturating_add(MAX_ROWS).min(last),
            Key::Go(Motion::Home) => self.chosen = 0,
            Key::Go(Motion::End) | Key::ToEnd => self.chosen = last,
            Key::Char(c) => self.type_text(c.encode_utf8(&mut [0; 4])),
            Key::Backspace => {
                self.filter.pop();
                self.apply_filter();
            }
            Key::Cut(_) => {
                self.filter.clear();
                self.apply_filter();
            }
            Key::Enter | Key::Tab => {
                // Without a fitting one the filter is changed first.
                let chosen = self.fitting.get(self.chosen).and_then(|at| self.choices.get(*at));
                return chosen.map_or(Picked::Stays, |choice| Picked::Id(choice.id.clone()));
            }
            Key::Escape | Key::Interrupt => return Picked::Closed,
            Key::Redraw | Key::Suspend => return Picked::Other,
            _ => {}
        }
        Picked::Stays
    }

    /// Adds a text to the filter.
    pub(crate) fn type_text(&mut self, text: &str) {
        let space = MAX_FILTER_CHARS.saturating_sub(self.filter.chars().count());
        self.filter.extend(text.chars().filter(|c| !c.is_control()).take(space));
        self.apply_filter();
    }

    /// A conversation fits if it has each word of the filter.
    fn apply_filter(&mut self) {
        let filter = self.filter.to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        let fits = |choice: &Choice| {
            let text = format!("{} {} {}", choice.id, choice.label, choice.text).to_lowercase();
            words.iter().all(|word| text.contains(word))
        };
        let choices = self.choices.iter().enumerate();
        self.fitting = choices.filter(|(_, choice)| fits(choice)).map(|(at, _)| at).collect();
        self.chosen = 0;
    }

    /// Appends the lines of the list.
    pub(crate) fn push_lines(&self, width: usize, look: Look, to: &mut Vec<Line<'static>>) {
        let first = self.chosen.saturating_sub(MAX_ROWS - 1);
        for (n, at) in self.fitting.iter().enumerate().skip(first).take(MAX_ROWS) {
            let Some(choice) = self.choices.get(*at) else { continue };
            let (mark, style) = match n == self.chosen {
                true => (look.symbol("▸ ", "> "), look.user()),
                false => ("  ", Look::dim()),
            };
            let label = format!("{mark}{}", clean_line(&choice.label, width));
            to.push(Line::from(Span::styled(cut(&label, width), style)));
        }
        let more = if self.is_cut { " newest" } else { "" };
        let place = match (self.fitting.len(), self.choices.len()) {
            (0, all) => format!("none of {all}{more}"),
            (fitting, all) if fitting == all => format!("{} of {all}{more}", self.chosen + 1),
            (fitting, all) => format!("{} of {fitting}, all: {all}{more}", self.chosen + 1),
        };
        let filter = match self.filter.as_str() {
            "" => "type to filter".to_owned(),
            filter => format!("filter: {}", clean_line(filter, MAX_FILTER_CHARS)),
        };
        to.push(Line::from(Span::styled(cut(&format!("  {place} · {filter}"), width), Look::dim())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picker(count: usize) -> Picker {
        let choice = |n: usize| Choice {
            id: format!("01M83K9RFTGKKXBJ6W1MHEAT{n:02}"),
            label: format!("HEAT{n:02}  1h  Title {n}"),
            text: format!("the task {}", if n == 3 { "Über alles" } else { "" }),
        };
        Picker::new((0..count).map(choice).collect(), false)
    }

    fn chosen(picker: &mut Picker, keys: &[Key]) -> String {
        for key in keys {
            assert_eq!(picker.key(*key), Picked::Stays);
        }
        let Picked::Id(id) = picker.key(Key::Enter) else { return "none".to_owned() };
        id[id.len() - 2..].to_owned()
    }

    #[test]
    fn keys_move_within_the_list() {
        let check =
            |keys: &[Key], expect: &str| assert_eq!(chosen(&mut picker(30), keys), expect, "{keys:?}");
        check(&[], "00");
        check(&[Key::Up], "29");
        check(&[Key::Up, Key::Down], "00");
        check(&[Key::PageDown, Key::PageDown], "16");
        check(&[Key::PageUp], "00");
        check(&[Key::Go(Motion::End)], "29");
        check(&[Key::Go(Motion::End), Key::PageDown], "29");
        check(&[Key::Go(Motion::End), Key::PageUp], "21");
        check(&[Key::Go(Motion::End), Key::Go(Motion::Home)], "00");
    }

    #[test]
    fn what_is_typed_filters_title_text_and_id() {
        let check = |text: &str, expect: &str| {
            let mut picker = picker(30);
            picker.type_text(text);
            assert_eq!(chosen(&mut picker, &[]), expect, "{text}");
        };
        check("title 17", "17");
        check("ÜBER", "03");
        check("mheat21", "21");
        check("17 task title", "17");
        check("nothing like it", "none");
    }

    #[test]
    fn an_empty_list_takes_every_key() {
        let mut picker = picker(2);
        for key in [Key::Char('x'), Key::Char('y'), Key::Up, Key::Down, Key::PageDown, Key::Go(Motion::End)] {
            assert_eq!(picker.key(key), Picked::Stays);
        }
        assert_eq!(chosen(&mut picker, &[]), "none");
        assert_eq!(chosen(&mut picker, &[Key::Cut(Motion::Home), Key::Down]), "01");
        assert_eq!(picker.key(Key::Escape), Picked::Closed);
        assert_eq!(picker.key(Key::Suspend), Picked::Other);
    }
}
