//! The layer `model`: the first model of the session.

use super::{PromptInputs, bounded_text::BoundedText};
use crate::tool::one_line;

pub(super) fn build(ground: &PromptInputs<'_>) -> BoundedText {
    let model = ground.request.model.as_ref();
    let text = model.map(|model| format!("Model: {}", one_line(model.to_string().as_bytes())));
    text.unwrap_or_default().into()
}
