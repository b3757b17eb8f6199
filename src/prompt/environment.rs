//! The layer `environment`: workspace, operating system and shell of the tools.

use std::env::consts::{ARCH, OS};

use super::{PromptInputs, bounded_text::BoundedText};
use crate::tool::{SHELL, one_line};

pub(super) fn build(ground: &PromptInputs<'_>) -> BoundedText {
    let workspace = one_line(ground.request.workspace.as_bytes());
    format!("Workspace: {workspace}\nOperating system: {OS} on {ARCH}\nShell: {SHELL}").into()
}
