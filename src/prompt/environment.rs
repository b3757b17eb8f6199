use std::env::consts::{ARCH, OS};

use super::{Ground, cut::Cut};
use crate::tool::{SHELL, one_line};

/// Where the tools work.
pub(super) fn build(ground: &Ground<'_>) -> Cut {
    let workspace = one_line(ground.occasion.workspace.as_bytes());
    format!("Workspace: {workspace}\nOperating system: {OS} on {ARCH}\nShell: {SHELL}").into()
}
