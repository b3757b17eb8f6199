//! What `hermod policy` shows: a verdict on a command, and the rules.

use std::sync::Arc;

use serde::Serialize;

/// The verdict that a command gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyVerdictView {
    /// `allow`, `ask` or `deny`.
    pub verdict: &'static str,
    /// The rule that decided; `None` if the command runs.
    pub rule: Option<Arc<str>>,
    /// The part of the command that the rule matched, without wrappers and needless quotes.
    pub reduced_to: Option<String>,
    /// Why; `None` if the command runs.
    pub why: Option<String>,
}

/// A rule in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyRuleView {
    /// `allow`, `ask` or `deny`.
    pub action: &'static str,
    /// The name of a built-in rule, or the text of another one.
    pub rule: String,
    /// Where it comes from: `built in`, a place in the configuration, or the file of approved rules.
    pub origin: String,
    /// What a built-in rule is about.
    pub why: Option<&'static str>,
}
