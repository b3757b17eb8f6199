//! The layer `date`: the day on which the session began.

use super::{PromptInputs, bounded_text::BoundedText};

pub(super) fn build(ground: &PromptInputs<'_>) -> BoundedText {
    format!("Date: {}", ground.request.day).into()
}
