//! The layers of one or a few lines: environment, date and model.

use std::env::consts::{ARCH, OS};

use super::{PromptInputs, bounded_text::BoundedText};
use crate::tool::{SHELL, one_line};

/// The layer `environment`: workspace, operating system and shell of the tools.
pub(super) fn environment(inputs: &PromptInputs<'_>) -> BoundedText {
    let workspace = one_line(inputs.request.workspace.as_bytes());
    format!("Workspace: {workspace}\nOperating system: {OS} on {ARCH}\nShell: {SHELL}").into()
}

/// The layer `date`: the day on which the session began.
pub(super) fn date(inputs: &PromptInputs<'_>) -> BoundedText {
    format!("Date: {}", inputs.request.day).into()
}

/// The layer `model`: the first model of the session.
pub(super) fn model(inputs: &PromptInputs<'_>) -> BoundedText {
    let model = inputs.request.model.as_ref();
    let text = model.map(|model| format!("Model: {}", one_line(model.to_string().as_bytes())));
    text.unwrap_or_default().into()
}
