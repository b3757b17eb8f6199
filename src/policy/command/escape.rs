//! Expands what hides a word from the check: escapes, Base64 and braces.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{GeneralPurpose, GeneralPurposeConfig, general_purpose::NO_PAD},
};

use super::{HardRule, budget::WorkBudget};

/// Resolves the escapes of `$'...'`, `printf` and `echo -e`: `\n`, `\x2f`, `\057`, `\u002f` and the like.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = unescape_first(&rest[at + 1..], &mut bytes);
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Resolves the escape at the start of `rest`, and returns the text after it.
fn unescape_first<'a>(rest: &'a str, bytes: &mut Vec<u8>) -> &'a str {
    let Some(kind) = rest.chars().next() else {
        bytes.push(b'\\');
        return rest;
    };
    let after = &rest[kind.len_utf8()..];
    let (code, rest) = match kind {
        'n' => (Some(u32::from('\n')), after),
        't' => (Some(u32::from('\t')), after),
        'r' => (Some(u32::from('\r')), after),
        'e' | 'E' => (Some(0x1b), after),
        'x' => parse_number(after, 2, 16),
        'u' => parse_number(after, 4, 16),
        'U' => parse_number(after, 8, 16),
        '0'..='7' => parse_number(rest, if kind == '0' { 4 } else { 3 }, 8),
        other => (Some(u32::from(other)), after),
    };
    match code.and_then(char::from_u32) {
        Some(c) if matches!(kind, 'x' | '0'..='7') && u32::from(c) < 256 => bytes.push(c as u8),
        Some(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        None => bytes.extend_from_slice(&[b'\\', kind as u8]),
    }
    rest
}

fn parse_number(text: &str, max_digits: usize, radix: u32) -> (Option<u32>, &str) {
    let digits = text.bytes().take(max_digits).take_while(|byte| char::from(*byte).is_digit(radix)).count();
    (u32::from_str_radix(&text[..digits], radix).ok(), &text[digits..])
}

/// Decodes base64 of either alphabet, ignoring padding, whitespace and an incomplete end; `None` for any other character.
pub(super) fn from_base64(text: &str) -> Option<String> {
    const LENIENT: GeneralPurposeConfig = NO_PAD.with_decode_allow_trailing_bits(true);
    let symbols = text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=');
    let standard = |byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => byte,
    };
    let mut symbols: Vec<u8> = symbols.map(standard).collect();
    // One symbol alone has no whole byte.
    symbols.truncate(symbols.len() - usize::from(symbols.len() % 4 == 1));
    let bytes = GeneralPurpose::new(&STANDARD, LENIENT).decode(symbols).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Decodes pairs of hexadecimal digits, as `xxd -r -p` does; `None` for any other character.
pub(super) fn from_hex(text: &str) -> Option<String> {
    let digits = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16));
    let digits: Vec<u8> = digits.map(|digit| u8::try_from(digit?).ok()).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Appends the brace expansion of `word` to `words`: `/{bin,etc}` becomes `/bin` and `/etc`.
pub(super) fn expand_braces(
    word: &str,
    budget: &mut WorkBudget,
    words: &mut Vec<String>,
) -> Result<(), HardRule> {
    budget.spend_word(word.len())?;
    // A stack: choices are pushed in reverse, so the words come out in order.
    let mut unexpanded = vec![word.to_owned()];
    while let Some(word) = unexpanded.pop() {
        budget.spend(word.len())?;
        let Some((before, choices, after)) = alternatives(&word) else {
            words.push(word);
            continue;
        };
        for choice in choices.split(',').rev() {
            budget.spend_word(before.len() + choice.len() + after.len())?;
            unexpanded.push(format!("{before}{choice}{after}"));
        }
    }
    Ok(())
}

/// Splits a word at its first innermost braces that contain a comma: the text before them, the choices, and the text
/// after them. `${NAME}` contains none.
fn alternatives(word: &str) -> Option<(&str, &str, &str)> {
    word.match_indices('{').find_map(|(open, _)| {
        let inside = &word[open + 1..];
        let close = inside.find(['{', '}']).filter(|end| inside[*end..].starts_with('}'))?;
        let (before, after) = (&word[..open], &inside[close + 1..]);
        let choices = &inside[..close];
        choices.contains(',').then_some((before, choices, after))
    })
}

#[cfg(test)]
mod tests {
    use super::from_base64;

    #[test]
    fn base64_is_decoded_as_far_as_a_shell_would_run_it() {
        let check =
            |text: &str, expect: Option<&str>| assert_eq!(from_base64(text).as_deref(), expect, "{text}");
        check("cm0gLXJmIC8=", Some("rm -rf /"));
        check("cm0g\nLXJm\tIC8", Some("rm -rf /"));
        check("cm0gLXJmIC8K=cm0", Some("rm -rf /\nrm"));
        check("Pj4_fn5-", Some(">>?~~~"));
        check("Pj4/fn5+c", Some(">>?~~~"));
        check("c", Some(""));
        check("cm!g", None);
        check("", Some(""));
    }
}
