use super::{Ground, cut::Cut};

/// The day on which the session began.
pub(super) fn build(ground: &Ground<'_>) -> Cut {
    format!("Date: {}", ground.occasion.day).into()
}
