//! A command with its input, and the questions that rules ask about it.

use crate::policy::command::{feed::Feed, target::PathTarget};

/// A command to judge.
#[derive(Debug, Clone, Copy)]
pub(in crate::policy::command) struct Invocation<'a> {
    /// The program's name without its folder.
    pub(in crate::policy::command) name: &'a str,
    pub(in crate::policy::command) arguments: &'a [String],
    pub(in crate::policy::command) input: &'a Feed,
    /// True if it runs in the background.
    pub(in crate::policy::command) is_background: bool,
    /// The folder in which it runs, if it is known.
    pub(in crate::policy::command) folder: Option<&'a PathTarget>,
}

impl<'a> Invocation<'a> {
    /// The arguments as texts.
    pub(super) fn words(&self) -> impl DoubleEndedIterator<Item = &'a str> + Clone + use<'a> {
        self.arguments.iter().map(String::as_str)
    }

    /// True for `PROGRAM --help` and `PROGRAM VERB --help`.
    pub(super) fn asks_for_help(&self) -> bool {
        match self.arguments {
            [help] => help == "--help",
            [verb, help] => !verb.starts_with('-') && help == "--help",
            _ => false,
        }
    }

    /// True if an argument is one of these.
    pub(super) fn has(&self, words: &[&str]) -> bool {
        self.words().any(|word| words.contains(&word))
    }

    /// True if an argument begins with one of these.
    pub(super) fn begins(&self, starts: &[&str]) -> bool {
        self.words().any(|word| starts.iter().any(|start| word.starts_with(start)))
    }

    /// True if an argument contains one of these, whatever the case.
    pub(super) fn mentions(&self, parts: &[&str]) -> bool {
        self.words().any(|word| {
            let word = word.to_ascii_lowercase();
            parts.iter().any(|part| word.contains(part))
        })
    }

    /// True if an option is given: by a letter, alone or in a group, or by its long name or a prefix of that with at
    /// least three letters.
    pub(super) fn has_option(&self, letters: &str, long: &str) -> bool {
        self.words().take_while(|word| *word != "--").any(|word| match word.strip_prefix("--") {
            Some(name) => {
                let name = name.split('=').next().unwrap_or_default();
                !long.is_empty() && (name == long || (name.len() >= 3 && long.starts_with(name)))
            }
            None => word.strip_prefix('-').is_some_and(|rest| rest.contains(|c| letters.contains(c))),
        })
    }

    /// The arguments that are no options.
    pub(super) fn operands(&self) -> impl DoubleEndedIterator<Item = &'a str> + Clone + use<'a> {
        self.words().filter(|word| !word.starts_with('-') || *word == "-")
    }

    /// The first operand; `values` are the options that take a value.
    pub(super) fn verb(&self, values: &[&str]) -> Option<&'a str> {
        self.after_options(values).first().map(String::as_str)
    }

    /// The arguments from the first operand on.
    pub(super) fn after_options(&self, values: &[&str]) -> &'a [String] {
        crate::policy::command::unwrap::skip_values(self.arguments, values)
    }

    /// True if the first operands are these.
    pub(super) fn is_verb(&self, verbs: &[&str]) -> bool {
        self.operands().next().is_some_and(|verb| verbs.contains(&verb))
    }

    /// The value of an option, after it or after its `=`.
    pub(super) fn value(&self, options: &[&str]) -> Option<&'a str> {
        let mut words = self.words();
        while let Some(word) = words.next() {
            if options.contains(&word) {
                return words.next();
            }
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if options.contains(&name) && !value.is_empty() {
                return Some(value);
            }
        }
        None
    }
}
