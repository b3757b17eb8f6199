//! The section `limits`: what all runs of a store may use together in an hour, a day and a month.

use hermod_actors::model::{Amounts, StoreLimits};
use serde::Deserialize;

use super::values::{OptionalCount, OptionalDollars};

/// The section `limits`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsSection {
    /// Tokens of an hour.
    pub tokens_per_hour: OptionalCount,
    /// Tokens of a day.
    pub tokens_per_day: OptionalCount,
    /// Tokens of a month.
    pub tokens_per_month: OptionalCount,
    /// Cost of an hour.
    pub usd_per_hour: OptionalDollars,
    /// Cost of a day.
    pub usd_per_day: OptionalDollars,
    /// Cost of a month.
    pub usd_per_month: OptionalDollars,
}

impl LimitsSection {
    /// The limits by period.
    pub fn by_period(&self) -> StoreLimits {
        let of = |tokens: OptionalCount, usd: OptionalDollars| Amounts {
            tokens: tokens.0,
            usd: usd.0,
            ..Amounts::default()
        };
        StoreLimits {
            hour: of(self.tokens_per_hour, self.usd_per_hour),
            day: of(self.tokens_per_day, self.usd_per_day),
            month: of(self.tokens_per_month, self.usd_per_month),
        }
    }

    /// The key of a limit on money; `None` without one.
    pub fn money_key(&self) -> Option<&'static str> {
        let keys = [
            ("limits.usd_per_hour", self.usd_per_hour),
            ("limits.usd_per_day", self.usd_per_day),
            ("limits.usd_per_month", self.usd_per_month),
        ];
        keys.into_iter().find(|(_, limit)| limit.0.is_some()).map(|(key, _)| key)
    }
}
