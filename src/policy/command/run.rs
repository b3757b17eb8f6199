//! Judges one command: its wrappers from the outside to the inside, then what it runs, and what it changes for the rest
//! of the script.

use super::{
    CommandPart, HardRule,
    checker::{MAX_DEPTH, ScriptChecker},
    danger::{self, DECODED_SCRIPT, DOWNLOADED_SCRIPT, MADE_EXECUTABLE, SCRIPT_FROM_INPUT, UNKNOWN_SCRIPT},
    feed::{DOWNLOADERS, Feed, output_of},
    hard::{CheckedCommand, TOO_DEEP_COMMANDS, command_denial, executed_bytes, executed_commands},
    script::{REFERENCE, is_keyword},
    target::PathTarget,
    text::is_unknown_name,
    unwrap::{UnwrappedCommand, assignment, program, unwrap},
};

impl ScriptChecker {
    /// Judges a command with its wrappers; `input` is what it reads.
    pub(super) fn check_words(&mut self, words: &[String], input: Feed) -> Result<(), HardRule> {
        let mut words = words;
        loop {
            self.budget.spend_words(words)?;
            let Some((first, rest)) = words.split_first() else { return Ok(()) };
            if is_keyword(first) {
                words = rest;
                continue;
            }
            if assignment(first).is_some() {
                self.judge_assignment(first)?;
                if rest.is_empty() {
                    return self.assign_all(&words[..1]);
                }
                if rest.iter().all(|word| assignment(word).is_some()) {
                    self.assign_all(words)?;
                }
                words = rest;
                continue;
            }
            let unwrapped = unwrap(words);
            let UnwrappedCommand::Inner(inner) = unwrapped else {
                return self.check_unwrapped(words, unwrapped, input);
            };
            self.judge_wrapper(words, &input)?;
            // Rules name some wrappers themselves.
            self.deny_hard(words)?;
            words = inner;
        }
    }

    fn check_unwrapped(
        &mut self,
        words: &[String],
        unwrapped: UnwrappedCommand<'_>,
        input: Feed,
    ) -> Result<(), HardRule> {
        match unwrapped {
            UnwrappedCommand::Command | UnwrappedCommand::Inner(_) => self.check_command(words, input),
            UnwrappedCommand::Nothing => Ok(()),
            UnwrappedCommand::Script(script) => {
                self.judge_wrapper(words, &input)?;
                self.check_argument_script(&script)
            }
            UnwrappedCommand::InputScript => {
                self.judge_shell(words, &input)?;
                if self.has_document {
                    self.judge(words, CommandPart::Wrapper, Some(SCRIPT_FROM_INPUT))?;
                }
                self.check_input_script(words, input)
            }
            UnwrappedCommand::ScriptFile(path) => {
                self.judge_shell(words, &input)?;
                let text = self.file(path).cloned().unwrap_or_default();
                self.check_input_script(words, text)
            }
            UnwrappedCommand::InputArguments { words: inner, placeholder } => {
                self.judge_wrapper(words, &input)?;
                self.check_input_arguments(inner, placeholder.as_deref(), &input)
            }
            UnwrappedCommand::Assignments(words) => {
                words.iter().try_for_each(|word| self.judge_assignment(word))?;
                self.assign_all(words)
            }
            UnwrappedCommand::Loop(name, values) => {
                self.assign(name, values.join(" "));
                Ok(())
            }
        }
    }

    fn judge_wrapper(&mut self, words: &[String], input: &Feed) -> Result<(), HardRule> {
        let danger = self.danger_of(words, input);
        self.judge(words, CommandPart::Wrapper, danger)
    }

    /// A shell that reads its script runs more than what is judged here, so it counts as a command of its own.
    fn judge_shell(&mut self, words: &[String], input: &Feed) -> Result<(), HardRule> {
        let danger = self.danger_of(words, input);
        self.judge(words, CommandPart::Command, danger)
    }

    fn deny_hard(&mut self, words: &[String]) -> Result<(), HardRule> {
        let Some((first, arguments)) = words.split_first() else { return Ok(()) };
        let name = program(first);
        let rule = command_denial(&CheckedCommand { name, arguments, folder: self.folder.as_ref() });
        rule.map_or(Ok(()), Err)
    }

    fn judge_assignment(&mut self, word: &str) -> Result<(), HardRule> {
        let danger = assignment(word).and_then(|(name, value)| danger::of_assignment(name, value));
        match danger {
            Some(danger) => self.judge(&[word.to_owned()], CommandPart::Other, Some(danger)),
            None => Ok(()),
        }
    }

    fn assign_all(&mut self, words: &[String]) -> Result<(), HardRule> {
        for (name, value) in words.iter().filter_map(|word| assignment(word)) {
            self.budget.spend_word(value.len())?;
            self.assign(name, value.to_owned());
        }
        Ok(())
    }

    /// A script in an argument of a shell.
    fn check_argument_script(&mut self, script: &str) -> Result<(), HardRule> {
        let is_unknown = script.split_whitespace().next().is_none_or(|word| word.starts_with(REFERENCE));
        if is_unknown && script.contains(REFERENCE) {
            self.flag(script, UNKNOWN_SCRIPT)?;
        }
        self.check_script(script)
    }

    /// A script that a shell reads.
    fn check_input_script(&mut self, words: &[String], script: Feed) -> Result<(), HardRule> {
        let danger = match &script {
            Feed::None => return Ok(()),
            Feed::Known { is_decoded: false, .. } => None,
            Feed::Known { .. } => Some(DECODED_SCRIPT),
            Feed::Unknown { is_download: true } => Some(DOWNLOADED_SCRIPT),
            Feed::Unknown { .. } => Some(UNKNOWN_SCRIPT),
        };
        if danger.is_some() {
            self.judge(words, CommandPart::Wrapper, danger)?;
        }
        match script {
            Feed::Known { text, .. } => self.check_script(&text),
            Feed::None | Feed::Unknown { .. } => Ok(()),
        }
    }

    fn check_input_arguments(
        &mut self,
        inner: &[String],
        placeholder: Option<&str>,
        input: &Feed,
    ) -> Result<(), HardRule> {
        // Each word has at least two bytes with its separator and becomes a string of its own.
        self.budget.spend_copies(16, input.len())?;
        let text = match input {
            Feed::Known { text, .. } => text.trim(),
            Feed::None | Feed::Unknown { .. } => "\u{fffc}",
        };
        let words: Vec<String> = match placeholder.filter(|mark| inner.iter().any(|word| word.contains(mark)))
        {
            Some(mark) if !mark.is_empty() => {
                let places: usize = inner.iter().map(|word| word.matches(mark).count()).sum();
                self.budget.spend_copies(places, text.len())?;
                inner.iter().map(|word| word.replace(mark, text)).collect()
            }
            _ => inner.iter().cloned().chain(text.split_whitespace().map(str::to_owned)).collect(),
        };
        let ends_with_c = inner.last().is_some_and(|word| word.starts_with('-') && word.ends_with('c'));
        match (ends_with_c, input) {
            (true, Feed::Known { .. }) => {
                let whole: Vec<String> = inner.iter().cloned().chain([text.to_owned()]).collect();
                self.check_nested(&whole)
            }
            _ => self.check_nested(&words),
        }
    }

    fn check_command(&mut self, words: &[String], input: Feed) -> Result<(), HardRule> {
        let Some((first, arguments)) = words.split_first() else { return Ok(()) };
        let name = program(first);
        if let Some(alias) = self.aliases.remove(name) {
            let script: Vec<String> =
                alias.split_whitespace().map(str::to_owned).chain(arguments.iter().cloned()).collect();
            let result = self.check_nested(&script);
            self.aliases.insert(name.to_owned(), alias);
            return result;
        }
        self.spend_on_paths(arguments)?;
        self.deny_hard(words)?;
        let danger = match self.danger_of(words, &input) {
            None if is_unknown_name(first) => Some(UNKNOWN_SCRIPT),
            None => self.danger_of_written_program(first, arguments),
            danger => danger,
        };
        self.judge(words, CommandPart::Command, danger)?;
        if self.call_function(name, arguments)? {
            return Ok(());
        }
        match name {
            "cd" | "pushd" => {
                let folder = match arguments.iter().find(|word| !word.starts_with('-')) {
                    Some(path) => PathTarget::of(path, self.folder.as_ref()),
                    None => Some(PathTarget::home()),
                };
                self.enter(folder);
            }
            "find" => {
                self.budget.spend(executed_bytes(arguments))?;
                executed_commands(arguments).iter().try_for_each(|words| self.check_nested(words))?;
            }
            "fd" | "fdfind" => {
                let is_exec = |word: &String| matches!(&**word, "-x" | "-X" | "--exec" | "--exec-batch");
                if let Some(at) = arguments.iter().position(is_exec) {
                    self.check_nested(&arguments[at + 1..])?;
                }
            }
            "git" => self.check_git_scripts(arguments)?,
            "alias" => {
                for (name, value) in arguments.iter().filter_map(|word| assignment(word)) {
                    self.budget.spend_word(value.len())?;
                    self.check_script(value)?;
                    self.set_alias(name, value);
                }
            }
            "read" => {
                let text = input.into_text();
                for name in arguments.iter().filter(|word| !word.starts_with('-')) {
                    self.budget.spend_word(text.len())?;
                    self.assign(name, text.trim().to_owned());
                }
                return Ok(());
            }
            _ => self.note_files(name, arguments),
        }
        self.budget.spend_copies(if name == "tr" { 16 } else { 4 }, input.len())?;
        self.printed = output_of(name, arguments, input);
        Ok(())
    }

    /// Running a file that the script has downloaded, written or made executable.
    fn danger_of_written_program(&self, first: &str, arguments: &[String]) -> Option<super::Danger> {
        let is_interpreter = danger::is_interpreter(program(first));
        let operand = arguments.iter().find(|word| !word.starts_with('-')).filter(|_| is_interpreter);
        let path = operand.map_or(first, String::as_str);
        match self.file(path) {
            Some(feed) if feed.is_download() => Some(DOWNLOADED_SCRIPT),
            Some(Feed::Unknown { .. }) if is_interpreter && path.contains(REFERENCE) => Some(UNKNOWN_SCRIPT),
            _ => self.is_made_executable(first).then_some(MADE_EXECUTABLE),
        }
    }

    fn is_made_executable(&self, path: &str) -> bool {
        let name = path.strip_prefix("./").unwrap_or(path);
        let is_wild = |other: &String| other.contains(['*', '?']);
        self.executables.contains(name) || (path.contains('/') && self.executables.iter().any(is_wild))
    }

    /// Remembers the files that a command downloads or makes executable.
    fn note_files(&mut self, name: &str, arguments: &[String]) {
        let paths = arguments.iter().filter(|word| !word.starts_with('-'));
        match name {
            "chmod" => {
                let mut paths = paths;
                let is_executable = |mode: &String| mode.contains(['x', '7', '5', '1']);
                if paths.next().is_some_and(is_executable) {
                    paths.for_each(|path| self.make_executable(path));
                }
            }
            name if DOWNLOADERS.contains(&name) => {
                let download = Feed::Unknown { is_download: true };
                for path in danger::downloaded_files(name, arguments) {
                    self.write_file(path, download.clone());
                }
            }
            _ => {}
        }
    }

    /// Scripts that Git runs: aliases that begin with `!`, `submodule foreach`, `bisect run` and `rebase --exec`.
    fn check_git_scripts(&mut self, arguments: &[String]) -> Result<(), HardRule> {
        for (at, word) in arguments.iter().enumerate() {
            let after = arguments.get(at + 1..).unwrap_or_default();
            let script = match word.as_str() {
                "foreach" | "run" => after.join(" "),
                "--exec" | "-x" | "--tree-filter" | "--index-filter" | "--msg-filter" => {
                    after.first().cloned().unwrap_or_default()
                }
                word if word.contains("=!") => {
                    word.split_once("=!").map_or("", |(_, script)| script).to_owned()
                }
                _ => continue,
            };
            self.budget.spend_word(script.len())?;
            let is_run = !matches!(word.as_str(), "foreach" | "run")
                || matches!(arguments[at.saturating_sub(1)].as_str(), "submodule" | "bisect");
            if is_run {
                self.check_script(&script)?;
            }
        }
        Ok(())
    }

    /// Checks a command that another one runs.
    pub(super) fn check_nested(&mut self, words: &[String]) -> Result<(), HardRule> {
        if self.depth == MAX_DEPTH {
            return Err(TOO_DEEP_COMMANDS);
        }
        self.depth += 1;
        let result = self.check_words(words, Feed::None);
        self.depth -= 1;
        result
    }
}
