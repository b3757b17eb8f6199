//! Tests of the store on a simulated disk: power cuts, after which unsynced writes are there in part or not at all, and
//! damage to the store's file.

mod chance;
mod damage;
mod disk;
mod model;
mod power;
mod power_of_runs;
mod upkeep;
mod work;
