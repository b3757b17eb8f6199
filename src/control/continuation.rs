//! The command with which a user continues a run that ended before it completed.

use std::{fmt, time::Duration};

use hermod_actors::model::{BudgetRefusal, Dimension, Outcome, OutcomeCause, OutcomeDetail, Period, RunId};

/// The smallest raise of the time limit to propose; a model call takes seconds.
const MIN_WALL_RAISE: Duration = Duration::from_mins(1);

/// Tokens and nano-dollars that a run used until its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct BudgetUsage {
    /// Tokens.
    pub tokens: u64,
    /// Nano-dollars.
    pub nano_usd: u64,
}

/// A command that continues a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    /// The command.
    pub command: String,
    /// What it does, as the rest of a sentence.
    pub effect: String,
}

impl fmt::Display for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "continue  `{}` {}", self.command, self.effect)
    }
}

/// How to continue a run with this end; `None` if it completed, failed or was refused.
pub fn continuation(run: RunId, ended: &OutcomeDetail, used: BudgetUsage) -> Option<Continuation> {
    let goes_on = |when: &str| {
        let command = format!("hermod run --resume {run} TEXT");
        Some(Continuation { command, effect: format!("goes on with this conversation{when}") })
    };
    let raise = match (ended.outcome, &ended.cause) {
        // No command raises a limit of the store.
        (Outcome::BudgetExhausted, Some(OutcomeCause::Limit { refusal }))
            if let Some(period) = Period::of_account(refusal.account) =>
        {
            return goes_on(&format!(" after {}, or with a larger limit in [limits]", period.ends_at()));
        }
        // A limit of subagents belongs to their parent, and no command raises it.
        (Outcome::BudgetExhausted, Some(OutcomeCause::Limit { refusal }))
            if refusal.dimension != Dimension::Children =>
        {
            limit_raise(refusal, used)
        }
        (Outcome::BudgetExhausted, Some(OutcomeCause::Time { limit_ms })) => {
            let raise = Duration::from_millis(*limit_ms).max(MIN_WALL_RAISE);
            format!("wall={}", humantime::format_duration(raise).to_string().replace(' ', ""))
        }
        (Outcome::Stopped | Outcome::TimedOut | Outcome::BudgetExhausted | Outcome::LoopDetected, _) => {
            return goes_on("");
        }
        (Outcome::Completed | Outcome::Failed | Outcome::Refused, _) => return None,
    };
    let command = format!("hermod budget add {run} {raise} --wait");
    Some(Continuation { command, effect: "lets it go on where it was".to_owned() })
}

/// The raise to propose. For tokens and dollars it suffices for some more calls like the refused one. For other
/// dimensions, or if the refused amount is unknown, it doubles the limit.
fn limit_raise(refusal: &BudgetRefusal, used: BudgetUsage) -> String {
    let dimension = refusal.dimension;
    let raise = match dimension {
        Dimension::Tokens => refusal.sufficient_raise(used.tokens),
        Dimension::Usd => refusal.sufficient_raise(used.nano_usd),
        Dimension::Iterations | Dimension::ToolCalls | Dimension::Children => None,
    };
    let raise = dimension.display(raise.unwrap_or(refusal.limit).max(1)).to_string();
    format!("{}={}", dimension.name(), raise.trim_start_matches('$'))
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{AccountId, PeriodUnit, StopReason, Timestamp};

    use super::*;

    #[track_caller]
    fn check(ended: OutcomeDetail, expect: Option<&str>) {
        let run = RunId::from_bits(7);
        let used = BudgetUsage { tokens: 90, nano_usd: 500_000_000 };
        let line = continuation(run, &ended, used).map(|continuation| continuation.to_string());
        match expect {
            Some(part) => assert!(line.as_ref().is_some_and(|line| line.contains(part)), "{line:?}"),
            None => assert_eq!(line, None),
        }
    }

    #[test]
    fn the_proposed_command_is_whole() {
        let limit = |dimension, limit, needed| {
            let (account, spent) = (AccountId::from_bits(7), 0);
            let refusal = BudgetRefusal { account, dimension, limit, spent, reserved: 0, needed };
            OutcomeDetail::with_cause(Outcome::BudgetExhausted, OutcomeCause::Limit { refusal })
        };
        check(limit(Dimension::Tokens, 100, Some(50)), Some(" tokens=190 --wait`"));
        check(limit(Dimension::Tokens, 100, None), Some(" tokens=100 --wait`"));
        check(limit(Dimension::Usd, 600_000_000, Some(100_000_000)), Some(" usd=0.3 --wait`"));
        check(limit(Dimension::Iterations, 3, Some(1)), Some(" iterations=3 --wait`"));
        check(limit(Dimension::ToolCalls, 0, Some(1)), Some(" tool_calls=1 --wait`"));
        check(limit(Dimension::Children, 1, Some(1)), Some("`hermod run --resume "));
        let day = Period::containing(PeriodUnit::Day, Timestamp(1_767_225_600_000));
        let mut of_store = limit(Dimension::Usd, 600_000_000, Some(100_000_000));
        if let Some(OutcomeCause::Limit { refusal }) = &mut of_store.cause {
            refusal.account = day.account();
        }
        check(of_store, Some(" goes on with this conversation after 2026-01-02T00:00:00Z, or with"));
        let time =
            |limit_ms| OutcomeDetail::with_cause(Outcome::BudgetExhausted, OutcomeCause::Time { limit_ms });
        check(time(1), Some(" wall=1m --wait`"));
        check(time(90_500), Some(" wall=1m30s500ms --wait`"));
        let stopped =
            OutcomeDetail::with_cause(Outcome::Stopped, OutcomeCause::Stop { reason: StopReason::Command });
        check(stopped, Some("`hermod run --resume "));
        check(
            OutcomeDetail::with_cause(Outcome::TimedOut, OutcomeCause::Time { limit_ms: 5 }),
            Some("`hermod run --resume "),
        );
        check(OutcomeDetail { outcome: Outcome::LoopDetected, cause: None }, Some("`hermod run --resume "));
        check(OutcomeDetail { outcome: Outcome::Completed, cause: None }, None);
    }
}
