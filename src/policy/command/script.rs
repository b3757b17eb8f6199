//! Parses shell scripts as far as the check needs it: commands, substituted scripts, and functions that only multiply
//! themselves.

use std::{
    collections::HashMap,
    ops::{Range, RangeInclusive},
};

use super::lexer::{Lexer, ShellToken};

/// The parsed form of a shell script, as far as the check needs it.
#[derive(Debug, Default)]
pub(super) struct ParsedScript {
    /// The simple commands in order, including those of subshells and groups.
    pub(super) commands: Vec<SimpleCommand>,
    /// The scripts inside command and process substitutions; a word refers to one by its index ([`REFERENCE`]).
    pub(super) substituted: Vec<SubstitutedScript>,
    /// The functions that the script defines, in order: name and commands of the body.
    pub(super) functions: Vec<(String, Range<usize>)>,
    /// True if a quote, a substitution or a group has no end.
    pub(super) is_malformed: bool,
    /// True if a `$'...'` spells letters as numbers.
    pub(super) has_coded_word: bool,
    /// True if the script defines a function that only multiplies itself.
    pub(super) is_fork_bomb: bool,
}

/// The script of a substitution.
#[derive(Debug, Clone)]
pub(super) struct SubstitutedScript {
    pub(super) text: String,
    /// True for `<(...)` and `>(...)`: the word is a file, not the output.
    pub(super) is_file: bool,
}

/// Stands in a word for a substitution; a character of [`INDEXES`] with its index follows.
pub(super) const REFERENCE: char = '\u{fffc}';
/// The characters for indexes. [`without_references`] takes them out of the text of a script.
pub(super) const INDEXES: RangeInclusive<char> = '\u{f0000}'..='\u{ffffd}';
/// Limit of the substitutions in one script.
pub(super) const MAX_SUBSTITUTED: usize = 0xfffd;

/// Replaces the characters that mean a substitution inside this module.
pub(super) fn without_references(text: &str) -> String {
    text.replace(|c| c == REFERENCE || INDEXES.contains(&c), "\u{fffd}")
}

/// A simple command. Quotes and escapes are resolved; a variable in a word is `${NAME}`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    /// Assignments, name and arguments.
    pub(super) words: Vec<String>,
    /// Files to which the output goes.
    pub(super) outputs: Vec<String>,
    /// Files from which the input comes.
    pub(super) inputs: Vec<String>,
    /// Text of a here-document or here-string.
    pub(super) input: Option<String>,
    /// True if the command reads the previous one's output.
    pub(super) is_piped: bool,
    /// True for `command &`.
    pub(super) is_background: bool,
    /// True if several commands write what this one reads.
    pub(super) is_fed_by_group: bool,
}

/// Parses a script. It never fails: a malformed script is parsed as far as possible.
pub(super) fn parse(text: &str) -> ParsedScript {
    let mut lexer = Lexer::new(text);
    lexer.run();
    let is_fork_bomb = has_fork_bomb(&lexer.tokens);
    let collected = CommandCollector::default().collect(&lexer.tokens, &lexer.bodies);
    ParsedScript {
        is_malformed: lexer.is_malformed || !collected.groups.is_empty() || !collected.subshells.is_empty(),
        commands: collected.commands,
        functions: collected.functions,
        substituted: lexer.substituted,
        has_coded_word: lexer.has_coded_word,
        is_fork_bomb,
    }
}

/// Collects the simple commands of a script and the extents of its functions.
#[derive(Default)]
struct CommandCollector {
    commands: Vec<SimpleCommand>,
    command: SimpleCommand,
    /// For each open `(`: the number of commands before it.
    subshells: Vec<usize>,
    /// For each open `{`: the number of commands before it, and the function whose body it is.
    groups: Vec<(usize, Option<String>)>,
    functions: Vec<(String, Range<usize>)>,
    /// The function whose body comes next.
    defined: Option<String>,
    /// Number of commands in the group that has just ended.
    ended_group: usize,
    /// True if the command has a word that is no keyword.
    has_name: bool,
}

impl CommandCollector {
    fn collect(mut self, tokens: &[ShellToken], bodies: &[String]) -> Self {
        let mut tokens = tokens.iter().peekable();
        while let Some(token) = tokens.next() {
            let mut operand = || match tokens.next_if(|token| matches!(token, ShellToken::Word(_))) {
                Some(ShellToken::Word(word)) => Some(word.clone()),
                _ => None,
            };
            match token {
                ShellToken::Word(word) if word == "function" && self.command.words.is_empty() => {
                    self.defined = operand();
                }
                ShellToken::Word(word) => self.word(word),
                ShellToken::Output => self.command.outputs.extend(operand()),
                ShellToken::Input => self.command.inputs.extend(operand()),
                ShellToken::HereString => self.command.input = operand(),
                ShellToken::HereDocument(body) => self.command.input = bodies.get(*body).cloned(),
                // `f() {` is a definition, not a call.
                ShellToken::Open if tokens.next_if_eq(&&ShellToken::Close).is_some() => {
                    self.defined = std::mem::take(&mut self.command).words.pop().or(self.defined);
                    self.has_name = false;
                }
                ShellToken::Open => {
                    // The subshell's first command reads what the subshell reads.
                    let is_piped = self.command.is_piped && self.command.words.is_empty();
                    self.end();
                    self.command.is_piped = is_piped;
                    self.subshells.push(self.commands.len());
                }
                ShellToken::Close => self.close(),
                ShellToken::Pipe => {
                    let is_empty = self.command == SimpleCommand::default();
                    self.end();
                    let ended = std::mem::take(&mut self.ended_group);
                    self.command.is_piped = true;
                    self.command.is_fed_by_group = is_empty && ended > 1;
                }
                ShellToken::Background => {
                    self.command.is_background = true;
                    self.end();
                }
                ShellToken::End => self.end(),
            }
        }
        self.end();
        self
    }

    fn end(&mut self) {
        let command = std::mem::take(&mut self.command);
        self.has_name = false;
        let is_empty = command.words.is_empty()
            && command.outputs.is_empty()
            && command.inputs.is_empty()
            && command.input.is_none();
        if !is_empty {
            self.commands.push(command);
        }
    }

    fn word(&mut self, word: &str) {
        let is_first = !self.has_name;
        match word {
            "{" if is_first => {
                self.groups.push((self.commands.len(), self.defined.take()));
                // The group reads what its first command reads.
                return;
            }
            "}" if is_first => {
                self.end();
                if let Some((start, function)) = self.groups.pop() {
                    self.ended_group = self.commands.len() - start;
                    self.functions.extend(function.map(|name| (name, start..self.commands.len())));
                }
                return;
            }
            "done" | "fi" | "esac" if is_first => self.ended_group = usize::MAX,
            _ => {}
        }
        self.has_name |= !is_keyword(word);
        self.command.words.push(word.to_owned());
    }

    fn close(&mut self) {
        if let Some(start) = self.subshells.pop() {
            self.end();
            self.ended_group = self.commands.len() - start;
            return;
        }
        // `a | b) ...` in a `case`: patterns, not commands.
        while self.command.is_piped {
            self.command = self.commands.pop().unwrap_or_default();
        }
        self.command = SimpleCommand::default();
        self.has_name = false;
    }
}

/// True for a word that a command follows, as `then` and `!`.
pub(super) fn is_keyword(word: &str) -> bool {
    matches!(word, "!" | "if" | "then" | "elif" | "else" | "while" | "until" | "do" | "coproc")
}

/// True if a function like `f() { f | f & }` is among `tokens`.
fn has_fork_bomb(tokens: &[ShellToken]) -> bool {
    let functions = tokens.iter().enumerate().filter_map(|(start, _)| match &tokens[start..] {
        [ShellToken::Word(name), ShellToken::Open, ShellToken::Close, ..] => Some((name, start + 3)),
        [ShellToken::Word(keyword), ShellToken::Word(name), ..] if keyword == "function" => {
            Some((name, start + 2))
        }
        _ => None,
    });
    let mut functions = functions.peekable();
    if functions.peek().is_none() {
        return false;
    }
    let positions = |is_match: fn(&ShellToken) -> bool| -> Vec<usize> {
        tokens.iter().enumerate().filter(|(_, token)| is_match(token)).map(|(at, _)| at).collect()
    };
    let ends = positions(|token| matches!(token, ShellToken::Word(word) if word == "}"));
    let backgrounds = positions(|token| *token == ShellToken::Background);
    let mut doubled: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, three) in tokens.windows(3).enumerate() {
        if let [ShellToken::Word(left), ShellToken::Pipe, ShellToken::Word(right)] = three
            && left == right
        {
            doubled.entry(left).or_default().push(at);
        }
    }
    functions.any(|(name, body)| {
        let end = first_from(&ends, body).unwrap_or(tokens.len());
        let is_within = |positions: &[usize], length: usize| {
            first_from(positions, body).is_some_and(|at| at + length <= end)
        };
        is_within(&backgrounds, 1) && doubled.get(name.as_str()).is_some_and(|pipes| is_within(pipes, 3))
    })
}

/// The first of the sorted `positions` that is not before `start`.
fn first_from(positions: &[usize], start: usize) -> Option<usize> {
    positions.get(positions.partition_point(|position| *position < start)).copied()
}
