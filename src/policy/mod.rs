//! The policy of tool calls: what may run, what needs a person's approval, and what is denied.

pub mod command;
