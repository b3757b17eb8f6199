//! The forms in which the value of a secret appears in texts: as it is, escaped for JSON, encoded for a URL, in base64,
//! and in pieces. Pure.

use std::fmt::Write as _;

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE},
};

/// Values with fewer bytes are not redacted: texts would become unreadable, and such a value is no secret.
const MIN_VALUE_BYTES: usize = 8;
/// A value with fewer different bytes is a placeholder, such as `xxxxxxxx`.
const MIN_DIFFERENT_BYTES: usize = 4;
/// Bytes of the pieces in which a longer value is redacted. This bounds the text that a stream holds back.
const MAX_PIECE_BYTES: usize = 1_024;
/// The least bytes of a line, or a half, that is redacted on its own.
const MIN_PIECE_BYTES: usize = 16;
/// The width at which `base64` breaks its lines.
const BASE64_LINE_BYTES: usize = 76;
/// A value of fewer bytes that is a word, or words, is a setting: `POSTGRES_PASSWORD=postgres` hides no secret, and the
/// word stands in many texts.
const MAX_WORD_BYTES: usize = 16;
/// Other values that stand in for a secret.
const PLACEHOLDERS: &[&str] =
    &["changeme", "passw0rd", "sk-no-key-required", "your-api-key-here", "your_api_key_here"];

/// True if the value may be a secret, and no placeholder.
pub(super) fn may_be_secret(value: &str) -> bool {
    let mut seen = [false; 256];
    value.bytes().for_each(|byte| seen[usize::from(byte)] = true);
    let different = seen.iter().filter(|seen| **seen).count();
    value.len() >= MIN_VALUE_BYTES
        && different >= MIN_DIFFERENT_BYTES
        && !is_word(value)
        && !PLACEHOLDERS.iter().any(|word| word.eq_ignore_ascii_case(value))
}

fn is_word(value: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-' || byte == b'_';
    let rest = value.bytes().skip(1);
    let is_one_case = !rest.clone().any(|byte| byte.is_ascii_uppercase())
        || !value.bytes().any(|byte| byte.is_ascii_lowercase());
    value.len() < MAX_WORD_BYTES && value.bytes().all(is_letter) && is_one_case
}

/// The texts that are redacted for a value: no two are equal, and each has at least [`MIN_VALUE_BYTES`].
pub(super) fn forms(value: &str) -> Vec<String> {
    let mut forms: Vec<String> = Vec::new();
    for piece in pieces(value) {
        let once = json_escaped(&piece);
        forms.push(json_escaped(&once));
        forms.push(once.replace('/', "\\/"));
        forms.push(once);
        forms.push(url_encoded(&piece, |text, byte| write!(text, "%{byte:02X}")));
        forms.push(url_encoded(&piece, |text, byte| write!(text, "%{byte:02x}")));
        forms.push(piece);
    }
    forms.extend(base64_forms(value));
    forms.sort_unstable();
    forms.dedup();
    forms.retain(|form| form.len() >= MIN_VALUE_BYTES);
    forms
}

/// The value, its parts if it is long, its lines, and its halves: results of tools number lines, and cut them.
fn pieces(value: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = value;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(MAX_PIECE_BYTES));
        pieces.push(piece.to_owned());
        rest = after;
    }
    if value.contains('\n') {
        let is_frame = |line: &str| line.starts_with("-----");
        let lines = value.lines().map(str::trim);
        let lines = lines.filter(|line| (MIN_PIECE_BYTES..=MAX_PIECE_BYTES).contains(&line.len()));
        pieces.extend(lines.filter(|line| !is_frame(line)).map(str::to_owned));
    } else if (2 * MIN_PIECE_BYTES..=MAX_PIECE_BYTES).contains(&value.len()) && !value.contains("://") {
        let (first, last) = value.split_at(value.floor_char_boundary(value.len() / 2));
        pieces.extend([first, last].map(str::to_owned));
    }
    pieces
}

fn json_escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn url_encoded(text: &str, escape: impl Fn(&mut String, u8) -> std::fmt::Result) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            escape(&mut encoded, byte).expect("writing to a string does not fail");
        }
    }
    encoded
}

/// The value alone in base64, in both alphabets. Only whole groups of three bytes are part of the form, so that neither
/// padding nor a line break after the value matters. A value inside of a longer encoded text has another form.
fn base64_forms(value: &str) -> Vec<String> {
    let whole = &value.as_bytes()[..value.len() / 3 * 3];
    let mut forms = Vec::new();
    for engine in [BASE64_STANDARD, BASE64_URL_SAFE] {
        let encoded = engine.encode(whole);
        let lines = encoded.as_bytes().chunks(BASE64_LINE_BYTES).filter(|line| line.len() >= MIN_PIECE_BYTES);
        forms.extend(lines.map(|line| String::from_utf8_lossy(line).into_owned()));
        forms.extend((encoded.len() <= MAX_PIECE_BYTES).then_some(encoded));
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_and_placeholders_are_no_secrets() {
        let check = |value: &str, expect: bool| assert_eq!(may_be_secret(value), expect, "{value}");
        check("", false);
        check("ollama", false);
        check("1234567", false);
        check("12345678", true);
        check("hunter22", true);
        check("xxxxxxxxxxxxxxxx", false);
        check("********", false);
        check("ChangeMe", false);
        check("production", false);
        check("POSTGRES", false);
        check("Administrator", false);
        check("not-needed", false);
        check("sk-no-key-required", false);
        check("QwErTyUiOp", true);
        check("correct-horse-battery-staple", true);
        check("sk-acme-0123456789", true);
        check("pässwörter", true);
    }

    #[test]
    fn a_value_has_the_forms_of_the_common_encodings() {
        let check = |value: &str, expect: &[&str]| {
            let mut expect: Vec<String> = expect.iter().map(|form| (*form).to_owned()).collect();
            expect.sort_unstable();
            assert_eq!(forms(value), expect, "{value}");
        };
        // The base64 of nine bytes has whole groups only, that of eight loses two bytes.
        check("abcdef123", &["abcdef123", "YWJjZGVmMTIz"]);
        check("abcdef12", &["abcdef12", "YWJjZGVm"]);
        check(
            "ab\"c/d e",
            &[
                "ab\"c/d e",
                "ab\\\"c/d e",
                "ab\\\"c\\/d e",
                "ab\\\\\\\"c/d e",
                "ab%22c%2Fd%20e",
                "ab%22c%2fd%20e",
                "YWIiYy9k",
            ],
        );
        check(
            "~~~~????abc",
            &["~~~~????abc", "~~~~%3F%3F%3F%3Fabc", "~~~~%3f%3f%3f%3fabc", "fn5+fj8/Pz9h", "fn5-fj8_Pz9h"],
        );
    }

    #[test]
    fn lines_halves_and_parts_are_redacted_on_their_own() {
        let key =
            format!("-----BEGIN KEY-----\n{}\n{}\nshort\n-----END KEY-----", "k".repeat(64), "m".repeat(64));
        let of_key = forms(&key);
        assert!(of_key.contains(&"k".repeat(64)) && of_key.contains(&"m".repeat(64)), "{of_key:?}");
        assert!(
            !of_key
                .iter()
                .any(|form| form == "short" || form.starts_with("-----BEGIN KEY-----") && form.len() < 40)
        );
        let token = "0123456789abcdefghijklmnopqrstuv";
        let of_token = forms(token);
        assert!(of_token.contains(&token[..16].to_owned()) && of_token.contains(&token[16..].to_owned()));
        assert!(
            !forms("https://user@host.example/0123456789").iter().any(|form| form == "https://user@host")
        );
        let long: String = (0..5_000).map(|n| char::from(b'a' + u8::try_from(n % 23).unwrap())).collect();
        let of_long = forms(&long);
        assert!(of_long.iter().all(|form| form.len() <= MAX_PIECE_BYTES * 3));
        assert!(of_long.contains(&long[..1_024].to_owned()) && of_long.contains(&long[4_096..].to_owned()));
    }
}
