//! Commands that are refused whatever policy says: a short list of catastrophes that no task asks for.
//!
//! A seat belt against accidents, not a boundary: who wants to can get around it. The boundary is the sandbox.

mod escape;
mod rules;
mod script;
mod target;
mod unwrap;

use std::collections::BTreeMap;

use escape::{braces, from_base64, unescape};
use rules::{Call, executed, judge, output};
use script::{Simple, parse};
use target::Target;
use unwrap::{Inner, assignment, program, unwrap};

/// Scripts within scripts that are followed.
const DEPTH: usize = 16;
/// Words that one word with braces stands for, at most; more are not looked at.
const WORDS: usize = 256;
/// Bytes of a word up to which variables in it are resolved.
const WORD: usize = 64 * 1024;

/// Why `command`, a shell script, is never run, as the end of a sentence that begins with "it"; `None` if it may be.
pub fn refused(command: &str) -> Option<&'static str> {
    Judge::default().script(command)
}

/// What is known at a point of a script.
#[derive(Debug, Default)]
struct Judge {
    depth: usize,
    /// Where the script went by `cd`.
    folder: Option<Target>,
    variables: BTreeMap<String, String>,
    /// What the command before prints into the pipe, if that can be told.
    printed: Option<String>,
}

impl Judge {
    fn script(&mut self, text: &str) -> Option<&'static str> {
        if self.depth == DEPTH {
            return Some("nests scripts too deeply to be judged");
        }
        self.depth += 1;
        let script = parse(text);
        let reason = if script.is_fork_bomb {
            Some("multiplies itself without end")
        } else {
            let inside = script.substituted.iter().find_map(|script| self.script(script));
            inside.or_else(|| script.commands.iter().find_map(|command| self.simple(command)))
        };
        self.depth -= 1;
        reason
    }

    fn simple(&mut self, command: &Simple) -> Option<&'static str> {
        let read = command.input.clone().or(self.printed.take().filter(|_| command.is_piped));
        let words = self.expanded(&command.words);
        let outputs = self.expanded(&command.outputs);
        let written = outputs.iter().find_map(|path| output(path, self.folder.as_ref()));
        written.or_else(|| self.run(&words, read))
    }

    fn run(&mut self, words: &[String], read: Option<String>) -> Option<&'static str> {
        match unwrap(words) {
            Inner::Command(words) => self.command(words, read),
            Inner::Script(script) => self.script(&script),
            Inner::Reader => read.and_then(|script| self.script(&script)),
            Inner::Fed(words) => {
                let fed = read.as_deref().unwrap_or_default().split_whitespace().map(str::to_owned);
                let words: Vec<_> = words.iter().cloned().chain(fed).collect();
                self.again(&words)
            }
            Inner::Assignments(words) => {
                let assigned = words.iter().filter_map(|word| assignment(word));
                self.variables.extend(assigned.map(|(name, value)| (name.to_owned(), value.to_owned())));
                None
            }
            Inner::Loop(name, values) => {
                self.variables.insert(name.to_owned(), values.join(" "));
                None
            }
            Inner::Nothing => None,
        }
    }

    fn command(&mut self, words: &[String], read: Option<String>) -> Option<&'static str> {
        let (first, arguments) = words.split_first()?;
        let name = program(first);
        let reason = judge(&Call { name, arguments, folder: self.folder.as_ref() });
        match name {
            "cd" | "pushd" => {
                self.folder = match arguments.iter().find(|word| !word.starts_with('-')) {
                    Some(path) => Target::of(path, self.folder.as_ref()),
                    None => Some(Target::home()),
                };
            }
            "find" => {
                return reason.or_else(|| executed(arguments).iter().find_map(|words| self.again(words)));
            }
            _ => self.printed = printed(name, arguments, read),
        }
        reason
    }

    /// Judges a command that another runs.
    fn again(&mut self, words: &[String]) -> Option<&'static str> {
        if self.depth == DEPTH {
            return Some("nests commands too deeply to be judged");
        }
        self.depth += 1;
        let reason = self.run(words, None);
        self.depth -= 1;
        reason
    }

    /// Words with the variables that are known and the braces resolved.
    fn expanded(&self, words: &[String]) -> Vec<String> {
        let mut expanded = Vec::new();
        for word in words {
            let resolved = self.resolved(word);
            let parts =
                if resolved == *word { vec![word.as_str()] } else { resolved.split_whitespace().collect() };
            expanded.extend(parts.into_iter().flat_map(|part| braces(part, WORDS)));
        }
        expanded
    }

    fn resolved(&self, word: &str) -> String {
        let mut resolved = word.to_owned();
        for (name, value) in &self.variables {
            let pattern = format!("${{{name}}}");
            if resolved.len() + resolved.matches(&pattern).count() * value.len() <= WORD {
                resolved = resolved.replace(&pattern, value);
            }
        }
        resolved
    }
}

/// What a command prints, if its arguments and what it reads tell.
fn printed(name: &str, arguments: &[String], read: Option<String>) -> Option<String> {
    match name {
        "echo" | "printf" => {
            let words =
                arguments.iter().filter(|word| !matches!(word.as_str(), "-n" | "-e" | "-ne" | "-en" | "%s"));
            Some(unescape(&words.map(String::as_str).collect::<Vec<_>>().join(" ")))
        }
        "base64" if arguments.iter().any(|word| matches!(word.as_str(), "-d" | "-D" | "--decode")) => {
            read.and_then(|text| from_base64(&text))
        }
        "cat" if arguments.iter().all(|word| word == "-") => read,
        "tee" => read,
        _ => None,
    }
}
