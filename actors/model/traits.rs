use serde::{Deserialize, Serialize};

/// How much a model is to think before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Not at all, where that can be chosen.
    Off,
    /// As little as possible.
    Minimal,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

impl Thinking {
    /// All levels, from none on.
    pub const ALL: [Self; 5] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High];

    /// The level's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// How a model is told how much to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingStyle {
    /// It cannot be told: the level is left out.
    None,
    /// By a word for the effort.
    Effort,
    /// By a number of tokens.
    Budget,
    /// By a word for the effort; how much it thinks at each step is its own choice.
    Adaptive,
}

/// A level of thinking in the way in which one model is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThinkingRequest {
    /// The level.
    pub level: Thinking,
    /// How it is told.
    pub style: ThinkingStyle,
}

/// What is known of a model, resolved when a run is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelTraits {
    /// Tokens that it can read and write in one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Tokens that it can write in one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// How it is told how much to think; `None` if that is not known, and then it is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingStyle>,
    /// Whether it sees pictures; `None` if that is not known, and then it is sent them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// What it costs; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// Prices in nano-dollars per token (a dollar per million tokens is 1,000).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Price {
    /// Of a token read.
    pub input: u64,
    /// Of a token written.
    pub output: u64,
    /// Of a token read from the vendor's cache.
    pub cache_read: u64,
    /// Of a token written to the vendor's cache.
    pub cache_write: u64,
}

impl ModelTraits {
    /// Whether pictures may be sent to it.
    pub fn sees(&self) -> bool {
        self.images.unwrap_or(true)
    }

    /// How it is to be told this level; `None` if it cannot be told.
    pub fn thinking(&self, level: Thinking) -> Option<ThinkingRequest> {
        let style = self.thinking.filter(|style| *style != ThinkingStyle::None)?;
        Some(ThinkingRequest { level, style })
    }
}
