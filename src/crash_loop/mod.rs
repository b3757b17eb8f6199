//! Crash-loop detection: when the process was killed or crashed, and which run was alone with it. `history.rs` decides
//! and is pure; `history_file.rs` keeps the history in the state directory from start to start. `host/crash_trials.rs`
//! and `host/resume/probation.rs` act on the decisions.

mod history;
mod history_file;

pub use history::{CrashHistory, MAX_DEATH_INTERVAL_MS, MIN_UPTIME_MS, Trial};
pub use history_file::CrashHistoryFile;
