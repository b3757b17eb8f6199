//! The keys of the chat: what a key changes in the state, and what its user wants by it.

use crate::{
    command::{self, Command, Denial, help_text},
    editor::Motion,
    event::{AllowScope, ChatEvent, Intent, PageKind, Tone, Verdict},
    picker::Picked,
    state::{ChatState, Pending, Popup},
};

/// A question must be seen for so long before Enter answers it: what is sent may have been meant for the run.
const MIN_SEEN_MS: u64 = 600;
/// Within this time a second Ctrl-C leaves.
pub(crate) const QUIT_WINDOW_MS: u64 = 3_000;
/// Pictures of one message.
const MAX_IMAGES: usize = 20;

/// What comes from the keyboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A key.
    Key(Key),
    /// A pasted text.
    Paste(String),
    /// The terminal has another size.
    Resize,
}

/// A key, by what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Sends.
    Enter,
    /// A new line in the input.
    NewLine,
    /// Completes.
    Tab,
    /// Closes what is open, or stops the run.
    Escape,
    /// Removes the character before the cursor.
    Backspace,
    /// Removes the character behind the cursor.
    Delete,
    /// Moves the cursor.
    Go(Motion),
    /// Cuts up to where the motion leads.
    Cut(Motion),
    /// Puts back what was cut.
    Put,
    /// A line up, or an earlier input.
    Up,
    /// A line down, or a later input.
    Down,
    /// Scrolls up.
    PageUp,
    /// Scrolls down.
    PageDown,
    /// Shows the end of the conversation.
    ToEnd,
    /// Clears, stops or leaves.
    Interrupt,
    /// Leaves, or removes the character behind the cursor.
    EndOfInput,
    /// Unfolds or folds.
    Details,
    /// Edits the input in an editor.
    Editor,
    /// Attaches the picture of the clipboard.
    Picture,
    /// Draws the screen anew.
    Redraw,
    /// Stops the process until the shell lets it go on.
    Suspend,
}

impl ChatState {
    /// Takes what comes from the keyboard, at a time as of [`Self::apply`].
    pub fn input(&mut self, input: Input, now_ms: u64) -> Vec<Intent> {
        self.mark_changed();
        match input {
            Input::Resize => Vec::new(),
            Input::Paste(text) => self.paste(&text),
            Input::Key(key) => self.key(key, now_ms),
        }
    }

    fn paste(&mut self, text: &str) -> Vec<Intent> {
        // A file that is dropped on a terminal comes as its path.
        let path = text.trim().trim_matches(['\'', '"']).replace("\\ ", " ");
        let lower = path.to_ascii_lowercase();
        let is_picture = [".png", ".jpg", ".jpeg", ".gif", ".webp"].iter().any(|end| lower.ends_with(end));
        if is_picture && path.starts_with('/') && !path.contains('\n') {
            return vec![Intent::Command(Command::Image(Some(path)))];
        }
        if let Some(Popup::Conversations(picker)) = &mut self.popup {
            picker.type_text(text);
            return Vec::new();
        }
        self.editor.insert(&crate::wrap::clean(&text.replace("\r\n", "\n").replace('\r', "\n")));
        self.popup = None;
        Vec::new()
    }

    fn key(&mut self, key: Key, now_ms: u64) -> Vec<Intent> {
        if key != Key::Interrupt {
            self.quit_pressed_ms = None;
        }
        if let Some(intents) = self.popup_key(key, now_ms) {
            return intents;
        }
        match key {
            Key::Enter => return self.enter(now_ms),
            Key::Tab => return self.complete(),
            Key::Escape => return self.interrupt(),
            Key::Interrupt => return self.interrupt_or_quit(now_ms),
            Key::EndOfInput if self.editor.is_empty() => return vec![Intent::Quit],
            Key::Editor => return vec![Intent::EditInput(self.editor.text().to_owned())],
            Key::Picture => return vec![Intent::PastePicture],
            Key::Redraw => return vec![Intent::Redraw],
            Key::Suspend => return vec![Intent::Suspend],
            Key::Details => self.transcript.is_unfolded = !self.transcript.is_unfolded,
            Key::PageUp => self.scroll(-1),
            Key::PageDown => self.scroll(1),
            Key::ToEnd => self.transcript.go_to_end(),
            Key::Char(_)
            | Key::NewLine
            | Key::Backspace
            | Key::Delete
            | Key::Go(_)
            | Key::Cut(_)
            | Key::Put
            | Key::Up
            | Key::Down
            | Key::EndOfInput => self.edit(key),
        }
        Vec::new()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "`key` passes no other key")]
    fn edit(&mut self, key: Key) {
        match key {
            Key::Char(c) => self.editor.insert(c.encode_utf8(&mut [0; 4])),
            Key::NewLine => self.editor.insert("\n"),
            Key::Backspace if self.editor.is_empty() => drop(self.attached.pop()),
            Key::Backspace => drop(self.editor.remove(Motion::Left)),
            Key::Delete | Key::EndOfInput => drop(self.editor.remove(Motion::Right)),
            Key::Go(motion) => self.editor.go(motion),
            Key::Cut(motion) => self.editor.cut(motion),
            Key::Put => self.editor.put(),
            Key::Up if !self.editor.up() => self.editor.recall_earlier(),
            Key::Down if !self.editor.down() => self.editor.recall_later(),
            _ => {}
        }
        self.offer_commands();
    }

    /// The names of commands that the input may become.
    fn offer_commands(&mut self) {
        let text = self.editor.text();
        let is_name = text.starts_with('/') && !text.contains(char::is_whitespace);
        let candidates = if is_name { Command::names(text) } else { Vec::new() };
        let is_whole = candidates.len() == 1 && candidates[0] == text;
        self.popup = (!candidates.is_empty() && !is_whole).then_some(Popup::Completions {
            start: 0,
            candidates,
            chosen: 0,
        });
    }

    fn scroll(&mut self, pages: isize) {
        let (width, height) = self.window;
        let lines = isize::try_from(height.saturating_sub(2).max(1)).unwrap_or(1);
        self.transcript.scroll(pages.saturating_mul(lines), (width, height), self.look);
    }

    /// What a key does while texts are offered; `None` if it is for the input.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other keys are for the input")]
    fn popup_key(&mut self, key: Key, now_ms: u64) -> Option<Vec<Intent>> {
        let (count, chosen) = match self.popup.as_mut()? {
            Popup::Completions { candidates, chosen, .. } => (candidates.len(), chosen),
            Popup::Conversations(picker) => {
                let picked = picker.key(key);
                return self.on_picked(picked);
            }
        };
        match key {
            Key::Up => *chosen = chosen.checked_sub(1).unwrap_or(count - 1),
            Key::Down => *chosen = (*chosen + 1) % count,
            Key::Escape => self.popup = None,
            Key::Tab | Key::Enter => {
                let is_command = self.complete_chosen();
                if is_command && key == Key::Enter {
                    return Some(self.enter(now_ms));
                }
            }
            // Ctrl-C also clears the input.
            _ => {
                self.popup = None;
                return None;
            }
        }
        Some(Vec::new())
    }

    fn on_picked(&mut self, picked: Picked) -> Option<Vec<Intent>> {
        match picked {
            Picked::Stays => return Some(Vec::new()),
            Picked::Other => return None,
            Picked::Closed | Picked::Id(_) => self.popup = None,
        }
        let Picked::Id(id) = picked else { return Some(Vec::new()) };
        self.overview = None;
        Some(vec![Intent::Open(id)])
    }

    /// True if it is a command.
    fn complete_chosen(&mut self) -> bool {
        let Some(Popup::Completions { start, mut candidates, chosen }) = self.popup.take() else {
            return false;
        };
        let text = candidates.swap_remove(chosen);
        self.editor.complete(start, &text);
        start == 0 && text.starts_with('/')
    }

    fn enter(&mut self, now_ms: u64) -> Vec<Intent> {
        if let Some(intents) = self.decide(now_ms) {
            return intents;
        }
        let text = self.editor.text();
        if text.ends_with('\\') && self.editor.cursor() == text.len() {
            self.editor.remove(Motion::Left);
            self.editor.insert("\n");
            return Vec::new();
        }
        if text.trim().is_empty() && self.attached.is_empty() {
            return Vec::new();
        }
        let text = self.editor.take();
        self.overview = None;
        self.transcript.go_to_end();
        match Command::parse(&text) {
            Some(Ok(command)) => self.command(command),
            Some(Err(error)) => {
                self.notice(Tone::Bad, error);
                Vec::new()
            }
            None => vec![self.send(text)],
        }
    }

    /// The decision that the input is, while a call is asked about; `None` if the input is anything else. A letter alone
    /// decides nothing: it may be the first of a message.
    fn decide(&mut self, now_ms: u64) -> Option<Vec<Intent>> {
        let asked = self.question().filter(|asked| !asked.question.wants_text)?;
        let verdict = command::decision(self.editor.text().trim()).filter(|_| self.attached.is_empty())?;
        if now_ms < asked.since_ms.saturating_add(MIN_SEEN_MS) {
            return Some(Vec::new());
        }
        let call = asked.question.call;
        if verdict == Verdict::Allow(AllowScope::Always) && !asked.question.can_always {
            self.notice(Tone::Bad, "this call cannot be allowed for always; answer y, r or n");
            return Some(Vec::new());
        }
        self.editor.take();
        Some(vec![Intent::Decide(call, verdict)])
    }

    /// Sends a text, or answers the question that wants one.
    fn send(&mut self, text: String) -> Intent {
        if let Some(asked) = self.question().filter(|asked| asked.question.wants_text) {
            return Intent::Decide(asked.question.call, Verdict::Text(text));
        }
        let (local, images) = (self.next_local, std::mem::take(&mut self.attached));
        self.next_local += 1;
        let paths = images.iter().map(|(_, path)| path.clone()).collect();
        self.pending.push(Pending { local, text: text.clone(), images, message: None });
        Intent::Send { local, text, images: paths }
    }

    /// A command that the face carries out itself, or what has to be done for it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the adapter carries out all others")]
    fn command(&mut self, command: Command) -> Vec<Intent> {
        match command {
            Command::Help => {
                let (title, text) = ("Commands and keys".to_owned(), help_text());
                self.apply(ChatEvent::Page { title, text, kind: PageKind::Terms }, 0);
                Vec::new()
            }
            Command::Details => {
                self.transcript.is_unfolded = !self.transcript.is_unfolded;
                Vec::new()
            }
            Command::Quit => vec![Intent::Quit],
            Command::Stop if self.active_run().is_none() => {
                self.notice(Tone::Quiet, "no run is under way in this conversation");
                Vec::new()
            }
            Command::Stop => self.interrupt(),
            Command::Approve(words) => {
                let intent = command::answer(self.question().map(|asked| &asked.question), &words);
                self.intent_or_error(intent)
            }
            Command::Deny(words) => {
                match command::denial(self.question().map(|asked| &asked.question), self.active_run(), words)
                {
                    Ok(Denial::Intent(intent)) => vec![intent],
                    Ok(Denial::Message(reason)) => vec![self.send(reason)],
                    Err(error) => self.intent_or_error(Err(error)),
                }
            }
            Command::Resume(Some(id)) => vec![Intent::Open(id)],
            Command::Image(_) if self.attached.len() >= MAX_IMAGES => {
                self.notice(Tone::Bad, format!("a message has at most {MAX_IMAGES} pictures"));
                Vec::new()
            }
            Command::Image(None) => vec![Intent::PastePicture],
            other => vec![Intent::Command(other)],
        }
    }

    fn intent_or_error(&mut self, intent: Result<Intent, String>) -> Vec<Intent> {
        match intent {
            Ok(intent) => vec![intent],
            Err(error) => {
                self.notice(Tone::Bad, error);
                Vec::new()
            }
        }
    }

    fn complete(&mut self) -> Vec<Intent> {
        let before = &self.editor.text()[..self.editor.cursor()];
        let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = &before[start..];
        if start == 0 && word.starts_with('/') && !word[1..].contains('/') {
            let names = Command::names(word);
            self.apply(ChatEvent::Completions { start, candidates: names }, 0);
            return Vec::new();
        }
        let skipped = usize::from(word.starts_with('@'));
        vec![Intent::CompletePath { start: start + skipped, path: word[skipped..].to_owned() }]
    }

    fn interrupt(&mut self) -> Vec<Intent> {
        let Some(run) = self.active_run() else { return Vec::new() };
        self.stopping.insert(run);
        vec![Intent::Interrupt(run)]
    }

    fn interrupt_or_quit(&mut self, now_ms: u64) -> Vec<Intent> {
        if self.quit_pressed_ms.take().is_some_and(|pressed| now_ms < pressed + QUIT_WINDOW_MS) {
            return vec![Intent::Quit];
        }
        if !self.editor.is_empty() || !self.attached.is_empty() {
            self.editor.take();
            self.attached.clear();
            return Vec::new();
        }
        self.quit_pressed_ms = Some(now_ms);
        self.interrupt()
    }
}
