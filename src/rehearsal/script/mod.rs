//! Scripts of the rehearsal model: their JSON form (`spec.rs`), its checks, and the compiled form (`compile.rs`).

mod arguments;
mod compile;
mod error;
mod fault;
mod spec;
mod template;

pub use compile::{AnswerPace, Script};
pub use error::ScriptError;
pub use fault::{FaultRule, ScriptFault};
pub use spec::Cut;

use arguments::ArgumentsTemplate;
pub(super) use compile::ScriptStep;
use spec::UsageSpec;
use template::Template;
