//! Checks the commands of a script in order, with its variables and its current folder. The rules for one command are
//! in `rules.rs`.

use std::collections::{BTreeMap, HashMap};

use super::{
    DenyReason,
    budget::WorkBudget,
    escape::{expand_braces, from_base64, unescape},
    rules::{CheckedCommand, command_denial, executed_bytes, executed_commands, output_denial},
    script::{SimpleCommand, parse},
    target::PathTarget,
    unwrap::{UnwrappedCommand, assignment, program, unwrap},
};

/// Limit of nested scripts and commands.
const MAX_DEPTH: usize = 16;

/// The state of the check at one point of a script.
#[derive(Debug, Default)]
pub(super) struct ScriptChecker {
    depth: usize,
    budget: WorkBudget,
    /// The current folder after `cd`, if it is known.
    folder: Option<PathTarget>,
    variables: BTreeMap<String, String>,
    /// Counts the changes of `folder` and `variables`.
    generation: u64,
    /// Cache of scripts that passed without changing the state, by generation and text, with their output. A second
    /// check would give the same result.
    checked_scripts: HashMap<(u64, String), Option<String>>,
    /// Output of the previous command into the pipe, if it can be determined.
    printed: Option<String>,
}

impl ScriptChecker {
    /// Checks a script at this point; its assignments and `cd` affect what follows.
    pub(super) fn check_script(&mut self, text: &str) -> Result<(), DenyReason> {
        if self.depth == MAX_DEPTH {
            return Err("nests scripts too deeply to be judged");
        }
        self.budget.spend(text.len())?;
        let key = (self.generation, text.to_owned());
        if let Some(printed) = self.checked_scripts.get(&key) {
            self.budget.spend(printed.as_ref().map_or(0, String::len))?;
            self.printed.clone_from(printed);
            return Ok(());
        }
        self.depth += 1;
        let result = self.check_parsed(text);
        self.depth -= 1;
        if result.is_ok() && self.generation == key.0 {
            self.budget.spend(self.printed.as_ref().map_or(0, String::len))?;
            self.checked_scripts.insert(key, self.printed.clone());
        }
        result
    }

    fn check_parsed(&mut self, text: &str) -> Result<(), DenyReason> {
        self.budget.spend_copies(8, text.len())?;
        let script = parse(text);
        if script.is_fork_bomb {
            return Err("multiplies itself without end");
        }
        script.substituted.iter().try_for_each(|script| self.check_script(script))?;
        script.commands.iter().try_for_each(|command| self.check_simple(command))
    }

    fn check_simple(&mut self, command: &SimpleCommand) -> Result<(), DenyReason> {
        let input = command.input.clone().or(self.printed.take().filter(|_| command.is_piped));
        let words = self.expand(&command.words)?;
        let outputs = self.expand(&command.outputs)?;
        self.spend_on_paths(&outputs)?;
        if let Some(reason) = outputs.iter().find_map(|path| output_denial(path, self.folder.as_ref())) {
            return Err(reason);
        }
        self.check_words(&words, input)
    }

    fn check_words(&mut self, words: &[String], input: Option<String>) -> Result<(), DenyReason> {
        self.budget.spend_words(words)?;
        match unwrap(words) {
            UnwrappedCommand::Command(words) => self.check_command(words, input),
            UnwrappedCommand::Script(script) => self.check_script(&script),
            UnwrappedCommand::InputScript => input.map_or(Ok(()), |script| self.check_script(&script)),
            UnwrappedCommand::InputArguments(words) => {
                let input = input.unwrap_or_default();
                // Each word has at least two bytes with its separator and becomes a string of its own.
                self.budget.spend_copies(16, input.len())?;
                let input_words = input.split_whitespace().map(str::to_owned);
                let words: Vec<_> = words.iter().cloned().chain(input_words).collect();
                self.check_nested(&words)
            }
            UnwrappedCommand::Assignments(words) => {
                for (name, value) in words.iter().filter_map(|word| assignment(word)) {
                    self.assign(name, value.to_owned());
                }
                Ok(())
            }
            UnwrappedCommand::Loop(name, values) => {
                self.assign(name, values.join(" "));
                Ok(())
            }
            UnwrappedCommand::Nothing => Ok(()),
        }
    }

    fn assign(&mut self, name: &str, value: String) {
        if self.variables.get(name) != Some(&value) {
            self.generation += 1;
            self.variables.insert(name.to_owned(), value);
        }
    }

    fn check_command(&mut self, words: &[String], input: Option<String>) -> Result<(), DenyReason> {
        let Some((first, arguments)) = words.split_first() else { return Ok(()) };
        let name = program(first);
        self.spend_on_paths(arguments)?;
        let reason = command_denial(&CheckedCommand { name, arguments, folder: self.folder.as_ref() });
        reason.map_or(Ok(()), Err)?;
        match name {
            "cd" | "pushd" => {
                let folder = match arguments.iter().find(|word| !word.starts_with('-')) {
                    Some(path) => PathTarget::of(path, self.folder.as_ref()),
                    None => Some(PathTarget::home()),
                };
                if folder != self.folder {
                    self.generation += 1;
                    self.folder = folder;
                }
                Ok(())
            }
            "find" => {
                self.budget.spend(executed_bytes(arguments))?;
                executed_commands(arguments).iter().try_for_each(|words| self.check_nested(words))
            }
            _ => {
                self.printed = printed_text(name, arguments, input);
                Ok(())
            }
        }
    }

    /// Checks a command that another one runs.
    fn check_nested(&mut self, words: &[String]) -> Result<(), DenyReason> {
        if self.depth == MAX_DEPTH {
            return Err("nests commands too deeply to be judged");
        }
        self.depth += 1;
        let result = self.check_words(words, None);
        self.depth -= 1;
        result
    }

    /// Pays for resolving paths: each copies the current folder.
    fn spend_on_paths(&mut self, paths: &[String]) -> Result<(), DenyReason> {
        let names = self.folder.as_ref().map_or(0, PathTarget::len);
        self.budget.spend_copies(paths.len(), 8 * names)
    }

    /// Words with known variables and braces expanded.
    fn expand(&mut self, words: &[String]) -> Result<Vec<String>, DenyReason> {
        let mut expanded = Vec::new();
        for word in words {
            let resolved = self.resolve(word)?;
            let is_same = resolved == *word;
            let parts = if is_same { vec![word.as_str()] } else { resolved.split_whitespace().collect() };
            for part in parts {
                expand_braces(part, &mut self.budget, &mut expanded)?;
            }
        }
        Ok(expanded)
    }

    /// A word with each known `${NAME}` replaced by its value; the values are not expanded again.
    fn resolve(&mut self, word: &str) -> Result<String, DenyReason> {
        self.budget.spend(word.len())?;
        let (mut resolved, mut rest) = (String::new(), word);
        while let Some((before, after)) = rest.split_once("${") {
            resolved.push_str(before);
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            let value = self.variables.get(&after[..end]).filter(|_| after[end..].starts_with('}'));
            if let Some(value) = value {
                self.budget.spend(value.len())?;
                resolved.push_str(value);
                rest = &after[end + 1..];
            } else {
                resolved.push_str("${");
                rest = after;
            }
        }
        resolved.push_str(rest);
        Ok(resolved)
    }
}

/// The output of a command, if its arguments and its input determine it.
fn printed_text(name: &str, arguments: &[String], input: Option<String>) -> Option<String> {
    match name {
        "echo" | "printf" => {
            let words =
                arguments.iter().filter(|word| !matches!(word.as_str(), "-n" | "-e" | "-ne" | "-en" | "%s"));
            Some(unescape(&words.map(String::as_str).collect::<Vec<_>>().join(" ")))
        }
        "base64" if arguments.iter().any(|word| matches!(word.as_str(), "-d" | "-D" | "--decode")) => {
            input.and_then(|text| from_base64(&text))
        }
        "cat" if arguments.iter().all(|word| word == "-") => input,
        "tee" => input,
        _ => None,
    }
}
