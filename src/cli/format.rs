//! Formats for people: durations, amounts of dollars, bytes, and text shortened to one line. `table.rs` has tables,
//! `waits.rs` the waits of a run.

use hermod_actors::SanitizedText;

use super::terminal::Charset;

/// A duration: milliseconds below a second, else seconds with one decimal.
pub(crate) fn seconds(ms: u64) -> String {
    if ms < 1_000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1_000, ms % 1_000 / 100) }
}

/// A time in whole units, the two largest: `7s`, `3m05s`, `2h00m`, `3d04h`.
pub(crate) fn age(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{:02}m", minutes % 60),
        (days, hours, _) => format!("{days}d{:02}h", hours % 24),
    }
}

/// Nano-dollars as dollars, rounded to the millionth, with at least two decimals.
pub(crate) fn dollars(nano_usd: u64) -> String {
    let micro_usd = nano_usd.saturating_add(500) / 1_000;
    let text = format!("${}.{:06}", micro_usd / 1_000_000, micro_usd % 1_000_000);
    let cents = text.len() - 4;
    let (cents, rest) = text.split_at(cents);
    format!("{cents}{}", rest.trim_end_matches('0'))
}

/// A number of bytes as text for people, such as `1.5 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// At most `max` characters on one line, sanitized for a terminal.
pub(crate) fn truncated_line(text: &str, max: usize) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().take(max.saturating_add(1)).map(plain).collect();
    let text = SanitizedText::strict(&text);
    let mut cut: String = text.chars().take(max).collect();
    if text.chars().nth(max).is_some() {
        cut.push_str(Charset::current().ellipsis());
    }
    cut
}

/// At most `max` characters of the words of a text, on one line, sanitized for a terminal.
pub(crate) fn words_line(text: &str, max: usize) -> String {
    truncated_line(&text.split_whitespace().collect::<Vec<_>>().join(" "), max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_shown_to_the_millionth() {
        let check = |nano_usd: u64, expect: &str| assert_eq!(dollars(nano_usd), expect);
        check(0, "$0.00");
        check(1_499, "$0.000001");
        check(123_456_000, "$0.123456");
        check(20_000_000, "$0.02");
        check(12_500_000_000, "$12.50");
        check(u64::MAX, "$18446744073.709551");
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(truncated_line("äöü", 2), "äö…");
        assert_eq!(truncated_line("äö", 2), "äö");
    }

    #[test]
    fn words_stand_on_one_line() {
        assert_eq!(words_line(" one\n\ttwo  three ", 20), "one two three");
        assert_eq!(words_line("one\ntwo", 5), "one t…");
    }

    #[test]
    fn an_age_has_its_two_largest_units() {
        let check = |seconds: u64, expect: &str| assert_eq!(age(seconds * 1_000 + 999), expect);
        check(0, "0s");
        check(59, "59s");
        check(185, "3m05s");
        check(7_260, "2h01m");
        check(3 * 86_400 + 4 * 3_600 + 59 * 60, "3d04h");
        assert_eq!(age(u64::MAX), "213503982334d14h");
    }

    #[test]
    fn bytes_have_a_unit() {
        let check = |n, expect: &str| assert_eq!(bytes(n), expect);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1024, "1.0 KiB");
        check(1536 * 1024, "1.5 MiB");
        check(1 << 40, "1.0 TiB");
        check(u64::MAX, "16777215.9 TiB");
    }
}
