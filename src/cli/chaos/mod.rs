//! `hermod chaos`: this program is killed at random instants while it works; then it is counted what came of that. What
//! is decided and judged is pure (`schedule`, `plan`, `said`, `book`, `judge`, `report`); `life`, `look` and `notes` touch
//! processes and files, and `trial` is the order in which all that happens.

mod args;
mod execute;
mod findings;
mod process;
mod progress_lines;
mod report;
mod schedule;
mod seen_journal;
mod store_copy;
mod test;
mod test_state;
mod workload;

pub(crate) use args::ChaosArgs;
pub(crate) use execute::execute;
