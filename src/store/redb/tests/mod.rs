//! Power losses under the store: what was written and not synced is there in part, or not at all. And damage to its file.

mod chance;
mod damage;
mod disk;
mod model;
mod power;
mod power_of_runs;
mod upkeep;
mod work;
