//! Limits of a budget, parsed from `iterations=20,tokens=100000,tool_calls=50,wall=10m`. Also the parser and the
//! milliseconds of a duration, which the options of a run share.

use std::{str::FromStr, time::Duration};

use hermod_actors::model::{Amounts, Dimension, Limits};

/// Nano-dollars in a dollar.
const NANO: u64 = 1_000_000_000;

/// The limits that a text names; the others are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetLimits {
    /// The limits of the countable dimensions.
    pub amounts: Amounts,
    /// The limit of active time.
    pub wall: Option<Duration>,
}

impl BudgetLimits {
    /// Overwrites the limits that are named and keeps the others.
    pub fn apply(&self, limits: &mut Limits) {
        for dimension in Dimension::ALL {
            if let Some(amount) = self.amounts.get(dimension) {
                limits.budget.set(dimension, amount);
            }
        }
        limits.wall_ms = self.wall.map(millis).or(limits.wall_ms);
    }
}

/// A duration in milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Parses a duration such as `90s` or `10m`; rejects zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if millis(duration) > 0 => Ok(duration),
        Ok(_) => Err("must be longer than 0; write it like 90s or 10m".into()),
        Err(error) => Err(format!("{error}; write it like 90s or 10m")),
    }
}

impl FromStr for BudgetLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut budget = Self::default();
        for item in text.split(',') {
            let (name, value) = item.trim().split_once('=').ok_or_else(|| {
                format!("`{item}` is not NAME=AMOUNT; write it like iterations=20,tokens=100000,wall=10m")
            })?;
            let named_error = |reason: String| format!("{name}={value}: {reason}");
            if name == "wall" {
                check_once(budget.wall.is_some()).map_err(named_error)?;
                budget.wall = Some(parse_duration(value).map_err(named_error)?);
                continue;
            }
            let dimension = dimension(name)?;
            check_once(budget.amounts.get(dimension).is_some()).map_err(named_error)?;
            let amount = if dimension == Dimension::Usd { parse_dollars(value) } else { parse_count(value) };
            budget.amounts.set(dimension, amount.map_err(named_error)?);
        }
        Ok(budget)
    }
}

fn check_once(is_repeated: bool) -> Result<(), String> {
    if is_repeated { Err("it is said twice; leave one out".into()) } else { Ok(()) }
}

fn dimension(name: &str) -> Result<Dimension, String> {
    match name {
        "iterations" => Ok(Dimension::Iterations),
        "tokens" => Ok(Dimension::Tokens),
        "tool_calls" => Ok(Dimension::ToolCalls),
        "usd" => Ok(Dimension::Usd),
        other => {
            Err(format!("`{other}` cannot be limited; there are: iterations, tokens, tool_calls, wall, usd"))
        }
    }
}

/// Parses a whole number from 1, such as `20`, `50k` or `2m`.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    match digits.parse::<u64>().ok().and_then(|count| count.checked_mul(factor)) {
        Some(0) | None => Err("must be a whole number from 1, such as 20, 50k or 2m".into()),
        Some(count) => Ok(count),
    }
}

/// Parses dollars with at most nine decimals into nano-dollars.
pub fn parse_dollars(text: &str) -> Result<u64, String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let parse = || {
        if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) || fraction.len() > 9 {
            return None;
        }
        let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
        whole.parse::<u64>().ok()?.checked_mul(NANO)?.checked_add(fraction).filter(|nano| *nano > 0)
    };
    parse().ok_or_else(|| "must be dollars above 0 with at most nine decimals, like 0.50".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<BudgetLimits, &str>) {
        match (text.parse::<BudgetLimits>(), expect) {
            (Ok(budget), Ok(expect)) => assert_eq!(budget, expect),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (got, expect) => panic!("{text}: expected {expect:?}, got {got:?}"),
        }
    }

    #[test]
    fn each_dimension_can_be_limited() {
        let amounts = Amounts {
            iterations: Some(20),
            tokens: Some(5),
            tool_calls: Some(7),
            usd: Some(1_250_000_000),
            ..Amounts::default()
        };
        let wall = Some(Duration::from_mins(10));
        check("iterations=20,tokens=5,tool_calls=7,wall=10m,usd=1.25", Ok(BudgetLimits { amounts, wall }));
        check("wall=10m", Ok(BudgetLimits { wall, ..BudgetLimits::default() }));
        let thousands = Amounts { tokens: Some(50_000), tool_calls: Some(2_000_000), ..Amounts::default() };
        check("tokens=50k,tool_calls=2M", Ok(BudgetLimits { amounts: thousands, wall: None }));
        let small = Amounts { usd: Some(1), ..Amounts::default() };
        check("usd=0.000000001", Ok(BudgetLimits { amounts: small, wall: None }));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        check("", Err("is not NAME=AMOUNT"));
        check("iterations", Err("`iterations` is not NAME=AMOUNT"));
        check("children=3", Err("`children` cannot be limited"));
        check("iterations=0", Err("iterations=0: must be a whole number from 1"));
        check("tokens=-5", Err("tokens=-5"));
        check("tokens=99999999999999999999k", Err("must be a whole number from 1"));
        check("tokens=k", Err("must be a whole number from 1"));
        check("tokens=1,tokens=2", Err("said twice"));
        check("wall=soon", Err("wall=soon"));
        check("wall=0s", Err("longer than 0"));
        for usd in ["0", "", ".5", "-1", "1.0000000001", "99999999999999", "1e3"] {
            check(&format!("usd={usd}"), Err("must be dollars above 0"));
        }
    }

    #[test]
    fn what_is_not_said_stays() {
        let mut limits = Limits { max_tokens: 9, ..Limits::default() };
        limits.budget.iterations = Some(90);
        "tokens=5".parse::<BudgetLimits>().unwrap().apply(&mut limits);
        assert_eq!(
            (limits.budget.iterations, limits.budget.tokens, limits.max_tokens),
            (Some(90), Some(5), 9)
        );
    }
}
