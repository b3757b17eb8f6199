//! The blocks of an answer that are sent back unchanged (reasoning, and the server's own tools), in their order. Texts
//! and calls are in the message: the parts hold only their positions, and only those before such a block. The decoder
//! collects the parts, the encoder reads them.

use serde_json::{Value, json};

/// A part, as the encoder reads it.
#[derive(Debug, Clone, Copy)]
pub(super) enum OpaquePart<'a> {
    /// The position of this many bytes of the message's text.
    Text(usize),
    /// The position of the message's next call.
    Call,
    /// A block that is sent back unchanged.
    Opaque(&'a Value),
}

impl<'a> OpaquePart<'a> {
    /// Reads a part; `None` if it has another shape.
    pub(super) fn of(part: &'a Value) -> Option<Self> {
        match part.get("type")?.as_str()? {
            "text" => part.get("bytes")?.as_u64().and_then(|n| usize::try_from(n).ok()).map(Self::Text),
            "tool_use" => Some(Self::Call),
            _ => Some(Self::Opaque(part)),
        }
    }
}

/// Collects parts in order.
#[derive(Debug, Default)]
pub(super) struct OpaqueParts {
    parts: Vec<Value>,
    /// Positions that count only if a retained block follows.
    pending: Vec<Value>,
}

impl OpaqueParts {
    /// Adds the position of a text of this many bytes.
    pub(super) fn push_text(&mut self, bytes: usize) {
        if bytes > 0 {
            self.pending.push(json!({"type": "text", "bytes": bytes}));
        }
    }

    /// Adds the position of a call.
    pub(super) fn push_call(&mut self) {
        self.pending.push(json!({"type": "tool_use"}));
    }

    /// Adds a retained block.
    pub(super) fn push_opaque(&mut self, block: Value) {
        self.parts.append(&mut self.pending);
        self.parts.push(block);
    }

    /// All parts. A server's own call without its result is dropped, and so is a result without its call: the vendor
    /// accepts them only together.
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
