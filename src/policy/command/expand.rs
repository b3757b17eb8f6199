//! Resolves the variables of a word. Pure: the values come from a lookup.

use super::{
    HardRule,
    budget::{TOO_COMPLEX, WorkBudget},
    script::{INDEXES, REFERENCE},
};

/// Limit of parameters inside each other.
const MAX_DEPTH: usize = 8;
/// Variables whose values are absolute paths.
const PATHS: &[&str] = &["HOME", "PWD", "OLDPWD", "PATH", "SHELL", "TMPDIR"];

/// The values that a word refers to.
pub(super) trait Values {
    /// The value of a variable, if it is known.
    fn variable(&self, name: &str) -> Option<&str>;
    /// Sets a variable that has no known value.
    fn assign_default(&mut self, name: &str, value: &str);
    /// What the word has in the place of this substitution.
    fn substitution(&mut self, index: usize) -> Result<String, HardRule>;
    /// The budget that pays.
    fn budget(&mut self) -> &mut WorkBudget;
}

/// The word with all that is known in it. An unknown variable stays `${NAME}`, any other unknown part is U+FFFC.
pub(super) fn resolve(word: &str, values: &mut impl Values) -> Result<String, HardRule> {
    resolve_within(word, values, 0)
}

fn resolve_within(word: &str, values: &mut impl Values, depth: usize) -> Result<String, HardRule> {
    values.budget().spend(word.len())?;
    let (mut resolved, mut rest) = (String::new(), word);
    while let Some(at) = rest.find(['$', REFERENCE]) {
        resolved.push_str(&rest[..at]);
        let found = &rest[at..];
        if let Some(after) = found.strip_prefix("${") {
            let Some(end) = closing_brace(after) else {
                resolved.push_str(found);
                return Ok(resolved);
            };
            values.budget().spend(end)?;
            let value = parameter(&after[..end], values, depth)?;
            values.budget().spend(value.len())?;
            resolved.push_str(&value);
            rest = &after[end + 1..];
        } else if let Some(after) = found.strip_prefix(REFERENCE) {
            let index = after.chars().next().filter(|c| INDEXES.contains(c));
            rest = &after[index.map_or(0, char::len_utf8)..];
            match index {
                Some(index) => {
                    let text = values.substitution(u32::from(index) as usize - 0xf_0000)?;
                    values.budget().spend(text.len())?;
                    resolved.push_str(&text);
                }
                None => resolved.push(REFERENCE),
            }
        } else {
            resolved.push('$');
            rest = &found[1..];
        }
    }
    resolved.push_str(rest);
    Ok(resolved)
}

/// Where the parameter ends whose text begins here.
fn closing_brace(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The value of `${inside}`.
fn parameter(inside: &str, values: &mut impl Values, depth: usize) -> Result<String, HardRule> {
    if depth == MAX_DEPTH {
        return Err(TOO_COMPLEX);
    }
    let end = inside.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inside.len());
    let (name, operator) = inside.split_at(if matches!(inside, "@" | "*") { 1 } else { end });
    if name.is_empty() {
        return Ok(REFERENCE.into());
    }
    let known = values.variable(name).map(str::to_owned);
    let unknown = || Ok(format!("${{{name}}}"));
    // `:-` and `-` and so on differ for empty values only.
    let kind =
        operator.strip_prefix(':').filter(|rest| rest.starts_with(['-', '=', '+', '?'])).unwrap_or(operator);
    match (kind.chars().next(), known) {
        (None | Some('['), Some(value)) => Ok(value),
        (Some('-' | '=' | '?'), Some(value)) if !value.is_empty() => Ok(value),
        (None | Some('?'), _) => unknown(),
        (Some('-' | '='), _) if PATHS.contains(&name) => unknown(),
        (Some(kind @ ('-' | '=' | '+')), _) => {
            let value = resolve_within(&operator[operator.find(kind).unwrap_or(0) + 1..], values, depth + 1)?;
            if kind == '=' {
                values.assign_default(name, &value);
            }
            Ok(value)
        }
        (Some(':'), value) => {
            let value = value.or_else(|| PATHS.contains(&name).then(|| "/".to_owned()));
            Ok(value.and_then(|value| slice(&value, &operator[1..])).unwrap_or(REFERENCE.into()))
        }
        (Some('^'), Some(value)) => Ok(value.to_uppercase()),
        (Some(','), Some(value)) => Ok(value.to_lowercase()),
        (Some('/'), Some(value)) => Ok(replaced(&value, &operator[1..]).unwrap_or(REFERENCE.into())),
        (Some(_), _) => Ok(REFERENCE.into()),
    }
}

/// `${NAME/pattern/text}` and `${NAME//pattern/text}`, for patterns without wildcards.
fn replaced(value: &str, operator: &str) -> Option<String> {
    let (is_all, operator) = operator.strip_prefix('/').map_or((false, operator), |rest| (true, rest));
    let (pattern, text) = operator.split_once('/').unwrap_or((operator, ""));
    let is_plain =
        !pattern.is_empty() && !pattern.contains(['*', '?', '[', '$']) && text.len() <= pattern.len() + 8;
    is_plain.then(|| if is_all { value.replace(pattern, text) } else { value.replacen(pattern, text, 1) })
}

/// `${NAME:start:length}`.
fn slice(value: &str, bounds: &str) -> Option<String> {
    let (start, length) = bounds.split_once(':').unwrap_or((bounds, ""));
    let start: usize = start.trim().parse().ok()?;
    let rest = value.chars().skip(start);
    match length.trim() {
        "" => Some(rest.collect()),
        length => Some(rest.take(length.parse().ok()?).collect()),
    }
}
