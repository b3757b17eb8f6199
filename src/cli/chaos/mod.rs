//! `hermod chaos`: this program is killed at random instants while it works; then it is counted what came of that. What
//! is decided and judged is pure (`schedule`, `plan`, `said`, `book`, `judge`, `report`); `life`, `look` and `notes` touch
//! processes and files, and `trial` is the order in which all that happens.

mod args;
mod book;
mod execute;
mod judge;
mod life;
mod look;
mod notes;
mod plan;
mod report;
mod said;
mod schedule;
mod trial;

pub(crate) use args::ChaosArgs;
pub(crate) use execute::execute;
