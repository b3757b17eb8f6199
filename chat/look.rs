//! How the chat is drawn: styles and symbols, by what the terminal can show. Colours are the sixteen of the terminal's own
//! theme.

use ratatui_core::style::{Color, Modifier, Style};

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Colours are shown; else only bold, dim and underlined text.
    pub has_colours: bool,
    /// Symbols that are no ASCII are shown.
    pub is_unicode: bool,
}

impl Default for Look {
    fn default() -> Self {
        Self { has_colours: true, is_unicode: true }
    }
}

impl Look {
    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Secondary text.
    pub(crate) const fn dim() -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Names and headings.
    pub(crate) const fn bold() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What the user wrote.
    pub(crate) fn user(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What went well, and added lines.
    pub(crate) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    /// Failures, and removed lines.
    pub(crate) fn bad(self) -> Style {
        self.coloured(Color::Red)
    }

    /// What a person has to do, and what is under way.
    pub(crate) fn action(self) -> Style {
        self.coloured(Color::Yellow)
    }

    /// Code within a line, places in a diff.
    pub(crate) fn code(self) -> Style {
        self.coloured(Color::Cyan)
    }

    /// Headings.
    pub(crate) fn heading(self) -> Style {
        self.coloured(Color::Magenta).add_modifier(Modifier::BOLD)
    }

    /// Addresses of links.
    pub(crate) fn link(self) -> Style {
        self.coloured(Color::Blue).add_modifier(Modifier::UNDERLINED)
    }

    /// Keywords of programs.
    pub(crate) fn keyword(self) -> Style {
        self.coloured(Color::Magenta)
    }

    /// Texts in programs.
    pub(crate) fn string(self) -> Style {
        self.coloured(Color::Green)
    }

    /// Numbers in programs.
    pub(crate) fn number(self) -> Style {
        self.coloured(Color::Yellow)
    }

    /// The one of two symbols that the terminal can show.
    pub(crate) const fn symbol(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.is_unicode { unicode } else { ascii }
    }

    /// The mark of what was cut.
    pub(crate) const fn ellipsis(self) -> &'static str {
        self.symbol("…", "...")
    }

    /// The frame of the spinner at a time in milliseconds.
    pub(crate) fn spinner(self, now_ms: u64) -> &'static str {
        const BRAILLE: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
        const ASCII: [&str; 4] = ["|", "/", "-", "\\"];
        let frames: &[&str] = if self.is_unicode { &BRAILLE } else { &ASCII };
        let frame = now_ms / FRAME_MS % frames.len() as u64;
        frames[usize::try_from(frame).unwrap_or(0)]
    }
}

/// Milliseconds of a frame of the spinner.
pub const FRAME_MS: u64 = 120;
