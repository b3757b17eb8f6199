//! The tools, called as runs call them, against real folders and processes.

mod bounds;
mod files;
mod fuzz;
mod hardline;
mod memory;
mod output;
mod pictures;
mod prepared;
mod shell;
