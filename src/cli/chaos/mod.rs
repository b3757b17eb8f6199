//! `hermod chaos`: kills this program at random instants while it works, and counts what was lost or duplicated.
//! `kill_times`, `workload`, `progress_lines`, `seen_journal`, `findings` and `report` do no I/O; `process` and
//! `test_state` use processes and files. `test` runs the whole sequence; `execute` prepares it and prints the report.

mod execute;
mod findings;
mod kill_times;
mod process;
mod progress_lines;
mod report;
mod seen_journal;
mod test;
mod test_state;
mod workload;

pub(crate) use execute::{ChaosArgs, execute};
