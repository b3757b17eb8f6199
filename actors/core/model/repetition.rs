//! A repetition of tool calls without progress: its pattern, and how often it may happen. `turn/loop_guard.rs` finds
//! repetitions.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::RUNTIME_TEXT_PREFIX;

/// A pattern of calls that repeat without progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepetitionPattern {
    /// The same call had the same result.
    SameResult,
    /// The same call failed in the same way.
    SameFailure,
    /// Two answers took turns, each with the same calls and results.
    AlternatingCalls,
    /// All calls of one tool failed, with any arguments.
    FailingTool,
}

impl RepetitionPattern {
    /// All patterns.
    pub const ALL: [Self; 4] =
        [Self::SameResult, Self::SameFailure, Self::AlternatingCalls, Self::FailingTool];

    /// The number of times from which the model is warned.
    pub const fn warns_at(self) -> u32 {
        match self {
            Self::SameFailure => 2,
            Self::SameResult | Self::AlternatingCalls | Self::FailingTool => 3,
        }
    }

    /// The number of times that ends the run.
    pub const fn stops_at(self) -> u32 {
        match self {
            Self::SameResult | Self::SameFailure | Self::AlternatingCalls => 5,
            Self::FailingTool => 8,
        }
    }
}

/// A repetition that the guard against loops has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repetition {
    /// The pattern.
    pub pattern: RepetitionPattern,
    /// The tool of the repeated call.
    pub tool: Arc<str>,
    /// Number of answers of the model that repeated it; equal calls of one answer count once.
    pub times: u32,
}

impl Repetition {
    /// The repetition, if the model is to be warned of it or the run ends with it.
    pub fn new(pattern: RepetitionPattern, tool: &Arc<str>, times: u32) -> Option<Self> {
        (times >= pattern.warns_at()).then(|| Self { pattern, tool: Arc::clone(tool), times })
    }

    /// Whether the run ends with it.
    pub const fn ends_run(&self) -> bool {
        self.times >= self.pattern.stops_at()
    }

    /// The warning for the model, which it reads behind the results of its calls.
    pub fn warning(&self) -> String {
        let advice = match self.pattern {
            RepetitionPattern::SameResult | RepetitionPattern::AlternatingCalls => {
                "Another repetition will give nothing new. Use what you have, go on in another way, or give your answer."
            }
            RepetitionPattern::SameFailure => {
                "Do not repeat it as it is. Read the error, change the call or go on in another way, or give your answer."
            }
            RepetitionPattern::FailingTool => {
                "Read the errors, and go on in another way or without this tool, or give your answer."
            }
        };
        format!(
            "\n\n{RUNTIME_TEXT_PREFIX}{self}. {advice} The run is ended at {} times.]",
            self.pattern.stops_at()
        )
    }
}

impl fmt::Display for Repetition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pattern, tool, times } = self;
        match pattern {
            RepetitionPattern::SameResult => {
                write!(f, "`{tool}` was called {times} times with the same arguments and the same result")
            }
            RepetitionPattern::SameFailure => {
                write!(
                    f,
                    "`{tool}` was called {times} times with the same arguments and failed in the same way"
                )
            }
            RepetitionPattern::AlternatingCalls => write!(
                f,
                "`{tool}` and another call took turns {times} times, with the same arguments and the same results"
            ),
            RepetitionPattern::FailingTool => {
                write!(f, "`{tool}` failed {times} times in a row, with any arguments")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_warns_before_it_ends_the_run() {
        for pattern in RepetitionPattern::ALL {
            assert!(pattern.warns_at() > 1 && pattern.warns_at() < pattern.stops_at(), "{pattern:?}");
            let of = |times| Repetition::new(pattern, &"shell".into(), times);
            assert_eq!(of(pattern.warns_at() - 1), None);
            assert!(of(pattern.warns_at()).is_some_and(|found| !found.ends_run()), "{pattern:?}");
            assert!(of(pattern.stops_at()).is_some_and(|found| found.ends_run()), "{pattern:?}");
        }
    }

    #[test]
    fn the_stored_form_stays() {
        let found = Repetition { pattern: RepetitionPattern::SameResult, tool: "shell".into(), times: 3 };
        let stored = r#"{"pattern":"same_result","tool":"shell","times":3}"#;
        assert_eq!(serde_json::to_string(&found).unwrap(), stored);
        assert_eq!(serde_json::from_str::<Repetition>(stored).unwrap(), found);
    }
}
