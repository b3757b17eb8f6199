//! `hermod chaos`: kills this program at random instants while it works, and counts what was lost or duplicated.
//! `schedule`, `workload`, `progress_lines`, `seen_journal`, `findings` and `report` do no I/O; `process` and
//! `test_state` use processes and files. `test` runs the whole sequence; `execute` prepares it and prints the report.

mod execute;
mod findings;
mod process;
mod progress_lines;
mod report;
mod schedule;
mod seen_journal;
mod test;
mod test_state;
mod workload;

pub(crate) use execute::{ChaosArgs, execute};
