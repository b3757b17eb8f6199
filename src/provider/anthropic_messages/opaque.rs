//! What of an answer only its maker can read, in the answer's order. Texts and calls are in the message: here stand only
//! their places, and only in front of something that is kept.

use serde_json::{Value, json};

/// A part, as the encoder reads it.
#[derive(Debug, Clone, Copy)]
pub(super) enum OpaquePart<'a> {
    /// So many bytes of the message's text stand here.
    Text(usize),
    /// The message's next call stands here.
    Call,
    /// A block that is sent back as it is.
    Opaque(&'a Value),
}

impl<'a> OpaquePart<'a> {
    /// Reads a part; `None` if it is none of ours.
    pub(super) fn of(part: &'a Value) -> Option<Self> {
        match part.get("type")?.as_str()? {
            "text" => part.get("bytes")?.as_u64().and_then(|n| usize::try_from(n).ok()).map(Self::Text),
            "tool_use" => Some(Self::Call),
            _ => Some(Self::Opaque(part)),
        }
    }
}

/// Parts that are being put in order.
#[derive(Debug, Default)]
pub(super) struct OpaqueParts {
    parts: Vec<Value>,
    /// Places that count only if something follows that is kept.
    pending: Vec<Value>,
}

impl OpaqueParts {
    /// So many bytes of text.
    pub(super) fn push_text(&mut self, bytes: usize) {
        if bytes > 0 {
            self.pending.push(json!({"type": "text", "bytes": bytes}));
        }
    }

    /// A call.
    pub(super) fn push_call(&mut self) {
        self.pending.push(json!({"type": "tool_use"}));
    }

    /// A block that is kept.
    pub(super) fn push_opaque(&mut self, block: Value) {
        self.parts.append(&mut self.pending);
        self.parts.push(block);
    }

    /// All parts. A server's own call without its result is left out, and a result without its call: the vendor takes
    /// them only together.
    pub(super) fn finish(mut self) -> Vec<Value> {
        let ids = |field: &str| -> Vec<String> {
            let found = self.parts.iter().filter_map(|part| part.get(field)?.as_str().map(str::to_owned));
            found.collect()
        };
        let (calls, results) = (ids("id"), ids("tool_use_id"));
        let is_paired = |part: &Value| {
            let text = |field: &str| part.get(field).and_then(Value::as_str);
            match (text("id"), text("tool_use_id")) {
                (Some(id), _) => results.iter().any(|result| result == id),
                (None, Some(id)) => calls.iter().any(|call| call == id),
                (None, None) => true,
            }
        };
        self.parts.retain(is_paired);
        self.parts
    }
}
