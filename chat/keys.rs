//! The keys of the terminal, by what they mean to the chat.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::{
    editor::Motion,
    input::{Input, Key},
};

/// The input of an event of the terminal; `None` for one that means nothing.
pub(crate) fn input(event: Event) -> Option<Input> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => self::key(key).map(Input::Key),
        Event::Paste(text) => Some(Input::Paste(text)),
        Event::Resize(..) => Some(Input::Resize),
        Event::Key(_) | Event::Mouse(_) | Event::FocusGained | Event::FocusLost => None,
    }
}

fn key(key: KeyEvent) -> Option<Key> {
    let has = |modifier| key.modifiers.contains(modifier);
    let (is_control, is_alt) = (has(KeyModifiers::CONTROL), has(KeyModifiers::ALT));
    #[expect(clippy::wildcard_enum_match_arm, reason = "other keys mean nothing")]
    Some(match key.code {
        KeyCode::Char(c) if is_control => return control(c),
        KeyCode::Char('b') if is_alt => Key::Go(Motion::WordLeft),
        KeyCode::Char('f') if is_alt => Key::Go(Motion::WordRight),
        KeyCode::Char('d') if is_alt => Key::Cut(Motion::WordRight),
        KeyCode::Char(c) if !is_alt => Key::Char(c),
        KeyCode::Enter if is_alt || has(KeyModifiers::SHIFT) || is_control => Key::NewLine,
        KeyCode::Enter => Key::Enter,
        KeyCode::Tab => Key::Tab,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace if is_alt || is_control => Key::Cut(Motion::WordLeft),
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        KeyCode::Left if is_control || is_alt => Key::Go(Motion::WordLeft),
        KeyCode::Right if is_control || is_alt => Key::Go(Motion::WordRight),
        KeyCode::Left => Key::Go(Motion::Left),
        KeyCode::Right => Key::Go(Motion::Right),
        KeyCode::End if is_control => Key::ToEnd,
        KeyCode::Home => Key::Go(Motion::Home),
        KeyCode::End => Key::Go(Motion::End),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        _ => return None,
    })
}

const fn control(c: char) -> Option<Key> {
    Some(match c {
        'a' => Key::Go(Motion::Home),
        'b' => Key::Go(Motion::Left),
        'c' => Key::Interrupt,
        'd' => Key::EndOfInput,
        'e' => Key::Go(Motion::End),
        'f' => Key::Go(Motion::Right),
        'g' => Key::Editor,
        'h' => Key::Backspace,
        'j' => Key::NewLine,
        'k' => Key::Cut(Motion::End),
        'l' => Key::Redraw,
        'n' => Key::Down,
        'o' => Key::Details,
        'p' => Key::Up,
        'u' => Key::Cut(Motion::Home),
        'v' => Key::Picture,
        'w' => Key::Cut(Motion::WordLeft),
        'y' => Key::Put,
        'z' => Key::Suspend,
        _ => return None,
    })
}
