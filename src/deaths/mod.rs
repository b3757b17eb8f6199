//! Deaths of the process: when it was killed or crashed, and which run was alone with it. What follows is decided in
//! `past.rs`, which is pure; `keeper.rs` keeps it in the state directory from start to start.

mod keeper;
mod past;
mod step;

pub use keeper::Keeper;
pub use past::{LONG_MS, Past, SLOWEST_MS, Start, Trial};
pub use step::is_step;
