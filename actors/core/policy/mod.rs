//! Rules that need no session's state: admission and failover of model calls, retries, billing, queues, restarts, and
//! statistics of summarisers. Also the tools `delegate_task`, `message` and `todo`, the parsing of tool calls, and the sanitising
//! of texts. Deterministic: no clock and no I/O, time is an argument.

mod admissions;
mod bill;
mod billing;
mod breaker;
pub mod clarify;
mod credential_pool;
pub mod delegation;
mod failover;
mod failure_scope;
mod fair_queue;
mod final_text;
mod hidden_chars;
mod hook_tally;
mod lane_queue;
mod limiter;
mod memory_flush;
pub mod message;
mod permit_queue;
mod restart_intensity;
mod retry;
mod sanitize;
pub mod schedule;
pub mod shaping;
mod summarizer_stats;
mod title;
pub mod todo;
mod tool_call_repair;

pub use admissions::{AdmissionTicket, Admissions, AttemptEnd, BreakerReport, FreeProbeTicket};
pub use bill::Bill;
pub(crate) use billing::{Billing, with_validated_usage};
pub use billing::{billing, spent_by_failure, usage_anomaly, validate_usage};
pub use breaker::{CooldownSource, Readiness};
pub use failover::{Candidate, LinkAvailability, LinkChoice, LinkVisit, available_from, choose_link};
pub use failure_scope::{FailureScope, failure_scope};
pub use fair_queue::FairQueue;
pub use final_text::{AnswerSource, FinalText, final_text};
pub use hook_tally::{HookTally, hooked_run};
pub use lane_queue::{LaneQueue, WaitKey};
pub use memory_flush::{MEMORY_TOOL, format_flush, parse_flush};
pub use permit_queue::PermitQueue;
pub use restart_intensity::{ConsecutiveCrashes, RestartHistory, RestartIntensity};
pub use retry::CredentialRecovery;
pub(crate) use retry::{AttemptHistory, FallbackAvailability, RetryDecision, is_transient};
pub use sanitize::SanitizedText;
pub use shaping::is_silent_reply;
pub use summarizer_stats::{
    SummarizerStats, SummarizerStatus, SummaryReport, SummaryResult, SummaryUrgency, ViewGrowth,
};
pub use title::clean_title;
pub(crate) use title::excerpt;
pub(crate) use tool_call_repair::portable_name;
pub use tool_call_repair::{ArgumentsParseError, match_tool_name, parse_arguments};
