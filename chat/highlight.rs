//! Colours of code: a small tokenizer that knows the comments, texts, numbers and keywords of common languages. It is
//! linear in the code, keeps its state over lines, and never fails: what it does not know stays plain.

use ratatui_core::{style::Style, text::Span};

use crate::look::Look;

/// What the tokenizer has to know about a language.
#[derive(Debug)]
struct Language {
    /// Its names after a fence, separated by spaces.
    names: &'static str,
    /// What begins a comment until the end of the line, separated by spaces.
    line_comments: &'static str,
    /// The start and the end of comments over several lines.
    block_comment: Option<(&'static str, &'static str)>,
    /// Quotes of texts, the longest first, separated by spaces. Texts in three quotes and in backticks span lines.
    quotes: &'static str,
    /// Keywords, separated by spaces.
    keywords: &'static str,
    /// Upper and lower case are the same in keywords.
    ignores_case: bool,
}

const C_BLOCK: Option<(&str, &str)> = Some(("/*", "*/"));

const LANGUAGES: &[Language] = &[
    Language {
        names: "rust rs",
        line_comments: "//",
        block_comment: C_BLOCK,
        quotes: "\"",
        keywords: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod \
            move mut pub ref return self Self static struct super trait true type unsafe use where while",
        ignores_case: false,
    },
    Language {
        names: "python py python3 starlark",
        line_comments: "#",
        block_comment: None,
        quotes: "\"\"\" ''' \" '",
        keywords: "and as assert async await break class continue def del elif else except False finally for from global if \
            import in is lambda match None nonlocal not or pass raise return True try while with yield",
        ignores_case: false,
    },
    Language {
        names: "javascript js jsx typescript ts tsx mjs cjs",
        line_comments: "//",
        block_comment: C_BLOCK,
        quotes: "\" ' `",
        keywords: "abstract any as async await boolean break case catch class const continue debugger declare default delete do \
            else enum export extends false finally for from function get if implements import in instanceof interface let new \
            null number of private protected public readonly return set static string super switch this throw true try type \
            typeof undefined var void while yield",
        ignores_case: false,
    },
    Language {
        names: "go golang",
        line_comments: "//",
        block_comment: C_BLOCK,
        quotes: "\" ' `",
        keywords: "any bool break byte case chan const continue default defer else error fallthrough false for func go goto if \
            import int interface iota map nil package range return rune select string struct switch true type var",
        ignores_case: false,
    },
    Language {
        names: "c h cpp c++ cc hpp cxx cuda objc",
        line_comments: "//",
        block_comment: C_BLOCK,
        quotes: "\" '",
        keywords: "alignas auto bool break case catch char class concept const constexpr continue default delete do double else \
            enum explicit export extern false final float for friend goto if inline int long mutable namespace new noexcept \
            nullptr operator override private protected public register requires return short signed sizeof static struct \
            switch template this throw true try typedef typename union unsigned using virtual void volatile while",
        ignores_case: false,
    },
    Language {
        names: "java kotlin kt scala groovy csharp cs c# swift dart php",
        line_comments: "//",
        block_comment: C_BLOCK,
        quotes: "\"\"\" \" '",
        keywords: "abstract as async await base boolean break byte case catch char class const continue data def default do \
            double else enum extends extension false final finally float for foreach from fun func function get goto guard if \
            implements import in init inout instanceof int interface internal is it lateinit lazy let long match mutable \
            namespace new nil null object open operator out override package private protected protocol public readonly \
            record return sealed self set short static string struct super switch this throw throws trait true try type \
            typealias typeof using val var virtual void when where while with yield",
        ignores_case: false,
    },
    Language {
        names: "shell sh bash zsh console fish dockerfile makefile make",
        line_comments: "#",
        block_comment: None,
        quotes: "\" '",
        keywords: "alias case cd declare do done echo elif else esac eval exec exit export fi for from function if in local \
            read readonly return set shift source test then trap unset until while FROM RUN COPY ADD ENV WORKDIR CMD \
            ENTRYPOINT EXPOSE ARG",
        ignores_case: false,
    },
    Language {
        names: "ruby rb elixir ex exs perl pl lua r julia jl",
        line_comments: "# --",
        block_comment: None,
        quotes: "\" '",
        keywords: "and begin break case class def defmodule defp do else elseif elsif end ensure false fn for foreach function \
            if in local module my next nil not or our raise repeat require rescue return self sub super then true undef \
            unless until use using when while yield",
        ignores_case: false,
    },
    Language {
        names: "sql postgres postgresql mysql sqlite",
        line_comments: "--",
        block_comment: C_BLOCK,
        quotes: "' \"",
        keywords: "add all alter and as asc begin between by case cast check column commit constraint create cross default \
            delete desc distinct drop else end except exists foreign from full group having if in index inner insert \
            intersect into is join key left like limit not null on or order outer primary references returning right \
            rollback select set table then transaction union unique update using values view when where with",
        ignores_case: true,
    },
    Language {
        names: "toml ini cfg conf yaml yml properties",
        line_comments: "# ;",
        block_comment: None,
        quotes: "\"\"\" ''' \" '",
        keywords: "true false null yes no on off",
        ignores_case: false,
    },
    Language {
        names: "json jsonc json5 jsonl",
        line_comments: "//",
        block_comment: C_BLOCK,
        quotes: "\"",
        keywords: "true false null",
        ignores_case: false,
    },
    Language {
        names: "html xml svg vue svelte",
        line_comments: "",
        block_comment: Some(("<!--", "-->")),
        quotes: "\" '",
        keywords: "",
        ignores_case: false,
    },
    Language {
        names: "css scss less",
        line_comments: "//",
        block_comment: C_BLOCK,
        quotes: "\" '",
        keywords: "important inherit initial none auto",
        ignores_case: false,
    },
    Language {
        names: "haskell hs ocaml ml elm nix lisp clojure scheme",
        line_comments: "-- ;",
        block_comment: Some(("{-", "-}")),
        quotes: "\"",
        keywords: "case class data def defn defun deriving do else fn fun if import in inherit instance let match module \
            newtype of open rec then type val where with",
        ignores_case: false,
    },
];

/// What is open at the end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Comment(&'static str),
    Text(&'static str),
}

/// The tokenizer of one piece of code, line by line.
#[derive(Debug)]
pub(crate) struct Highlighter {
    language: Option<&'static Language>,
    is_diff: bool,
    open: Option<Open>,
    look: Look,
}

impl Highlighter {
    /// A tokenizer for a language, by its name after a fence or the ending of a file's name.
    pub(crate) fn new(name: &str, look: Look) -> Self {
        let name = name.trim().to_ascii_lowercase();
        let is_named = |language: &&Language| language.names.split(' ').any(|known| known == name);
        let language = LANGUAGES.iter().find(is_named);
        Self { language, is_diff: matches!(&*name, "diff" | "patch" | "udiff"), open: None, look }
    }

    /// A tokenizer for the file with this name.
    pub(crate) fn of_path(path: &str, look: Look) -> Self {
        let file = path.rsplit('/').next().unwrap_or(path);
        Self::new(file.rsplit('.').next().unwrap_or(file), look)
    }

    /// The next line, coloured over `base`.
    pub(crate) fn line(&mut self, line: &str, base: Style) -> Vec<Span<'static>> {
        if self.is_diff {
            return vec![Span::styled(line.to_owned(), base.patch(diff_style(line, self.look)))];
        }
        let Some(language) = self.language else { return vec![Span::styled(line.to_owned(), base)] };
        let mut spans = Spans { base, spans: Vec::new() };
        let mut rest = line;
        while !rest.is_empty() {
            let (length, style) = self.token(language, rest, line.len() == rest.len());
            let (token, after) = rest.split_at(length);
            spans.push(token, style);
            rest = after;
        }
        spans.spans
    }

    /// The length of the next token in bytes, at least that of a character, and its style.
    fn token(&mut self, language: &'static Language, rest: &str, is_at_start: bool) -> (usize, Style) {
        let comment = Look::dim();
        match self.open {
            Some(Open::Comment(end)) => return (self.until(rest, 0, end), comment),
            Some(Open::Text(quote)) => return (self.text(rest, 0, quote), self.look.string()),
            None => {}
        }
        if let Some((start, end)) = language.block_comment.filter(|(start, _)| rest.starts_with(start)) {
            self.open = Some(Open::Comment(end));
            return (self.until(rest, start.len(), end), comment);
        }
        let is_comment =
            |start: &str| !start.is_empty() && rest.starts_with(start) && (start != ";" || is_at_start);
        if language.line_comments.split(' ').any(is_comment) {
            return (rest.len(), comment);
        }
        let mut quotes = language.quotes.split(' ');
        if let Some(quote) = quotes.find(|quote| !quote.is_empty() && rest.starts_with(quote)) {
            return (self.text(rest, quote.len(), quote), self.look.string());
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if word == 0 {
            return (rest.chars().next().map_or(1, char::len_utf8), Style::new());
        }
        let is_keyword = |keyword: &str| match language.ignores_case {
            true => keyword.eq_ignore_ascii_case(&rest[..word]),
            false => keyword == &rest[..word],
        };
        let style = if rest.starts_with(|c: char| c.is_ascii_digit()) {
            self.look.number()
        } else if language.keywords.split_ascii_whitespace().any(is_keyword) {
            self.look.keyword()
        } else {
            Style::new()
        };
        (word, style)
    }

    /// The length up to the end of a comment, from `from` on; it stays open if the end does not come.
    fn until(&mut self, rest: &str, from: usize, end: &str) -> usize {
        match rest[from..].find(end) {
            Some(at) => {
                self.open = None;
                from + at + end.len()
            }
            None => rest.len(),
        }
    }

    /// The length of a text whose quote began before `from`. Only texts in three quotes and in backticks stay open.
    fn text(&mut self, rest: &str, from: usize, quote: &'static str) -> usize {
        let mut at = from;
        while at < rest.len() {
            if rest[at..].starts_with('\\') {
                at += 1 + rest[at + 1..].chars().next().map_or(0, char::len_utf8);
            } else if rest[at..].starts_with(quote) {
                self.open = None;
                return at + quote.len();
            } else {
                at += rest[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        self.open = (quote.len() == 3 || quote == "`").then_some(Open::Text(quote));
        rest.len()
    }
}

/// Spans with neighbours of one style joined.
struct Spans {
    base: Style,
    spans: Vec<Span<'static>>,
}

impl Spans {
    fn push(&mut self, text: &str, style: Style) {
        let style = self.base.patch(style);
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(text),
            _ => self.spans.push(Span::styled(text.to_owned(), style)),
        }
    }
}

/// The style of a line of a diff.
pub(crate) fn diff_style(line: &str, look: Look) -> Style {
    if line.starts_with("+++") || line.starts_with("---") || line.starts_with("diff ") {
        Look::bold()
    } else if line.starts_with('+') {
        look.good()
    } else if line.starts_with('-') {
        look.bad()
    } else if line.starts_with("@@") {
        look.code()
    } else {
        Style::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the tokens of code: keywords as `k(…)`, texts `s(…)`, numbers `n(…)`, comments `c(…)`.
    #[track_caller]
    fn check(language: &str, code: &str, expect: &str) {
        let look = Look::default();
        let mut highlighter = Highlighter::new(language, look);
        let lines: Vec<String> = code
            .lines()
            .map(|line| {
                let spans = highlighter.line(line, Style::new());
                let mark = |span: &Span<'_>| match span.style {
                    style if style == look.keyword() => format!("k({})", span.content),
                    style if style == look.string() => format!("s({})", span.content),
                    style if style == look.number() => format!("n({})", span.content),
                    style if style == Look::dim() => format!("c({})", span.content),
                    _ => span.content.to_string(),
                };
                spans.iter().map(mark).collect()
            })
            .collect();
        assert_eq!(lines.join("\n"), expect);
    }

    #[test]
    fn tokens_of_languages() {
        check("rust", "let x = 12; // é", "k(let) x = n(12); c(// é)");
        check("rs", "fn f<'a>() -> &'a str { \"a\\\"b\" }", "k(fn) f<'a>() -> &'a str { s(\"a\\\"b\") }");
        check("rust", "a /* b\nc */ let", "a c(/* b)\nc(c */) k(let)");
        check("python", "x = '''a\nif'''\nif x:", "x = s('''a)\ns(if''')\nk(if) x:");
        check("sh", "echo \"a b\" # c", "k(echo) s(\"a b\") c(# c)");
        check("sql", "SELECT 'it' FROM t", "k(SELECT) s('it') k(FROM) t");
        check("json", "{\"a\": [1, true]}", "{s(\"a\"): [n(1), k(true)]}");
        check("js", "`a\nb` let", "s(`a)\ns(b`) k(let)");
        check(
            "c",
            "char *s = \"open\nint",
            "char *s = s(\"open)\nk(int)".replacen("char", "k(char)", 1).as_str(),
        );
    }

    #[test]
    fn what_is_not_known_stays_plain() {
        check("brainfuck", "if 1 \"a\"", "if 1 \"a\"");
        check("", "let", "let");
        check("rust", "\u{1F600}\\ é_1 \"\\", "\u{1F600}\\ é_1 s(\"\\)");
    }
}
