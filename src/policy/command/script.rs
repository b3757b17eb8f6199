//! Parses shell scripts as far as the check needs it: commands, substituted scripts, and functions that only multiply
//! themselves.

use std::{
    collections::HashMap,
    iter::Peekable,
    ops::{Range, RangeInclusive},
    str::Chars,
};

use super::escape::unescape;

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

/// Limit of quoted texts inside each other, as in `${a:-${b:-c}}`.
const MAX_QUOTED_DEPTH: usize = 8;

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
    /// True if several commands write what this one reads.
    pub(super) is_fed_by_group: bool,
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
                ShellToken::End | ShellToken::Background => self.end(),
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

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    word: Option<String>,
    tokens: Vec<ShellToken>,
    substituted: Vec<SubstitutedScript>,
    is_malformed: bool,
    has_coded_word: bool,
    /// Levels of quoted texts around this one.
    depth: usize,
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
        let (is_malformed, has_coded_word) = (false, false);
        let rest = text.chars().peekable();
        Self {
            rest,
            word: None,
            tokens,
            substituted,
            is_malformed,
            has_coded_word,
            depth: 0,
            bodies,
            awaited,
        }
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
            return self.substitution('(', ')', true);
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
                body = self.quoted_text(&body);
            }
            self.bodies.push(body);
        }
    }

    /// `text` as double quotes resolve it. Its substitutions become those of this script.
    fn quoted_text(&mut self, text: &str) -> String {
        if self.depth == MAX_QUOTED_DEPTH {
            self.is_malformed = true;
            return text.to_owned();
        }
        let mut inner = Lexer::new(text);
        inner.depth = self.depth + 1;
        inner.substituted = std::mem::take(&mut self.substituted);
        while inner.rest.peek().is_some() {
            // A quote inside is text.
            if inner.double_quoted() {
                inner.push('"');
            }
        }
        self.substituted = inner.substituted;
        self.has_coded_word |= inner.has_coded_word;
        self.is_malformed |= inner.is_malformed;
        inner.word.unwrap_or_default()
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
                self.is_malformed |= self.rest.next().is_none();
            }
            '"' => self.is_malformed |= !self.double_quoted(),
            '`' => self.substitution('`', '`', false),
            '$' => self.dollar(),
            c => self.push(c),
        }
    }

    /// Reads up to the closing quote; false if there is none.
    fn double_quoted(&mut self) -> bool {
        self.open_word();
        while let Some(c) = self.rest.next() {
            match c {
                '"' => return true,
                '\\' => match self.rest.next_if(|c| "$`\"\\\n".contains(*c)) {
                    Some('\n') => {}
                    Some(escaped) => self.push(escaped),
                    None => self.push('\\'),
                },
                '`' => self.substitution('`', '`', false),
                '$' if matches!(self.rest.peek(), Some('\'' | '"')) => self.push('$'),
                '$' => self.dollar(),
                c => self.push(c),
            }
        }
        false
    }

    fn dollar(&mut self) {
        let name = match self.rest.peek() {
            Some('(') => {
                self.rest.next();
                return self.substitution('(', ')', false);
            }
            Some('\'') => {
                self.rest.next();
                let raw = self.until_quote();
                let text = unescape(&raw);
                self.has_coded_word |= spells_letters(&raw, &text);
                self.open_word();
                return text.chars().for_each(|c| self.push(c));
            }
            // `$"..."` is a translated string: its quote is read next.
            Some('"') => return,
            Some('{') => {
                self.rest.next();
                let inside = self.balanced('{', '}');
                match inside.contains(['$', '`']) {
                    true => self.quoted_text(&inside),
                    false => inside,
                }
            }
            // `$?`, `$#`, `$$` and `$!` are numbers, `$-` are options.
            Some('?' | '#' | '$' | '!' | '-') => {
                self.push('$');
                let special = self.rest.next().unwrap_or_default();
                return self.push(special);
            }
            _ => self.name(),
        };
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
        match &name[..end] {
            "IFS" => self.end_word(),
            "" if name.is_empty() => self.push('$'),
            _ => format!("${{{name}}}").chars().for_each(|c| self.push(c)),
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
        self.is_malformed |= self.rest.next().is_none();
        raw
    }

    fn substitution(&mut self, open: char, close: char, is_file: bool) {
        self.open_word();
        let inside = self.balanced(open, close);
        if let Some(sum) = inside.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'))
            && open == '('
            && !is_file
        {
            // An arithmetic expression: only what is substituted in it runs.
            self.quoted_text(sum);
            return self.push('0');
        }
        let text = if open == '`' { unescaped_backticks(&inside) } else { inside };
        let index = self.substituted.len().min(MAX_SUBSTITUTED - 1);
        self.substituted.push(SubstitutedScript { text, is_file });
        self.push(REFERENCE);
        self.push(u32::try_from(index).ok().and_then(|n| char::from_u32(0xf_0000 + n)).unwrap_or(REFERENCE));
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
        self.is_malformed = true;
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

/// The script between backticks: a backslash before `` ` ``, `$` and itself is taken away.
fn unescaped_backticks(inside: &str) -> String {
    let (mut text, mut rest) = (String::new(), inside.chars().peekable());
    while let Some(c) = rest.next() {
        text.push(match c {
            '\\' => rest.next_if(|c| "`$\\".contains(*c)).unwrap_or(c),
            c => c,
        });
    }
    text
}

/// True if the escapes of `raw` spell letters, digits or slashes of `text` as numbers.
fn spells_letters(raw: &str, text: &str) -> bool {
    let count = |text: &str| text.chars().filter(|c| c.is_ascii_alphabetic() || *c == '/').count();
    let has_numbers =
        raw.split('\\').skip(1).any(|rest| rest.starts_with(['x', 'u', 'U', '0', '1', '2', '3']));
    let plain: String = raw.split('\\').next().unwrap_or_default().into();
    has_numbers && count(text) > count(&plain) && !text.starts_with('\u{1b}')
}
