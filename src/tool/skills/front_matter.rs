//! Parses the front matter of a `SKILL.md`, between two lines `---`: the part of YAML that texts need. A plain text may
//! contain a colon, since many skills that other parsers accept have one.

use std::{iter::Peekable, str::Lines};

use crate::excerpt::first_chars;

/// Limit of a name, in characters.
const MAX_NAME_CHARS: usize = 64;
/// Limit of a description, in characters; the remainder is cut.
const MAX_DESCRIPTION_CHARS: usize = 1024;
const END_HINT: &str = "end it with a line `---`";

/// The fields of a front matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tool) struct FrontMatter {
    pub(in crate::tool) name: String,
    /// The description on one line, truncated.
    pub(in crate::tool) description: String,
    /// The words of `env`, at the outermost level and in `metadata`. Not all need be names of variables.
    pub(in crate::tool) env: Vec<String>,
}

/// Splits a text into its front matter and its body. Errors are half sentences with the remedy.
pub(in crate::tool) fn split(text: &str) -> Result<(FrontMatter, &str), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (inside, body) = parts(text)?;
    let (mut name, mut description, mut env) = (None, None, Vec::new());
    let mut lines = inside.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((key, value)) = entry(line)? else { continue };
        let continued = continued(&mut lines, key == "env");
        let slot = match key {
            "name" => &mut name,
            "description" => &mut description,
            "env" => {
                env.extend(words(value, &continued));
                continue;
            }
            "metadata" => {
                env.extend(inner_entry(&continued, "env").map_or_else(Vec::new, |(v, l)| words(v, l)));
                continue;
            }
            _ => continue,
        };
        if slot.is_some() {
            return Err(format!("has `{key}` twice; leave one out"));
        }
        *slot = Some(scalar(key, value, &continued)?);
    }
    let name = name.ok_or("has no `name`; give it one in its front matter")?;
    let description =
        description.filter(|text| !text.is_empty()).ok_or("has no `description`; say what it is for")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(fits) {
        return Err(format!(
            "has a `name` that does not do; use at most {MAX_NAME_CHARS} letters, digits and hyphens"
        ));
    }
    let description = first_chars(&description, MAX_DESCRIPTION_CHARS).into_owned();
    Ok((FrontMatter { name, description, env }, body))
}

/// The text between the two lines, and the text after them.
fn parts(text: &str) -> Result<(&str, &str), String> {
    let mut lines = text.split_inclusive('\n');
    let is_mark = |line: &str| line.trim_end() == "---";
    let first = lines.next().filter(|line| is_mark(line));
    let start = first.ok_or("has no front matter; begin it with a line `---`")?.len();
    let mut at = start;
    for line in lines {
        let next = at + line.len();
        if is_mark(line) {
            return Ok((&text[start..at], &text[next..]));
        }
        at = next;
    }
    Err(format!("has a front matter without an end; {END_HINT}"))
}

/// Key and value of a line at the outermost level; `None` for other lines.
fn entry(line: &str) -> Result<Option<(&str, &str)>, String> {
    if line.trim().is_empty() || line.starts_with(['#', ' ', '\t', '-']) {
        return Ok(None);
    }
    let (key, value) = line.split_once(':').ok_or("has a line without a colon in its front matter")?;
    Ok(Some((key.trim(), value.trim())))
}

/// The continuation lines of an entry: they are indented or empty. Items of a list need no indentation.
fn continued<'t>(lines: &mut Peekable<Lines<'t>>, may_be_list: bool) -> Vec<&'t str> {
    let is_item = |line: &str| may_be_list && line.starts_with(['-', '#']);
    let continues = |line: &&str| line.starts_with([' ', '\t']) || line.trim().is_empty() || is_item(line);
    std::iter::from_fn(|| lines.next_if(continues)).collect()
}

/// Value and continuation lines of the entry `key` in the mapping of these lines.
fn inner_entry<'l, 't>(lines: &'l [&'t str], key: &str) -> Option<(&'t str, &'l [&'t str])> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let outer = lines.iter().find(|line| !line.trim().is_empty()).map(|line| depth(line))?;
    let value_of = |line: &'t str| line.trim().strip_prefix(key)?.trim_start().strip_prefix(':');
    let at = lines.iter().position(|line| depth(line) == outer && value_of(line).is_some())?;
    let rest = &lines[at + 1..];
    let is_next =
        |line: &&str| depth(line) <= outer && !line.trim().is_empty() && !line.trim_start().starts_with('-');
    let end = rest.iter().position(is_next).unwrap_or(rest.len());
    Some((value_of(lines[at])?.trim(), &rest[..end]))
}

/// The words of a value: of a list in either notation, or of a text with spaces or commas.
fn words(value: &str, continued: &[&str]) -> Vec<String> {
    let value = value.trim_start_matches(['|', '>']).trim_start_matches(['-', '+']);
    let lines = std::iter::once(value).chain(continued.iter().map(|line| line.trim_start()));
    let lines = lines.filter(|line| !line.starts_with('#'));
    let lines = lines.map(|line| line.split_once(" #").map_or(line, |(text, _)| text));
    let lines = lines.map(|line| line.strip_prefix('-').unwrap_or(line));
    let is_between = |c: char| c.is_whitespace() || ",[]\"'".contains(c);
    let words = lines.flat_map(|line| line.split(is_between)).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// The text of a value, on one line.
fn scalar(key: &str, value: &str, continued: &[&str]) -> Result<String, String> {
    let no_text = || format!("has a `{key}` that is no text; write it behind the colon");
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let continued: String = continued.iter().flat_map(|line| [" ", line.trim()]).collect();
    let whole = format!("{value}{continued}");
    match value.chars().next() {
        Some('|' | '>') => Ok(one_line(&continued)),
        Some('"') => {
            let end = whole.rfind('"').filter(|end| *end > 0).ok_or_else(no_text)?;
            let text: String = serde_json::from_str(&whole[..=end]).map_err(|_| no_text())?;
            Ok(one_line(&text))
        }
        Some('\'') => {
            let end = whole.rfind('\'').filter(|end| *end > 0).ok_or_else(no_text)?;
            Ok(one_line(&whole[1..end].replace("''", "'")))
        }
        Some('[' | '{' | '&' | '*' | '!' | '%' | '@' | '`') => Err(no_text()),
        Some(_) | None => {
            let text = whole.split_once(" #").map_or(whole.as_str(), |(text, _)| text);
            Ok(one_line(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(inside: &str, expect: Result<(&str, &str), &str>) {
        let text = format!("---\n{inside}---\nbody\n");
        match (split(&text), expect) {
            (Ok((found, body)), Ok(expect)) => {
                assert_eq!((found.name.as_str(), found.description.as_str()), expect);
                assert_eq!(body, "body\n");
            }
            (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
            (found, expect) => panic!("{found:?} is not {expect:?}"),
        }
    }

    #[test]
    fn texts_are_read_as_they_are_written() {
        let both = Ok(("pdf", "Reads it."));
        check("name: pdf\ndescription: Reads it.\n", both);
        check("description: 'Reads it.'\nname: \"pdf\" # its name\n", both);
        check(
            "# about\nname: pdf\n\nlicense: MIT\nmetadata:\n  name: other\n  list:\n  - x\ndescription: >-\n  Reads\n  it.\n",
            both,
        );
        check("name: pdf\ndescription:\n  Reads\n  it.\n", both);
        check("name: pdf\r\ndescription: |\r\n  Reads it.\r\n", both);
        check("name: pdf\ndescription: Use when: it's \"odd\"#1\n", Ok(("pdf", "Use when: it's \"odd\"#1")));
        check("name: pdf\ndescription: 'it''s \"odd\"'\n", Ok(("pdf", "it's \"odd\"")));
        check("name: pdf\ndescription: \"a \\\"b\\\"\\n  c\"\n", Ok(("pdf", "a \"b\" c")));
        let long = "ü".repeat(2_000);
        let cut = "ü".repeat(MAX_DESCRIPTION_CHARS) + "…";
        check(&format!("name: pdf\ndescription: {long}\n"), Ok(("pdf", &cut)));
    }

    #[test]
    fn variables_are_read_in_each_notation() {
        let check = |inside: &str, expect: &[&str]| {
            let text = format!("---\nname: pdf\n{inside}description: x\n---\n");
            let (found, _) = split(&text).unwrap();
            assert_eq!(
                (found.env, found.description.as_str()),
                (expect.iter().map(|&n| n.into()).collect(), "x")
            );
        };
        check("", &[]);
        check("env:\n", &[]);
        check("env: [ONE, \"TWO\"] # why\n", &["ONE", "TWO"]);
        check("env: [ONE,\n  TWO]\n", &["ONE", "TWO"]);
        check("env: ONE, 'TWO'\n", &["ONE", "TWO"]);
        check("env: ONE TWO\r\n", &["ONE", "TWO"]);
        check("env:\n- ONE # why\n# about\n- TWO\n", &["ONE", "TWO"]);
        check("env:\n  - ONE\n  # about\n\n  - TWO\n", &["ONE", "TWO"]);
        check("env: >-\n  ONE\n  TWO\n", &["ONE", "TWO"]);
        check("env: ONE\nmetadata:\n  env: TWO\n", &["ONE", "TWO"]);
        check("metadata:\n  author: me\n  env: [ONE,\n    TWO]\n  env2: no\n", &["ONE", "TWO"]);
        check("metadata:\n  env:\n  - ONE\n  - TWO\n  other: no\n", &["ONE", "TWO"]);
        check("metadata:\n  inner:\n    env: no\n", &[]);
        check("metadata: {}\n", &[]);
        check("environment: no\n", &[]);
        check("env: {ONE: why}\n", &["{ONE:", "why}"]);
    }

    #[test]
    fn what_does_not_do_is_named() {
        check("description: x\n", Err("no `name`"));
        check("name: pdf\n", Err("no `description`"));
        check("name: pdf\ndescription: ''\n", Err("no `description`"));
        check("name: pdf\ndescription: [a, b]\n", Err("a `description` that is no text"));
        check("name: &x pdf\ndescription: x\n", Err("a `name` that is no text"));
        check("name: a/../b\ndescription: x\n", Err("letters, digits and hyphens"));
        check("name: pdf\nname: pdf\ndescription: x\n", Err("`name` twice"));
        check("name pdf\ndescription: x\n", Err("without a colon"));
        check("name: pdf\ndescription: \"open\n", Err("no text"));
        assert!(split("# Title\n").unwrap_err().contains("begin it with"));
        assert!(split("").unwrap_err().contains("begin it with"));
        assert!(split("---\nname: pdf\n").unwrap_err().contains("end it with"));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(inside in "[a-z:'\"|>#\\n \\-\\\\é]{0,60}", text in any::<String>()) {
            let of_name = format!("---\nname: {inside}\ndescription: x\n---\n");
            let [of_env, of_metadata] = ["env", "metadata"]
                .map(|key| format!("---\n{key}: {inside}\nname: x\ndescription: x\n---\n"));
            for text in [&text, &of_name, &of_env, &of_metadata] {
                if let Ok((found, body)) = split(text) {
                    prop_assert!(text.ends_with(body) && !found.description.contains('\n'));
                }
            }
        }
    }
}
