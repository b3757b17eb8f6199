//! The script: its JSON, checked and compiled.

mod arguments;
mod compile;
mod error;
mod fault;
mod spec;
mod template;

pub use compile::{Pace, Script};
pub use error::ScriptError;
pub use fault::{Fault, FaultRule};
pub use spec::Cut;

use arguments::Arguments;
pub(super) use compile::Step;
use spec::UsageSpec;
pub(super) use template::Results;
use template::Template;
