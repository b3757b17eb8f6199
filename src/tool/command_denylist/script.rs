//! Parses shell scripts as far as the check needs it: commands, substituted scripts, and functions that only multiply
//! themselves.

use std::{collections::HashMap, iter::Peekable, str::Chars};

use super::escape::unescape;

/// The parsed form of a shell script, as far as the check needs it.
#[derive(Debug, Default)]
pub(super) struct ParsedScript {
    /// The simple commands in order, including those of subshells and groups.
    pub(super) commands: Vec<SimpleCommand>,
    /// The scripts inside command and process substitutions.
    pub(super) substituted: Vec<String>,
    /// True if the script defines a function that only multiplies itself.
    pub(super) is_fork_bomb: bool,
}

/// A simple command. Quotes and escapes are resolved; a variable in a word is `${NAME}`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    /// Assignments, name and arguments.
    pub(super) words: Vec<String>,
    /// Files to which the output goes.
    pub(super) outputs: Vec<String>,
    /// Text of a here-document or here-string.
    pub(super) input: Option<String>,
    /// True if the command reads the previous one's output.
    pub(super) is_piped: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ShellToken {
    Word(String),
    /// The end of a command: `;`, `&&`, `||` or a newline.
    End,
    Background,
    Pipe,
    Open,
    Close,
    Output,
    Input,
    HereString,
    /// A here-document, by the index of its body.
    HereDocument(usize),
}

/// Parses a script. It never fails: a malformed script is parsed as far as possible.
pub(super) fn parse(text: &str) -> ParsedScript {
    let mut lexer = Lexer::new(text);
    lexer.run();
    let is_fork_bomb = has_fork_bomb(&lexer.tokens);
    ParsedScript {
        commands: commands(&lexer.tokens, &lexer.bodies),
        substituted: lexer.substituted,
        is_fork_bomb,
    }
}

fn commands(tokens: &[ShellToken], bodies: &[String]) -> Vec<SimpleCommand> {
    let mut commands = Vec::new();
    let mut command = SimpleCommand::default();
    let mut depth = 0_usize;
    let mut tokens = tokens.iter().peekable();
    while let Some(token) = tokens.next() {
        let mut operand = || match tokens.next_if(|token| matches!(token, ShellToken::Word(_))) {
            Some(ShellToken::Word(word)) => Some(word.clone()),
            _ => None,
        };
        match token {
            ShellToken::Word(word) => command.words.push(word.clone()),
            ShellToken::Output => command.outputs.extend(operand()),
            ShellToken::Input => drop(operand()),
            ShellToken::HereString => command.input = operand(),
            ShellToken::HereDocument(body) => command.input = bodies.get(*body).cloned(),
            ShellToken::Pipe => {
                commands.push(std::mem::take(&mut command));
                command.is_piped = true;
            }
            // `f() {` is a definition, not a call.
            ShellToken::Open if tokens.next_if_eq(&&ShellToken::Close).is_some() => {
                command = SimpleCommand::default();
            }
            // `a | b) ...` in a `case`: patterns, not commands.
            ShellToken::Close if depth == 0 => {
                while command.is_piped {
                    command = commands.pop().unwrap_or_default();
                }
                command = SimpleCommand::default();
            }
            ShellToken::Open => {
                depth += 1;
                commands.push(std::mem::take(&mut command));
            }
            ShellToken::Close => {
                depth -= 1;
                commands.push(std::mem::take(&mut command));
            }
            ShellToken::End | ShellToken::Background => commands.push(std::mem::take(&mut command)),
        }
    }
    commands.push(command);
    commands.retain(|command| *command != SimpleCommand::default());
    commands
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

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    word: Option<String>,
    tokens: Vec<ShellToken>,
    substituted: Vec<String>,
    bodies: Vec<String>,
    /// Here-documents whose bodies begin after this line.
    awaited: Vec<Delimiter>,
}

struct Delimiter {
    text: String,
    is_quoted: bool,
    strips_tabs: bool,
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str) -> Self {
        let (tokens, substituted, bodies, awaited) = Default::default();
        Self { rest: text.chars().peekable(), word: None, tokens, substituted, bodies, awaited }
    }

    fn run(&mut self) {
        while let Some(c) = self.rest.next() {
            match c {
                '\n' => {
                    self.operator(ShellToken::End);
                    self.here_documents();
                }
                c if c.is_whitespace() => self.end_word(),
                '#' if self.word.is_none() => while self.rest.next_if(|c| *c != '\n').is_some() {},
                ';' | '&' | '|' | '(' | ')' => self.control(c),
                '<' | '>' => self.redirection(c),
                c => self.part(c),
            }
        }
        self.operator(ShellToken::End);
    }

    fn control(&mut self, c: char) {
        let twice = self.rest.next_if_eq(&c).is_some();
        match c {
            '&' if !twice && self.rest.next_if_eq(&'>').is_some() => {
                self.rest.next_if_eq(&'>');
                self.operator(ShellToken::Output);
            }
            '&' if !twice => self.operator(ShellToken::Background),
            '|' if !twice => {
                self.rest.next_if_eq(&'&');
                self.operator(ShellToken::Pipe);
            }
            '(' | ')' => {
                for _ in 0..=usize::from(twice) {
                    self.operator(if c == '(' { ShellToken::Open } else { ShellToken::Close });
                }
            }
            _ => self.operator(ShellToken::End),
        }
    }

    fn redirection(&mut self, c: char) {
        if self.rest.next_if_eq(&'(').is_some() {
            return self.substitution('(', ')');
        }
        // `2>file`: the number belongs to the operator.
        self.word.take_if(|word| word.chars().all(|c| c.is_ascii_digit()));
        if c == '>' {
            self.rest.next_if(|c| matches!(c, '>' | '|' | '&'));
            return self.operator(ShellToken::Output);
        }
        if self.rest.next_if_eq(&'<').is_none() {
            let writes = self.rest.next_if(|c| matches!(c, '>' | '&')) == Some('>');
            return self.operator(if writes { ShellToken::Output } else { ShellToken::Input });
        }
        if self.rest.next_if_eq(&'<').is_some() {
            return self.operator(ShellToken::HereString);
        }
        let strips_tabs = self.rest.next_if_eq(&'-').is_some();
        self.end_word();
        while self.rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        let mut raw = String::new();
        while let Some(c) = self.rest.next_if(|c| !c.is_whitespace() && !";&|<>()".contains(*c)) {
            raw.push(c);
        }
        let text: String = raw.chars().filter(|c| !"'\"\\".contains(*c)).collect();
        self.tokens.push(ShellToken::HereDocument(self.bodies.len() + self.awaited.len()));
        self.awaited.push(Delimiter { is_quoted: text != raw, text, strips_tabs });
    }

    fn here_documents(&mut self) {
        for delimiter in std::mem::take(&mut self.awaited) {
            let mut body = String::new();
            while self.rest.peek().is_some() {
                let line: String = self.rest.by_ref().take_while(|c| *c != '\n').collect();
                let line = if delimiter.strips_tabs { line.trim_start_matches('\t') } else { &line };
                if line == delimiter.text {
                    break;
                }
                body.push_str(line);
                body.push('\n');
            }
            if !delimiter.is_quoted {
                let mut expanded = Lexer::new(&body);
                expanded.double_quoted();
                self.substituted.append(&mut expanded.substituted);
            }
            self.bodies.push(body);
        }
    }

    /// Reads the part of a word that begins with `c`.
    fn part(&mut self, c: char) {
        match c {
            '\\' => match self.rest.next() {
                Some('\n') | None => {}
                Some(escaped) => self.push(escaped),
            },
            '\'' => {
                self.open_word();
                while let Some(c) = self.rest.next_if(|c| *c != '\'') {
                    self.push(c);
                }
                self.rest.next();
            }
            '"' => self.double_quoted(),
            '`' => self.substitution('`', '`'),
            '$' => self.dollar(),
            c => self.push(c),
        }
    }

    fn double_quoted(&mut self) {
        self.open_word();
        while let Some(c) = self.rest.next() {
            match c {
                '"' => return,
                '\\' => match self.rest.next_if(|c| "$`\"\\\n".contains(*c)) {
                    Some('\n') => {}
                    Some(escaped) => self.push(escaped),
                    None => self.push('\\'),
                },
                '`' => self.substitution('`', '`'),
                '$' if matches!(self.rest.peek(), Some('\'' | '"')) => self.push('$'),
                '$' => self.dollar(),
                c => self.push(c),
            }
        }
    }

    fn dollar(&mut self) {
        let name = match self.rest.peek() {
            Some('(') => {
                self.rest.next();
                return self.substitution('(', ')');
            }
            Some('\'') => {
                self.rest.next();
                let raw = self.until_quote();
                return unescape(&raw).chars().for_each(|c| self.push(c));
            }
            // `$"..."` is a translated string: its quote is read next.
            Some('"') => return,
            Some('{') => {
                self.rest.next();
                self.balanced('{', '}')
            }
            _ => self.name(),
        };
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
        match &name[..end] {
            "IFS" => self.end_word(),
            "" => self.push('$'),
            variable => format!("${{{variable}}}").chars().for_each(|c| self.push(c)),
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        // A positional parameter has one digit: `$9x` is `$9` and `x`.
        if let Some(digit) = self.rest.next_if(|c| c.is_ascii_digit() || matches!(c, '@' | '*')) {
            return digit.into();
        }
        while let Some(c) = self.rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
            name.push(c);
        }
        name
    }

    fn until_quote(&mut self) -> String {
        let mut raw = String::new();
        while let Some(c) = self.rest.next_if(|c| *c != '\'') {
            raw.push(c);
            if c == '\\' {
                raw.extend(self.rest.next());
            }
        }
        self.rest.next();
        raw
    }

    fn substitution(&mut self, open: char, close: char) {
        self.open_word();
        let inside = self.balanced(open, close);
        self.substituted.push(if open == '`' { inside.replace("\\`", "`") } else { inside });
        self.push('\u{fffc}');
    }

    /// The text up to the `close` that matches an `open` already read.
    fn balanced(&mut self, open: char, close: char) -> String {
        let (mut inside, mut depth, mut quote) = (String::new(), 1, None);
        while let Some(c) = self.rest.next() {
            match c {
                '\\' if quote != Some('\'') => {
                    inside.push(c);
                    inside.extend(self.rest.next());
                    continue;
                }
                '\'' | '"' if quote.is_none() => quote = Some(c),
                c if quote == Some(c) => quote = None,
                c if c == close && quote.is_none() => {
                    depth -= 1;
                    if depth == 0 {
                        return inside;
                    }
                }
                c if c == open && quote.is_none() => depth += 1,
                _ => {}
            }
            inside.push(c);
        }
        inside
    }

    fn open_word(&mut self) {
        self.word.get_or_insert_default();
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        self.tokens.extend(self.word.take().map(ShellToken::Word));
    }

    fn operator(&mut self, token: ShellToken) {
        self.end_word();
        self.tokens.push(token);
    }
}
