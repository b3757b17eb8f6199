//! Deterministic policies: they decide from events and an explicit time what may be done. No clock and no I/O.

mod admissions;
mod bill;
mod billing;
mod breaker;
mod credential_pool;
pub(crate) mod delegation;
mod failover;
mod failure_scope;
mod fair_queue;
mod final_text;
mod hidden_chars;
mod housekeeping;
mod limiter;
mod restart_intensity;
mod retry;
mod sanitize;
mod summarizer_stats;
pub(crate) mod todo;
mod tool_call_repair;

pub(crate) use admissions::{AdmissionTicket, Admissions, AttemptEnd, BreakerReport};
pub use bill::Bill;
pub use billing::usage_anomaly;
pub(crate) use billing::{Billing, billing, spent_by_failure, validate_usage, with_validated_usage};
pub(crate) use breaker::{CooldownSource, Readiness};
pub(crate) use failover::{Candidate, LinkAvailability, LinkChoice, LinkVisit, available_from, choose_link};
pub(crate) use failure_scope::{FailureScope, failure_scope};
pub(crate) use fair_queue::FairQueue;
pub(crate) use final_text::final_text;
pub use final_text::{AnswerSource, FinalText};
pub(crate) use housekeeping::is_housekeeping;
pub(crate) use restart_intensity::{ConsecutiveCrashes, RestartDecision, RestartHistory, RestartIntensity};
pub(crate) use retry::{
    AttemptHistory, CredentialRecovery, FallbackAvailability, ProviderContact, RetryDecision, is_transient,
};
pub use sanitize::SanitizedText;
pub use summarizer_stats::SummarizerStatus;
pub(crate) use summarizer_stats::{
    SummarizerStats, SummaryReport, SummaryResult, SummaryUrgency, ViewGrowth,
};
pub(crate) use tool_call_repair::{ArgumentsParseError, match_tool_name, parse_arguments, portable_name};
