//! A vendor's text as sentences of words, and the search for terms in them.

/// Marks the begin and the end of a clause in a sentence.
const CLAUSE: &str = ",";

/// The maximum number of words examined: a message begins with its main statement, and prose is no message.
const MAX_WORDS: usize = 120;

/// The words of one sentence. It begins and ends with the mark of a clause.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sentence<'a> {
    words: Vec<&'a str>,
}

/// Where a term stands: the index of its first word, and of the word after it.
type Span = (usize, usize);

/// The sentences of a lower-case text. Each character is looked at once.
pub(super) fn sentences(text: &str) -> Vec<Sentence<'_>> {
    let mut all = Vec::new();
    let mut words = vec![CLAUSE];
    let mut count = 0;
    for chunk in text.split_whitespace() {
        // The words of an address say nothing.
        let (chunk, is_address) =
            chunk.split_once("://").map_or((chunk, false), |(before, _)| (before, true));
        let is_name = is_name(chunk);
        let mut rest = chunk;
        while !rest.is_empty() && count < MAX_WORDS {
            let (word, after) = first_word(rest, is_name);
            rest = after;
            let ends_sentence = ends_sentence(word, rest.is_empty());
            if is_mark(word, chunk) || ends_sentence {
                if words.last() != Some(&CLAUSE) {
                    words.push(CLAUSE);
                }
            } else if is_word(word) {
                words.push(word);
                count += 1;
            }
            if ends_sentence && words.len() > 1 {
                all.push(Sentence { words: std::mem::replace(&mut words, vec![CLAUSE]) });
            }
        }
        if is_address && words.last() != Some(&CLAUSE) {
            words.push(CLAUSE);
        }
    }
    if words.last() != Some(&CLAUSE) {
        words.push(CLAUSE);
    }
    if words.len() > 1 {
        all.push(Sentence { words });
    }
    all
}

/// The first word of a chunk without spaces, or its first character that is no part of a word; and the rest.
fn first_word(chunk: &str, is_name: bool) -> (&str, &str) {
    let mut before = None;
    let mut chars = chunk.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let joins = |c: char| c.is_alphanumeric() || c == '_';
        let inside = before.is_some_and(joins) && next.is_some_and(joins);
        let digits = before.is_some_and(|c| c.is_ascii_digit()) && next.is_some_and(|c| c.is_ascii_digit());
        let continues = match c {
            c if joins(c) => before.is_none_or(|last| is_ideographic(last) == is_ideographic(c)),
            '\'' | '’' => inside,
            ',' | '.' if digits => true,
            '-' | '.' | '/' | ':' | '@' => is_name && inside,
            '<' | '>' | '=' => before.is_none_or(|last| matches!(last, '<' | '>' | '=')),
            _ => false,
        };
        let is_comparison = |c: char| matches!(c, '<' | '>' | '=');
        let changes = before.is_some_and(|last| is_comparison(last) != is_comparison(c));
        if !continues || changes {
            return chunk.split_at(if at == 0 { c.len_utf8() } else { at });
        }
        before = Some(c);
    }
    (chunk, "")
}

/// True if a chunk is one name, such as `gpt-4o` or `models/x`.
fn is_name(chunk: &str) -> bool {
    chunk.is_ascii()
        && (chunk.contains('/') || (chunk.contains('-') && chunk.bytes().any(|byte| byte.is_ascii_digit())))
}

/// Chinese, Japanese and Korean characters, which stand without spaces between them.
const fn is_ideographic(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}')
}

fn is_word(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '<' | '>' | '='))
}

fn is_mark(word: &str, chunk: &str) -> bool {
    matches!(word, "," | ":" | "(" | ")" | ";" | "—" | "–" | "，" | "：" | "、" | "（" | "）" | "|" | "·")
        || (matches!(word, "-" | "[" | "]") && chunk == word)
}

fn ends_sentence(word: &str, at_end: bool) -> bool {
    matches!(word, "。" | "！" | "？" | "；") || (at_end && matches!(word, "." | "!" | "?" | ";"))
}

impl Sentence<'_> {
    /// The places of terms, in order. A term is words with spaces between them; `*` at the end of a word stands for
    /// any rest, and a comma for the begin or end of a clause. A term in ideographs matches within a word.
    pub(super) fn spans(&self, terms: &[&str]) -> Vec<Span> {
        let at = |start: usize| {
            let longest = terms.iter().filter_map(|term| self.length_at(start, term)).max()?;
            Some((start, start + longest))
        };
        (0..self.words.len()).filter_map(at).collect()
    }

    pub(super) fn has(&self, terms: &[&str]) -> bool {
        (0..self.words.len()).any(|start| terms.iter().any(|term| self.length_at(start, term).is_some()))
    }

    /// True if the sentence consists of one of these terms.
    pub(super) fn is_only(&self, terms: &[&str]) -> bool {
        let all = self.words.len() - 2;
        terms.iter().any(|term| self.length_at(1, term) == Some(all))
    }

    /// True if one of `first` and one of `second` stand at most `gap` words from each other; `ordered`: in this order.
    pub(super) fn near(&self, first: &[&str], second: &[&str], gap: usize, ordered: bool) -> bool {
        let first = self.spans(first);
        if first.is_empty() {
            return false;
        }
        let second = self.spans(second);
        first.iter().any(|&(start, end)| {
            let at = second.partition_point(|&(other, _)| other < start);
            let same = second.get(at).is_some_and(|&(other, _)| other == start) && self.is_run(start);
            let after = second[at..].iter().find(|&&(other, _)| other >= end);
            let before = at.checked_sub(1).map(|last| second[last]);
            same || after.is_some_and(|&(other, _)| other - end <= gap)
                || (!ordered
                    && before.is_some_and(|(_, other_end)| other_end <= start && start - other_end <= gap))
        })
    }

    /// True if this word is a run of ideographs, which holds several words.
    fn is_run(&self, at: usize) -> bool {
        self.words[at].chars().next().is_some_and(is_ideographic)
    }

    fn length_at(&self, start: usize, term: &str) -> Option<usize> {
        let mut length = 0;
        for part in term.split(' ') {
            let word = self.words.get(start + length)?;
            if !is_match(word, part) {
                return None;
            }
            length += 1;
        }
        Some(length)
    }

    /// The words, with marks of clauses.
    pub(super) fn words(&self) -> &[&str] {
        &self.words
    }
}

/// The sentences up to the first of these terms.
pub(super) fn before<'a>(sentences: &[Sentence<'a>], terms: &[&str]) -> Vec<Sentence<'a>> {
    let mut all = Vec::new();
    for sentence in sentences {
        let words = &sentence.words;
        let cut = (0..words.len())
            .find(|&start| terms.iter().any(|term| sentence.length_at(start, term).is_some()));
        let mut words = words[..cut.unwrap_or(words.len())].to_vec();
        if words.last().is_some_and(|last| *last != CLAUSE) {
            words.push(CLAUSE);
        }
        if words.len() > 1 {
            all.push(Sentence { words });
        }
        if cut.is_some() {
            break;
        }
    }
    all
}

fn is_match(word: &str, part: &str) -> bool {
    match part.strip_suffix('*') {
        Some(begin) => word.starts_with(begin) && word != CLAUSE,
        None if part.starts_with(is_ideographic) => word.contains(part),
        None => word == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_sentences_of_words() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<String> =
                sentences(text).iter().map(|sentence| sentence.words.join(" ")).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("rate limit reached: slow down.", &[", rate limit reached , slow down ,"]);
        check("one. two! 三。四；", &[", one ,", ", two ,", ", 三 ,", ", 四 ,"]);
        check(
            "the model gpt-4.1-mini isn't rate-limited",
            &[", the model gpt-4.1-mini isn't rate limited ,"],
        );
        check("models/x is (131,072 > 3.5)", &[", models/x is , 131,072 > 3.5 ,"]);
        check("see https://a.com/billing. then wait", &[", see https , then wait ,"]);
        check("messages.4.content[0]: 输入token数", &[", messages 4 content 0 , 输入 token 数 ,"]);
        check("a>=b, _ - c", &[", a >= b , _ , c ,"]);
        check("", &[]);
        check(". . ,", &[]);
    }

    #[test]
    fn terms_are_words_prefixes_and_ideographs() {
        let all = sentences("context overflow: the rate limits exceeded, 输入内容过长");
        let [found] = all.as_slice() else { panic!("{all:?}") };
        let has = |term: &str| found.has(&[term]);
        assert!(has("context overflow ,") && has("rate limit*") && has("exceed* ,") && has("过长"));
        assert!(!has("overflow the") && !has("limit") && !has("limits exceed") && !has("过大"));
        assert!(found.near(&["输入"], &["过长"], 0, false));
        assert!(found.near(&["exceeded"], &["rate"], 1, false));
        assert!(!found.near(&["exceeded"], &["rate"], 1, true));
        assert!(!found.near(&["exceeded"], &["context"], 3, false));
        assert!(!found.is_only(&["context overflow"]));
        assert_eq!(before(&all, &["rate limits", "exceeded"]), sentences("context overflow: the"));
        assert_eq!(before(&all, &["context"]), []);
        assert_eq!(before(&all, &["none"]), all);
        assert!(sentences("not found.")[0].is_only(&["page not found", "not found"]));
    }
}
