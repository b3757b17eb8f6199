//! Splits shell scripts into words and operators. Quotes and escapes are resolved, substituted scripts taken out.

use std::{iter::Peekable, str::Chars};

use super::{
    escape::unescape,
    script::{MAX_SUBSTITUTED, REFERENCE, SubstitutedScript},
};

/// Limit of quoted texts inside each other, as in `${a:-${b:-c}}`.
const MAX_QUOTED_DEPTH: usize = 8;

/// A word or an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShellToken {
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

/// The state of the split.
pub(super) struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    word: Option<String>,
    pub(super) tokens: Vec<ShellToken>,
    pub(super) substituted: Vec<SubstitutedScript>,
    pub(super) is_malformed: bool,
    pub(super) has_coded_word: bool,
    /// Levels of quoted texts around this one.
    depth: usize,
    pub(super) bodies: Vec<String>,
    /// Here-documents whose bodies begin after this line.
    awaited: Vec<Delimiter>,
}

struct Delimiter {
    text: String,
    is_quoted: bool,
    strips_tabs: bool,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
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

    pub(super) fn run(&mut self) {
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
