//! Deaths of the process: when it was killed or crashed, and which run was alone with it. What follows is decided in
//! `past.rs`, which is pure; `keeper.rs` keeps it in the state directory from start to start.

mod history;
mod history_file;
mod progress;

pub use history::{CrashHistory, MAX_DEATH_INTERVAL_MS, MIN_UPTIME_MS, ResumeMode, Trial};
pub use history_file::CrashHistoryFile;
pub use progress::is_progress;
