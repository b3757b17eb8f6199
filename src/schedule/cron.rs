//! Cron expressions, and the times of a wall clock that fit them. A wall clock knows no time zone: `zone.rs` has those.

use croner::{
    Cron,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
};
use jiff::civil::DateTime;

/// Most characters of an expression.
const MAX_CHARS: usize = 200;
const RULE: &str = "write minute, hour, day of the month, month and day of the week, like \"0 6 * * mon-fri\", with seconds in front \
                    if needed; or @hourly, @daily, @weekly, @monthly, @yearly";
/// The names of expressions.
const NAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A cron expression that was read.
#[derive(Debug)]
pub(super) struct CronExpression {
    cron: Cron,
    /// Whether it fits all along, like `*/15 * * * *`, and not at fixed times of a day: its seconds, minutes or hours begin
    /// with `*`.
    pub(super) repeats_all_day: bool,
}

impl CronExpression {
    /// Reads an expression. The error says what is wrong with it, and how expressions are written.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let no_expression = |reason: &dyn std::fmt::Display| {
            format!("`{}` is no cron expression: {reason}; {RULE}", shown(text))
        };
        if text.len() > MAX_CHARS || !text.is_ascii() {
            return Err(no_expression(&format!("it is longer than {MAX_CHARS} characters, or not ASCII")));
        }
        let text = text.trim();
        let named = NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        let fields: Vec<&str> = named.map_or(text, |(_, fields)| fields).split_whitespace().collect();
        if !(5..=6).contains(&fields.len()) {
            return Err(no_expression(&format!("it has {} fields, and not 5 or 6", fields.len())));
        }
        let times = fields.len() - 3;
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(&fields.join(" ")).map_err(|error| no_expression(&error))?;
        Ok(Self { cron, repeats_all_day: fields[..times].iter().any(|field| field.starts_with('*')) })
    }

    /// The first time of a wall clock that fits, after `from`, or from it on. `None` if there is none up to the year 5000.
    pub(super) fn first(&self, from: DateTime, is_inclusive: bool) -> Result<Option<DateTime>, String> {
        match self.cron.find_next_occurrence(&from, is_inclusive) {
            Ok(found) => Ok(Some(found)),
            Err(CronError::TimeSearchLimitExceeded) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The beginning of a long text.
fn shown(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}
