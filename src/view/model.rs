//! View of what one source knows of a model, with its prices.

use hermod_actors::model::{ThinkingLevel, ThinkingStyle};
use serde::Serialize;
use serde_json::Number;

use crate::config::{ModelSection, PositiveDuration, PriceSection, TokenPrice};

/// The known facts of one source about a model; `None` is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelView {
    /// The name, or the beginning of names.
    pub model: String,
    /// The source: `config`, `program`, `refusal` or `list`.
    pub from: &'static str,
    /// The context window, in tokens.
    pub window: Option<u32>,
    /// The most output of one answer, in tokens.
    pub max_output: Option<u32>,
    /// How the model is told to think.
    pub thinking: Option<&'static str>,
    /// The levels of thinking that it takes.
    pub thinking_levels: Option<Vec<&'static str>>,
    /// The configured level.
    pub thinking_level: Option<&'static str>,
    /// Whether it accepts images.
    pub images: Option<bool>,
    /// The time limit until the first event of an answer, in milliseconds.
    pub first_event_ms: Option<u64>,
    /// The time limit between two events, in milliseconds.
    pub gap_ms: Option<u64>,
    /// The time limit of a call, in milliseconds.
    pub call_ms: Option<u64>,
    /// The prices.
    pub price: Option<PriceView>,
}

/// Prices in dollars per million tokens; an unknown one is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PriceView {
    /// Of input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Number>,
    /// Of output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Number>,
    /// Of input read from the vendor's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Number>,
    /// Of input written to the vendor's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Number>,
    /// Of input written to the vendor's cache for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<Number>,
    /// The longest input, in tokens, for which these prices hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u32>,
}

impl ModelView {
    /// The facts of a section of the configuration, or of the program's catalogue.
    pub fn new(model: &str, from: &'static str, section: &ModelSection) -> Self {
        Self {
            model: model.to_owned(),
            from,
            window: section.window.map(|count| count.0),
            max_output: section.max_output.map(|count| count.0),
            thinking: section.thinking.map(|style| ThinkingStyle::name(style.0)),
            thinking_levels: section
                .thinking_levels
                .map(|levels| levels.0.iter().map(ThinkingLevel::name).collect()),
            thinking_level: section.thinking_level.and_then(|level| level.0).map(ThinkingLevel::name),
            images: section.images.map(|flag| flag.0),
            first_event_ms: section.first_event.map(PositiveDuration::millis),
            gap_ms: section.gap.map(PositiveDuration::millis),
            call_ms: section.call.map(PositiveDuration::millis),
            price: section.price.as_ref().map(PriceView::from),
        }
    }
}

impl From<&PriceSection> for PriceView {
    fn from(price: &PriceSection) -> Self {
        let dollars = |price: Option<TokenPrice>| price.and_then(dollars);
        Self {
            input: dollars(price.input),
            output: dollars(price.output),
            cache_read: dollars(price.cache_read),
            cache_write: dollars(price.cache_write),
            cache_write_1h: dollars(price.cache_write_1h),
            up_to: price.up_to.map(|count| count.0),
        }
    }
}

/// The price as a number that prints as it was configured.
fn dollars(price: TokenPrice) -> Option<Number> {
    #[allow(clippy::cast_precision_loss)] // prices are far below 2^53
    let fraction = price.0 as f64 / 1e3;
    if price.0.is_multiple_of(1_000) { Some((price.0 / 1_000).into()) } else { Number::from_f64(fraction) }
}
