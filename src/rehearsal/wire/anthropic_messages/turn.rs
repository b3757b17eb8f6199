//! The turns of an `anthropic_messages` request: consecutive messages of one role. Checks their order, and converts
//! them to the script's `RequestMessage`s.

use serde_json::value::RawValue;

use super::{
    block::{BlockKind, BlockOwner, RequestBlock, blocks},
    object, refuse,
};
use crate::rehearsal::{
    BorrowedText, RawContent, RequestMessage, ThinkingMode,
    wire::{RequestRefusal, fields::ObjectShape},
};

const MESSAGE: ObjectShape = ObjectShape { required: "role content", optional: "" };

/// Consecutive messages of one role, which count as one.
#[derive(Debug)]
pub(super) struct MessageTurn<'a> {
    role: BlockOwner,
    /// The index of the first message.
    first_index: usize,
    contents: Vec<&'a RawValue>,
    pub(super) blocks: Vec<RequestBlock<'a>>,
}

/// Parses `messages`, each checked on its own.
pub(super) fn turns<'a>(
    messages: Vec<&'a RawValue>,
    model: &str,
) -> Result<Vec<MessageTurn<'a>>, RequestRefusal> {
    let mut turns: Vec<MessageTurn<'_>> = Vec::with_capacity(messages.len());
    let last = messages.len().checked_sub(1);
    let last = last.ok_or_else(|| refuse("messages", "at least one message is required"))?;
    for (index, raw) in messages.into_iter().enumerate() {
        let fields = object(raw, format!("messages.{index}"))?;
        let role = fields.require::<BlockOwner>("role", "role: 'user' or 'assistant'")?;
        fields.check(&MESSAGE)?;
        let content = fields.require("content", "string or list")?;
        let blocks = blocks(content, &fields.path("content"), role, model)?;
        if blocks.is_empty() && (index < last || role == BlockOwner::User) {
            let problem =
                "all messages must have non-empty content except for the optional final assistant message";
            return Err(refuse(fields.path, problem));
        }
        match turns.last_mut().filter(|turn| turn.role == role) {
            None => turns.push(MessageTurn { role, first_index: index, contents: vec![content], blocks }),
            Some(turn) => {
                turn.contents.push(content);
                turn.blocks.extend(blocks);
            }
        }
    }
    Ok(turns)
}

/// Checks the order of the turns, and that calls and results match.
pub(super) fn check(turns: &[MessageTurn<'_>], thinking: ThinkingMode) -> Result<(), RequestRefusal> {
    if turns.first().is_none_or(|turn| turn.role != BlockOwner::User) {
        return Err(refuse("messages", "first message must use the \"user\" role"));
    }
    let mut previous = None;
    for (index, turn) in turns.iter().enumerate() {
        turn.check_results(previous)?;
        turn.check_calls(turns.get(index + 1))?;
        turn.check_end()?;
        previous = Some(turn);
    }
    if let [.., last] = turns {
        last.check_prefill()?;
    }
    if thinking == ThinkingMode::Always { check_thinking(turns) } else { Ok(()) }
}

impl<'a> MessageTurn<'a> {
    pub(super) fn role_name(&self) -> &'static str {
        match self.role {
            BlockOwner::Assistant => "assistant",
            BlockOwner::User | BlockOwner::System | BlockOwner::Result => "user",
        }
    }

    /// The blocks of `kind` with their text in `field`.
    fn blocks_with_text(
        &self,
        kind: BlockKind,
        field: &'static str,
    ) -> impl Iterator<Item = (&RequestBlock<'a>, BorrowedText<'a>)> {
        let of_kind = self.blocks.iter().filter(move |block| block.kind == kind);
        of_kind.filter_map(move |block| Some((block, block.text(field)?)))
    }

    fn calls(&self) -> Vec<BorrowedText<'a>> {
        self.blocks_with_text(BlockKind::ToolUse, "id").map(|(_, id)| id).collect()
    }

    fn leading_results(&self) -> Vec<BorrowedText<'a>> {
        let leading = self.blocks.iter().take_while(|block| block.kind == BlockKind::ToolResult);
        leading.filter_map(|block| block.text("tool_use_id")).collect()
    }

    fn check_results(&self, previous: Option<&Self>) -> Result<(), RequestRefusal> {
        let open = previous.map(Self::calls).unwrap_or_default();
        let mut seen = Vec::new();
        for (block, id) in self.blocks_with_text(BlockKind::ToolResult, "tool_use_id") {
            if !open.contains(&id) {
                let problem = format!(
                    "unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must \
                     have a corresponding `tool_use` block in the previous message.",
                    id.0
                );
                return Err(refuse(&block.at, problem));
            }
            if seen.contains(&id) {
                let problem = format!(
                    "each tool_use must have a single result. Found multiple `tool_result` blocks with id: {}",
                    id.0
                );
                return Err(refuse(&block.at, problem));
            }
            seen.push(id);
        }
        Ok(())
    }

    fn check_calls(&self, next: Option<&Self>) -> Result<(), RequestRefusal> {
        // The vendor checks ids in the whole request, this only within a turn: a script's ids repeat with each run.
        let calls = self.calls();
        let repeated = self
            .blocks_with_text(BlockKind::ToolUse, "id")
            .enumerate()
            .find(|(n, (_, id))| calls[..*n].contains(id));
        if let Some((_, (block, _))) = repeated {
            return Err(refuse(&block.at, "`tool_use` ids must be unique"));
        }
        let results = next.map(Self::leading_results).unwrap_or_default();
        let open: Vec<_> = calls.iter().filter(|id| !results.contains(id)).map(|id| id.0.as_ref()).collect();
        if open.is_empty() {
            return Ok(());
        }
        let problem = format!(
            "`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block \
             must have a corresponding `tool_result` block in the next message.",
            open.join(", ")
        );
        Err(refuse(format_args!("messages.{}", self.first_index), problem))
    }

    fn check_end(&self) -> Result<(), RequestRefusal> {
        if !self.blocks.last().is_some_and(RequestBlock::is_thinking) {
            return Ok(());
        }
        let problem = "The final block in an assistant message cannot be `thinking`.";
        Err(refuse(format_args!("messages.{}", self.first_index), problem))
    }

    /// Checks an assistant's turn at the end, which is the start of the answer.
    fn check_prefill(&self) -> Result<(), RequestRefusal> {
        let text = self.blocks.last().filter(|_| self.role == BlockOwner::Assistant);
        let text = text.filter(|block| block.kind == BlockKind::Text).and_then(|block| block.text("text"));
        if text.is_none_or(|BorrowedText(text)| text.trim_end() == text) {
            return Ok(());
        }
        Err(refuse("messages", "final assistant content cannot end with trailing whitespace"))
    }

    /// Appends the messages for the script. Text beside results is added to the last result.
    pub(super) fn append_messages(&self, messages: &mut Vec<RequestMessage<'a>>) {
        let mut all = RawContent::default();
        self.contents.iter().for_each(|content| all.push(content));
        if self.role == BlockOwner::Assistant {
            messages.push(RequestMessage::Assistant(all, self.calls()));
            return;
        }
        let mut results: Vec<_> = self.blocks_with_text(BlockKind::ToolResult, "tool_use_id").collect();
        let Some((last, last_id)) = results.pop() else {
            messages.push(RequestMessage::User(all));
            return;
        };
        let content =
            |block: &RequestBlock<'a>| RawContent::of(block.fields.get("content")).unwrap_or_default();
        messages.extend(results.into_iter().map(|(block, id)| RequestMessage::Tool(id, content(block))));
        let mut content = content(last);
        self.contents.iter().for_each(|piece| content.push(piece));
        messages.push(RequestMessage::Tool(last_id, content));
    }
}

/// With `thinking`, the assistant's turn that the answer continues must start with reasoning.
fn check_thinking(turns: &[MessageTurn<'_>]) -> Result<(), RequestRefusal> {
    let at = turns.iter().rposition(|turn| turn.role == BlockOwner::Assistant);
    let Some((assistant, after)) = at.and_then(|at| Some((turns.get(at)?, &turns[at + 1..]))) else {
        return Ok(());
    };
    let is_continued = after.first().is_none_or(|turn| !turn.leading_results().is_empty());
    let Some(first) = assistant.blocks.first().filter(|first| is_continued && !first.is_thinking()) else {
        return Ok(());
    };
    let problem = format!(
        "Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` \
         message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` \
         blocks). To avoid this requirement, disable `thinking`.",
        if first.kind == BlockKind::ToolUse { "tool_use" } else { "text" }
    );
    Err(refuse(format_args!("{}.type", first.at), problem))
}
