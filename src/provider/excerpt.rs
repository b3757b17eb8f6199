//! Excerpts of responses for error messages.

/// The start of `bytes`, for a message: one line of at most `max` characters, without control characters.
pub(super) fn excerpt(bytes: &[u8], max: usize) -> String {
    let cut = &bytes[..bytes.len().min(max * 8)];
    let text = String::from_utf8_lossy(cut);
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    let mut out: String = line.chars().take(max).collect();
    if out.len() < line.len() || cut.len() < bytes.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_on_one_line() {
        assert_eq!(excerpt(b" <html>\n\t<b>x\x1b[0m ", 99), "<html> <b>x [0m");
        assert_eq!(excerpt("äöü ß".as_bytes(), 4), "äöü …");
        assert_eq!(excerpt(b"abc", 3), "abc");
        assert_eq!(excerpt(&[b'x'; 1_000], 3), "xxx…");
        assert_eq!(excerpt(b"\xff", 3), "\u{fffd}");
    }
}
