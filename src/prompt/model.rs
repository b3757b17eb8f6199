use super::{Ground, cut::Cut};
use crate::tool::one_line;

/// The model that the session begins with.
pub(super) fn build(ground: &Ground<'_>) -> Cut {
    let model = ground.occasion.model.as_ref();
    let text = model.map(|model| format!("Model: {}", one_line(model.to_string().as_bytes())));
    text.unwrap_or_default().into()
}
