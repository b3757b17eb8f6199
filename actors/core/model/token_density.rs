//! Token density of a model's requests and its correction by reported usage. Also the limits in a provider's list of
//! models, and the index row of a model.

use serde::{Deserialize, Serialize};

use super::{ModelRef, Timestamp};

/// Tokens in 1,000 bytes of a request: an estimate, corrected by the usage that providers report.
///
/// The correction prefers too many tokens, so that a wrong report never makes a reservation much too small. The
/// estimate rises by up to 89 % of the difference to a report, and falls by at most a quarter of it; long requests
/// weigh more. A report of more than 10 bytes or less than one byte a token is ignored: it counts something other than
/// this text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u16", into = "u16")]
pub struct TokenDensity(u16);

/// Least plausible density, in tokens per 1,000 bytes.
const MIN_PER_1000: u16 = 100;
/// Greatest plausible density, in tokens per 1,000 bytes.
const MAX_PER_1000: u16 = 1_000;
/// Shorter requests are ignored: the provider's own additions dominate them.
const MIN_SAMPLE_BYTES: u64 = 2_000;
/// Maximum weight of one request against the estimate, in bytes.
const MAX_SAMPLE_BYTES: u64 = 64_000;
/// Weight of the present estimate in bytes, against a report that is above it.
const WEIGHT_UP_BYTES: u64 = 8_000;
/// Weight of the present estimate in bytes, against a report that is below it.
const WEIGHT_DOWN_BYTES: u64 = 192_000;

impl TokenDensity {
    /// The density of an unknown model: 4 bytes a token.
    pub const GUESS: Self = Self(250);

    /// The tokens of `bytes` bytes, rounded down.
    pub fn tokens(self, bytes: u64) -> u64 {
        scale(bytes, u64::from(self.0), 1_000)
    }

    /// The bytes of `tokens` tokens, rounded down.
    pub fn bytes(self, tokens: u64) -> u64 {
        scale(tokens, 1_000, u64::from(self.0))
    }

    /// Thousandths of tokens of `bytes` bytes, for comparisons.
    pub fn milli_tokens(self, bytes: usize) -> u64 {
        (bytes as u64).saturating_mul(u64::from(self.0))
    }

    /// The density, corrected by a request of `bytes` bytes for which `tokens` tokens were reported.
    #[must_use]
    pub fn corrected(self, bytes: u64, tokens: u64) -> Self {
        let reported = u16::try_from(scale_to_nearest(tokens, 1_000, bytes.max(1))).unwrap_or(u16::MAX);
        if bytes < MIN_SAMPLE_BYTES || !(MIN_PER_1000..=MAX_PER_1000).contains(&reported) {
            return self;
        }
        let bytes = bytes.min(MAX_SAMPLE_BYTES);
        let mean = |inertia: u64| u64::from(self.0) * inertia + u64::from(reported) * bytes;
        // Rounded towards the sample, so that repeated samples reach it.
        let corrected = if reported > self.0 {
            mean(WEIGHT_UP_BYTES).div_ceil(WEIGHT_UP_BYTES + bytes)
        } else {
            mean(WEIGHT_DOWN_BYTES) / (WEIGHT_DOWN_BYTES + bytes)
        };
        Self::from(u16::try_from(corrected).unwrap_or(MAX_PER_1000))
    }
}

/// `n * factor / divisor`, rounded down.
fn scale(n: u64, factor: u64, divisor: u64) -> u64 {
    u64::try_from(u128::from(n) * u128::from(factor) / u128::from(divisor)).unwrap_or(u64::MAX)
}

/// `n * factor / divisor`, rounded to the nearest.
fn scale_to_nearest(n: u64, factor: u64, divisor: u64) -> u64 {
    let n = u128::from(n) * u128::from(factor) + u128::from(divisor / 2);
    u64::try_from(n / u128::from(divisor)).unwrap_or(u64::MAX)
}

impl Default for TokenDensity {
    fn default() -> Self {
        Self::GUESS
    }
}

impl From<u16> for TokenDensity {
    fn from(per_1000: u16) -> Self {
        Self(per_1000.clamp(MIN_PER_1000, MAX_PER_1000))
    }
}

impl From<TokenDensity> for u16 {
    fn from(density: TokenDensity) -> Self {
        density.0
    }
}

/// The limits of a model, as far as its provider's list of models contains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelLimits {
    /// The context window: tokens read and written in one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The maximum output of one call, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
}

/// The limits from a provider's list of models, with the time of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedLimits {
    /// Time of the request.
    pub at: Timestamp,
    /// The limits; empty if the list has none.
    #[serde(flatten)]
    pub limits: ModelLimits,
}

/// The index row of a model: what runs have observed about it, written when they end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRow {
    /// The model.
    pub model: ModelRef,
    /// Tokens in 1,000 bytes of its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub density: Option<TokenDensity>,
    /// The context window that the provider named when it refused a request as too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Limits from the provider's list of models, requested because the window was unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listed: Option<ListedLimits>,
}

impl ModelRow {
    /// This row merged over the earlier one: absent fields keep the earlier values.
    #[must_use]
    pub fn merged_over(self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        Self {
            model: self.model,
            density: self.density.or(before.density),
            window: self.window.or(before.window),
            listed: self.listed.or(before.listed),
        }
    }
}

/// Estimated tokens of a text of `bytes` bytes for a model without measured token density.
pub fn estimate_tokens(bytes: u64) -> u64 {
    TokenDensity::GUESS.tokens(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects `expect` after these requests (bytes, tokens) in order, starting from the guess.
    #[track_caller]
    fn check(requests: &[(u64, u64)], expect: u16) {
        let corrected =
            |density: TokenDensity, (bytes, tokens): &(u64, u64)| density.corrected(*bytes, *tokens);
        assert_eq!(
            requests.iter().fold(TokenDensity::GUESS, corrected),
            TokenDensity(expect),
            "{requests:?}"
        );
    }

    #[test]
    fn usage_corrects_the_guess_up_at_once_and_down_by_and_by() {
        check(&[(40_000, 10_000)], 250);
        check(&[(40_000, 20_000)], 459);
        check(&[(40_000, 20_000); 4], 500);
        check(&[(40_000, 5_000)], 228);
        check(&[(400_000, 50_000)], 218);
        check(&[(40_000, 5_000); 40], 125);
        // A shorter request has less weight.
        check(&[(2_000, 1_000)], 300);
        check(&[(2_000, 250)], 248);
        // A lowered density rises again.
        check(&[(64_000, 8_000), (64_000, 16_000)], 247);
    }

    #[test]
    fn what_is_no_count_of_the_text_says_nothing() {
        for request in [
            (0, 0),
            (0, 1_000),
            (1_999, 999),
            (40_000, 0),
            (40_000, 7),
            (40_000, 3_979),
            (40_000, 40_041),
            (40_000, u64::MAX),
            (u64::MAX, 1),
        ] {
            check(&[request], 250);
        }
        check(&[(40_000, 4_000); 90], MIN_PER_1000);
        check(&[(40_000, 40_000); 9], MAX_PER_1000);
        check(&[(u64::MAX, u64::MAX)], 917);
    }

    #[test]
    fn bytes_become_tokens_and_tokens_bytes() {
        let check = |density: u16, bytes: u64, tokens: u64| {
            assert_eq!(TokenDensity(density).tokens(bytes), tokens);
            assert!(TokenDensity(density).tokens(TokenDensity(density).bytes(tokens)).abs_diff(tokens) <= 1);
        };
        check(250, 0, 0);
        check(250, 4_003, 1_000);
        check(333, 3_000, 999);
        check(1_000, 7, 7);
        check(100, u64::MAX, u64::MAX / 10);
        assert_eq!(TokenDensity::GUESS.bytes(1_000), 4_000);
        assert_eq!(TokenDensity::GUESS.bytes(u64::MAX), u64::MAX);
        assert_eq!(TokenDensity(500).milli_tokens(3), 1_500);
    }

    #[test]
    fn a_density_that_cannot_be_is_read_as_the_nearest_that_can() {
        let read = |stored: &str| serde_json::from_str::<TokenDensity>(stored).unwrap();
        assert_eq!(
            (read("0"), read("65535"), read("251")),
            (TokenDensity(MIN_PER_1000), TokenDensity(MAX_PER_1000), TokenDensity(251))
        );
        assert_eq!(serde_json::to_string(&TokenDensity(251)).unwrap(), "251");
    }

    #[test]
    fn a_row_leaves_what_it_does_not_say() {
        let row = |density: Option<u16>, window| ModelRow {
            model: "p/m".parse().unwrap(),
            density: density.map(TokenDensity),
            window,
            listed: None,
        };
        let check = |row: ModelRow, before, expect| assert_eq!(row.merged_over(before), expect);
        check(row(Some(300), None), None, row(Some(300), None));
        check(row(Some(300), None), Some(row(Some(200), Some(9))), row(Some(300), Some(9)));
        check(row(None, Some(8)), Some(row(Some(200), Some(9))), row(Some(200), Some(8)));
        let listed = |at, window| {
            let limits = ModelLimits { window, max_output: None };
            ModelRow { listed: Some(ListedLimits { at: Timestamp(at), limits }), ..row(None, None) }
        };
        let both = ModelRow { window: Some(9), ..listed(1, Some(7)) };
        check(row(None, Some(9)), Some(listed(1, Some(7))), both.clone());
        check(listed(2, None), Some(both), ModelRow { window: Some(9), ..listed(2, None) });
    }
}
