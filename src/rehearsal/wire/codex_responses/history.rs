use super::item::{Item, Role};
use crate::rehearsal::{Content, Id, Message, wire::Refusal};

/// Whether the items fit each other: each call has its output, each output its call, each thought what it led to.
pub(super) fn check(items: &[Item<'_>]) -> Result<(), Refusal> {
    let refuse = |message: String| Refusal::bad_request(Some("input"), message);
    let unanswered = |Id(id): &Id<'_>| refuse(format!("No tool output found for function call {id}."));
    let mut open = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item {
            Item::Call(id) if open.contains(&id) => return Err(unanswered(id)),
            Item::Call(id) => open.push(id),
            Item::Output(id, _) => {
                let at = open.iter().position(|open| *open == id);
                let at = at.ok_or_else(|| {
                    let Id(id) = id;
                    refuse(format!("No tool call found for function call output with call_id {id}."))
                })?;
                open.remove(at);
            }
            Item::Reasoning(id) if !items.get(index + 1).is_some_and(is_answer) => {
                let id = id.as_ref().map_or("input", |Id(id)| id.as_ref());
                return Err(refuse(format!(
                    "Item '{id}' of type 'reasoning' was provided without its required following item."
                )));
            }
            Item::Reasoning(_) | Item::Message(..) | Item::Hosted => {}
        }
    }
    open.first().map_or(Ok(()), |id| Err(unanswered(id)))
}

fn is_answer(item: &Item<'_>) -> bool {
    match item {
        Item::Message(role, _) => *role == Role::Assistant,
        Item::Call(_) | Item::Reasoning(_) | Item::Hosted => true,
        Item::Output(..) => false,
    }
}

/// Adds the messages that the script looks at. What the model gave in a row is one answer.
pub(super) fn tell<'a>(items: Vec<Item<'a>>, messages: &mut Vec<Message<'a>>) {
    let mut answer: Option<(Content<'a>, Vec<Id<'a>>)> = None;
    for item in items {
        let of_model = is_answer(&item);
        if !of_model {
            messages.extend(answer.take().map(|(content, calls)| Message::Assistant(content, calls)));
        }
        let (content, calls) = answer.get_or_insert_default();
        match item {
            Item::Message(Role::Assistant, said) => content.push(said),
            Item::Message(role, said) => {
                let content = Content::of(Some(said)).unwrap_or_default();
                let system = role == Role::Instructions;
                messages.push(if system { Message::System(content) } else { Message::User(content) });
            }
            Item::Call(id) => calls.push(id),
            Item::Output(id, output) => {
                messages.push(Message::Tool(id, Content::of(Some(output)).unwrap_or_default()));
            }
            Item::Reasoning(_) | Item::Hosted => {}
        }
        answer = answer.filter(|_| of_model);
    }
    messages.extend(answer.map(|(content, calls)| Message::Assistant(content, calls)));
}
