//! Known properties of a model: context window, prices, deadlines, token density, and the control of its thinking. Also
//! the cost of a call by its prices.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::{ListedLimits, TokenDensity, Usage};

/// The level of thinking requested of a model.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ThinkingLevel {
    /// No thinking, for models that allow it.
    Off,
    /// The lowest effort.
    Minimal,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
}

impl ThinkingLevel {
    /// All levels, ascending.
    pub const ALL: [Self; 5] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High];

    /// The level's name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A set of thinking levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<ThinkingLevel>", into = "Vec<ThinkingLevel>")]
pub struct ThinkingLevels(u8);

impl ThinkingLevels {
    /// True if the set contains the level.
    pub const fn contains(self, level: ThinkingLevel) -> bool {
        self.0 & Self::bit(level) != 0
    }

    /// The levels, ascending.
    pub fn iter(self) -> impl Iterator<Item = ThinkingLevel> {
        ThinkingLevel::ALL.into_iter().filter(move |level| self.contains(*level))
    }

    const fn bit(level: ThinkingLevel) -> u8 {
        1 << level as u8
    }
}

impl FromIterator<ThinkingLevel> for ThinkingLevels {
    fn from_iter<I: IntoIterator<Item = ThinkingLevel>>(levels: I) -> Self {
        Self(levels.into_iter().fold(0, |all, level| all | Self::bit(level)))
    }
}

impl From<Vec<ThinkingLevel>> for ThinkingLevels {
    fn from(levels: Vec<ThinkingLevel>) -> Self {
        levels.into_iter().collect()
    }
}

impl From<ThinkingLevels> for Vec<ThinkingLevel> {
    fn from(levels: ThinkingLevels) -> Self {
        levels.iter().collect()
    }
}

/// The request parameter that controls a model's thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ThinkingStyle {
    /// The model has no control; the level is left out of requests.
    None,
    /// A named effort.
    Effort,
    /// A budget of tokens.
    Budget,
    /// A named effort; the model decides how much it thinks at each step.
    Adaptive,
}

impl ThinkingStyle {
    /// All styles.
    pub const ALL: [Self; 4] = [Self::None, Self::Effort, Self::Budget, Self::Adaptive];

    /// The style's name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A thinking level with the style in which the model accepts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThinkingRequest {
    /// The level.
    pub level: ThinkingLevel,
    /// The style of the parameter.
    pub style: ThinkingStyle,
}

/// The known properties of a model, resolved when a run is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelProfile {
    /// The context window: tokens read and written in one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The maximum output of one call, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// The style of thinking control; if `None` (unknown), no level is sent.
    #[serde(rename = "thinking", skip_serializing_if = "Option::is_none")]
    pub thinking_style: Option<ThinkingStyle>,
    /// The supported levels; if absent, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<ThinkingLevels>,
    /// The level if neither the run nor the agent sets one; if absent, the model decides.
    #[serde(rename = "level", skip_serializing_if = "Option::is_none")]
    pub default_level: Option<ThinkingLevel>,
    /// True if the model accepts images; `None` if unknown, and then images are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// The prices; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// The deadlines of its calls.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub deadlines: ModelDeadlines,
    /// The measured tokens in 1,000 bytes of its requests; `None` before the first measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub density: Option<TokenDensity>,
    /// Limits in the provider's list of models, fetched when this was resolved and not stored yet.
    #[serde(rename = "listed", skip_serializing_if = "Option::is_none")]
    pub listed_limits: Option<ListedLimits>,
}

/// Deadlines of a model's calls, in milliseconds; an absent one is the provider's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelDeadlines {
    /// Time until the first event of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_event_ms: Option<u64>,
    /// Time between two events of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<u64>,
    /// Time of the whole call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ms: Option<u64>,
}

/// Prices in nano-dollars per token (a dollar per million tokens is 1,000).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Price {
    /// Price of an input token.
    pub input: u64,
    /// Price of an output token.
    pub output: u64,
    /// Price of an input token served by the vendor's cache.
    pub cache_read: u64,
    /// Price of an input token written to the vendor's cache.
    pub cache_write: u64,
    /// The prices apply to calls with at most this many input tokens; to all calls if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
}

impl Price {
    /// The cost of a call in nano-dollars; `None` if its input exceeds `up_to`.
    pub fn cost(&self, usage: &Usage) -> Option<u64> {
        if !self.holds_for(usage.input_tokens) {
            return None;
        }
        let cached = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
        let parts = [
            (usage.input_tokens.saturating_sub(cached), self.input),
            (usage.cached_tokens, self.cache_read),
            (usage.cache_write_tokens, self.cache_write),
            (usage.output_total(), self.output),
        ];
        let cost = |(tokens, price): (u64, u64)| tokens.saturating_mul(price);
        Some(parts.into_iter().map(cost).fold(0, u64::saturating_add))
    }

    /// True if the prices apply to a call with `input` input tokens.
    pub fn holds_for(&self, input: u64) -> bool {
        self.up_to.is_none_or(|most| input <= most)
    }

    /// The maximum cost of a call in nano-dollars, whatever part of its input is cached.
    pub fn max_cost(&self, input: u64, output: u64) -> u64 {
        input.saturating_mul(self.max_input_price()).saturating_add(output.saturating_mul(self.output))
    }

    /// The output tokens that a call with `input` input tokens can afford with `nano_usd`.
    pub fn affordable_output(&self, nano_usd: u64, input: u64) -> u64 {
        let left = nano_usd.saturating_sub(input.saturating_mul(self.max_input_price()));
        left.checked_div(self.output).unwrap_or(u64::MAX)
    }

    fn max_input_price(&self) -> u64 {
        self.input.max(self.cache_read).max(self.cache_write)
    }
}

impl ModelProfile {
    /// True if images may be sent to the model.
    pub fn accepts_images(&self) -> bool {
        self.images.unwrap_or(true)
    }

    /// The request for this level; `None` if the model has no control or does not support the level.
    pub fn thinking_request(&self, level: ThinkingLevel) -> Option<ThinkingRequest> {
        let style = self.thinking_style.filter(|style| *style != ThinkingStyle::None)?;
        let can = self.levels.is_none_or(|levels| levels.contains(level));
        can.then_some(ThinkingRequest { level, style })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_a_model_does_not_know_is_not_told() {
        let levels: ThinkingLevels = [ThinkingLevel::High, ThinkingLevel::Off].into_iter().collect();
        let profile = ModelProfile {
            thinking_style: Some(ThinkingStyle::Effort),
            levels: Some(levels),
            ..Default::default()
        };
        for level in ThinkingLevel::ALL {
            let is_supported = profile.thinking_request(level).is_some();
            assert_eq!(is_supported, [ThinkingLevel::High, ThinkingLevel::Off].contains(&level), "{level:?}");
        }
        let stored = serde_json::to_string(&profile).unwrap();
        assert_eq!(stored, r#"{"thinking":"effort","levels":["off","high"]}"#);
        assert_eq!(serde_json::from_str::<ModelProfile>(&stored).unwrap(), profile);
    }

    #[test]
    fn deadlines_are_stored_where_there_are_some() {
        let check = |deadlines: ModelDeadlines, expect: &str| {
            let profile = ModelProfile { deadlines, ..ModelProfile::default() };
            let stored = serde_json::to_string(&profile).unwrap();
            assert_eq!(stored, expect);
            assert_eq!(serde_json::from_str::<ModelProfile>(&stored).unwrap(), profile);
        };
        check(ModelDeadlines::default(), "{}");
        let call = ModelDeadlines { call_ms: Some(5), ..ModelDeadlines::default() };
        check(call, r#"{"deadlines":{"call_ms":5}}"#);
    }

    #[test]
    fn each_token_costs_what_its_kind_costs() {
        let price = Price { input: 1_000, output: 5_000, cache_read: 100, cache_write: 1_250, up_to: None };
        let check = |(input, output, cached, written): (u64, u64, u64, u64), price: Price, expect| {
            let usage = Usage {
                input_tokens: input,
                output_tokens: output,
                cached_tokens: cached,
                cache_write_tokens: written,
                ..Usage::default()
            };
            assert_eq!(price.cost(&usage), expect, "{usage:?}");
        };
        check((0, 0, 0, 0), price, Some(0));
        check((10, 2, 0, 0), price, Some(20_000));
        // This vendor's input tokens include the cached ones.
        check((10, 2, 6, 3), price, Some(1_000 + 600 + 3_750 + 10_000));
        // Cached tokens that the vendor counts separately are not charged twice.
        check((1, 0, 6, 3), price, Some(600 + 3_750));
        check((u64::MAX, u64::MAX, 0, 0), price, Some(u64::MAX));
        let short = Price { up_to: Some(10), ..price };
        check((10, 0, 0, 0), short, Some(10_000));
        check((11, 0, 0, 0), short, None);
    }
}
