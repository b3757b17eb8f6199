//! Checks of the input items of a `codex_responses` request as a whole, and their conversion to messages.

use super::item::{InputItem, ItemRole};
use crate::rehearsal::{BorrowedText, RawContent, RequestMessage, wire::RequestRefusal};

/// Checks that each call has its output, each output its call, and each reasoning item its following item.
pub(super) fn check(items: &[InputItem<'_>]) -> Result<(), RequestRefusal> {
    let refuse = |message: String| RequestRefusal::bad_request(Some("input"), message);
    let unanswered =
        |BorrowedText(id): &BorrowedText<'_>| refuse(format!("No tool output found for function call {id}."));
    let mut open_calls = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item {
            InputItem::Call(id) if open_calls.contains(&id) => return Err(unanswered(id)),
            InputItem::Call(id) => open_calls.push(id),
            InputItem::Output(id, _) => {
                let at = open_calls.iter().position(|call| *call == id);
                let at = at.ok_or_else(|| {
                    let BorrowedText(id) = id;
                    refuse(format!("No tool call found for function call output with call_id {id}."))
                })?;
                open_calls.remove(at);
            }
            InputItem::Reasoning(id) if !items.get(index + 1).is_some_and(is_answer) => {
                let id = id.as_ref().map_or("input", |BorrowedText(id)| id.as_ref());
                return Err(refuse(format!(
                    "Item '{id}' of type 'reasoning' was provided without its required following item."
                )));
            }
            InputItem::Reasoning(_) | InputItem::Message(..) | InputItem::Hosted => {}
        }
    }
    open_calls.first().map_or(Ok(()), |id| Err(unanswered(id)))
}

fn is_answer(item: &InputItem<'_>) -> bool {
    match item {
        InputItem::Message(role, _) => *role == ItemRole::Assistant,
        InputItem::Call(_) | InputItem::Reasoning(_) | InputItem::Hosted => true,
        InputItem::Output(..) => false,
    }
}

/// Appends the messages for the script. Consecutive items of the model form one answer.
pub(super) fn append_messages<'a>(items: Vec<InputItem<'a>>, messages: &mut Vec<RequestMessage<'a>>) {
    let mut answer: Option<(RawContent<'a>, Vec<BorrowedText<'a>>)> = None;
    for item in items {
        let of_model = is_answer(&item);
        if !of_model {
            messages.extend(answer.take().map(|(content, calls)| RequestMessage::Assistant(content, calls)));
        }
        let (content, calls) = answer.get_or_insert_default();
        match item {
            InputItem::Message(ItemRole::Assistant, raw) => content.push(raw),
            InputItem::Message(role, raw) => {
                let content = RawContent::of(Some(raw)).unwrap_or_default();
                let system = role == ItemRole::Instructions;
                messages.push(if system {
                    RequestMessage::System(content)
                } else {
                    RequestMessage::User(content)
                });
            }
            InputItem::Call(id) => calls.push(id),
            InputItem::Output(id, output) => {
                messages.push(RequestMessage::Tool(id, RawContent::of(Some(output)).unwrap_or_default()));
            }
            InputItem::Reasoning(_) | InputItem::Hosted => {}
        }
        answer = answer.filter(|_| of_model);
    }
    messages.extend(answer.map(|(content, calls)| RequestMessage::Assistant(content, calls)));
}
