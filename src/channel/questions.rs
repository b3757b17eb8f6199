//! Questions to a person: approvals of calls, and what models ask with `clarify`. They stand in the chat with buttons, and
//! are edited once they are answered, wherever that was.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RunError,
    model::{
        ApprovalAnswered, ApprovalDecision, ApprovalRequested, ApprovalScope, Body, CallId, DecisionSource,
        RunRow, RunState,
    },
    open_approvals,
};
use tokio::time::sleep;

use super::{
    address::ChatAddress,
    chat_channel::Channel,
    port::{Button, ButtonPress, ChatError, IncomingMessage},
    state::AskedQuestion,
    text,
};
use crate::{
    control::{self, RequestError},
    view::{ApprovalView, question_choices},
};

/// Pauses before a question is sent again, from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How often the end of a question is shown before that is given up.
const MAX_SETTLE_TRIES: u32 = 8;
/// Most characters of a note to a person who has pressed a button: Telegram takes 200 characters.
const MAX_NOTE_CHARS: usize = 190;
/// Most characters on a button.
const MAX_LABEL_CHARS: usize = 60;

/// What a button does. Its data is the letter, the call and, of a choice, its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Press {
    Allow,
    AllowForRun,
    Deny,
    Choice(usize),
}

impl Press {
    fn data(self, call: CallId) -> String {
        match self {
            Self::Allow => format!("a:{call}"),
            Self::AllowForRun => format!("r:{call}"),
            Self::Deny => format!("d:{call}"),
            Self::Choice(n) => format!("c:{call}:{n}"),
        }
    }

    fn parse(data: &str) -> Option<(Self, CallId)> {
        let mut parts = data.split(':');
        let (kind, call) = (parts.next()?, parts.next()?.parse().ok()?);
        let press = match kind {
            "a" => Self::Allow,
            "r" => Self::AllowForRun,
            "d" => Self::Deny,
            "c" => Self::Choice(parts.next()?.parse().ok()?),
            _ => return None,
        };
        Some((press, call))
    }
}

/// Asks in the chat of a run, unless that is done. Tries until it stands there or is answered.
pub(super) async fn ask(channel: &Arc<Channel>, request: &ApprovalRequested) {
    let call = request.call.to_string();
    let at = match channel.chat_of_run(request.call.run).await {
        Ok(Some(at)) => at,
        Ok(None) => return,
        Err(error) => return tracing::warn!(%call, %error, "a question is not shown in its chat"),
    };
    let (text, buttons) = question(request);
    let mut pause = FIRST_PAUSE;
    while !channel.state.read(|state| state.questions.contains_key(&call)).await {
        match channel.transport.send(&at, &text, &buttons).await {
            Ok(message) => {
                let (chat, wants_text) = (at.to_string(), request.wants_text);
                let asked = AskedQuestion { chat, message, text: text.clone(), wants_text };
                channel.keep(|state| state.questions.insert(call.clone(), asked.clone())).await;
            }
            Err(error) if error.is_temporary() => {
                sleep(if let ChatError::RateLimited(asked) = error { asked } else { pause }).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(error) => return tracing::warn!(%call, %error, "a question does not reach its chat"),
        }
        if !is_pending(channel, request.call).await {
            settle(channel, &call, None).await;
            return;
        }
    }
}

/// The text of a question, and its buttons.
fn question(request: &ApprovalRequested) -> (String, Vec<Button>) {
    let button =
        |press: Press, label: &str| Button { label: label.to_owned(), data: press.data(request.call) };
    if request.wants_text {
        let choices = question_choices(&request.question);
        let buttons = choices.iter().enumerate().map(|(n, choice)| {
            let label = choice.chars().take(MAX_LABEL_CHARS).collect::<String>();
            button(Press::Choice(n), &label)
        });
        let how = if choices.is_empty() {
            "Answer with your next message."
        } else {
            "Choose, or answer with your next message."
        };
        return (text::shortened(&format!("{}\n\n{how}", request.question)), buttons.collect());
    }
    let mut buttons = vec![button(Press::Allow, "Allow")];
    if !request.allow_rules.is_empty() {
        buttons.push(button(Press::AllowForRun, "Allow for this run"));
    }
    buttons.push(button(Press::Deny, "Deny"));
    (text::shortened(&request.question), buttons)
}

/// The questions of a run that wait, if it belongs to a chat of this channel.
pub(super) async fn pending_of(channel: &Channel, row: &RunRow) -> Result<Vec<ApprovalRequested>, RunError> {
    if row.state == RunState::Queued || channel.chat_of_run(row.id).await?.is_none() {
        return Ok(Vec::new());
    }
    // Only the row of a parked run has them.
    let pending = if let Some(approvals) = &row.approvals {
        approvals.clone()
    } else {
        let records = channel.runtime().journal(row.session, 1).await?;
        open_approvals(row.session, records.iter().map(|(_, record)| &**record))
    };
    let of_run = pending.into_iter().map(|pending| pending.request);
    Ok(of_run.filter(|request| request.call.run == row.id).collect())
}

/// The calls of questions that stand in chats and do not wait any more.
pub(super) async fn answered_meanwhile(channel: &Channel) -> Result<Vec<String>, RunError> {
    let asked = channel.state.read(|state| state.questions.keys().cloned().collect::<Vec<_>>()).await;
    let mut answered = Vec::new();
    for text in asked {
        let is_open = match text.parse() {
            Ok(call) => is_pending(channel, call).await,
            Err(_) => false,
        };
        if !is_open {
            answered.push(text);
        }
    }
    Ok(answered)
}

async fn is_pending(channel: &Channel, call: CallId) -> bool {
    match find_answer(channel, call).await {
        Ok((answer, is_open)) => answer.is_none() && is_open,
        // It is tried again then.
        Err(_) => true,
    }
}

/// The answer of a question, and whether its run has not ended.
async fn find_answer(channel: &Channel, call: CallId) -> Result<(Option<ApprovalAnswered>, bool), RunError> {
    let row = channel.runtime().row(call.run).await?;
    let records = channel.runtime().journal(row.session, row.first).await?;
    let answer = records.iter().rev().find_map(|(_, record)| {
        let Body::ApprovalAnswered(answered) = &record.body else { return None };
        (answered.call == call).then(|| answered.clone())
    });
    Ok((answer, row.ended.is_none()))
}

/// Shows in the chat what was decided, and removes the buttons. Does nothing for a question that does not stand there.
pub(super) async fn settle(channel: &Channel, call: &str, answered: Option<&ApprovalAnswered>) {
    let Some(asked) = channel.state.read(|state| state.questions.get(call).cloned()).await else { return };
    let found = match (answered, call.parse()) {
        (None, Ok(call)) => find_answer(channel, call).await.ok().and_then(|(answer, _)| answer),
        _ => None,
    };
    let decision = decision(answered.or(found.as_ref()), asked.wants_text);
    let text = text::shortened(&format!("{}\n\n{decision}", asked.text));
    let (at, mut pause) = (ChatAddress::parse(&asked.chat), FIRST_PAUSE);
    for _ in 0..MAX_SETTLE_TRIES {
        match channel.transport.edit(&at, &asked.message, &text).await {
            Err(ChatError::RateLimited(asked)) => sleep(asked).await,
            Err(error) if error.is_temporary() => sleep(pause).await,
            // A person may have deleted the question.
            Ok(()) | Err(_) => break,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    channel.keep(|state| state.questions.remove(call)).await;
}

/// The line below a question that does not wait any more.
const fn decision(answered: Option<&ApprovalAnswered>, wants_text: bool) -> &'static str {
    let Some(answered) = answered else { return "No answer is needed any more." };
    match (answered.by, answered.decision, answered.scope) {
        (DecisionSource::Expiry, ..) => "Expired without an answer.",
        (_, ApprovalDecision::Deny, _) => "Denied.",
        (_, ApprovalDecision::Allow, _) if wants_text => "Answered.",
        (_, ApprovalDecision::Allow, ApprovalScope::Once) => "Allowed.",
        (_, ApprovalDecision::Allow, ApprovalScope::Run) => "Allowed for this run.",
        (_, ApprovalDecision::Allow, ApprovalScope::Always) => "Allowed for always.",
    }
}

/// Answers a question by a press of a button, and tells the person what came of it.
pub(super) async fn on_press(channel: &Channel, press: &ButtonPress) {
    let note = match Press::parse(&press.data) {
        None => "This button does nothing any more.".to_owned(),
        Some((pressed, call)) => match answer_press(channel, press, pressed, call).await {
            Ok(note) => note.to_owned(),
            Err(error) => error.text,
        },
    };
    let note: String = note.chars().take(MAX_NOTE_CHARS).collect();
    // A press that is too old cannot be acknowledged any more; the message is edited all the same.
    if let Err(error) = channel.transport.acknowledge(&press.id, &note).await {
        tracing::debug!(channel = &*channel.name, %error, "a press is not acknowledged");
    }
}

async fn answer_press(
    channel: &Channel,
    press: &ButtonPress,
    pressed: Press,
    call: CallId,
) -> Result<&'static str, RequestError> {
    // The data comes from the client of the person: it must not reach into other chats.
    let at = channel.chat_of_run(call.run).await.ok().flatten();
    if at.is_none_or(|at| at.chat != press.at.chat) {
        return Err(RequestError::usage("This question is not of this chat."));
    }
    let answer = move |approval: &ApprovalView| match pressed {
        Press::Allow => control::decision(approval, ApprovalDecision::Allow, ApprovalScope::Once),
        Press::AllowForRun => control::decision(approval, ApprovalDecision::Allow, ApprovalScope::Run),
        Press::Deny => control::decision(approval, ApprovalDecision::Deny, ApprovalScope::Once),
        Press::Choice(n) => {
            let choice = question_choices(&approval.question).into_iter().nth(n);
            let choice = choice.ok_or_else(|| RequestError::usage("There is no such choice."))?;
            control::text_answer(approval, choice)
        }
    };
    channel.door.handler.decide(&call.to_string(), answer).await?;
    Ok(match pressed {
        Press::Allow => "Allowed.",
        Press::AllowForRun => "Allowed for this run.",
        Press::Deny => "Denied.",
        Press::Choice(_) => "Answered.",
    })
}

/// Answers the oldest question of a model that waits in this chat with the text of a message, of the update with this number.
/// False if none waits. A repeat of an update that has answered is no message either.
pub(super) async fn answer_with_text(channel: &Channel, number: i64, message: &IncomingMessage) -> bool {
    let (chat, text) = (message.at.to_string(), message.text.as_str());
    if has_answered(channel, number, text).await {
        return true;
    }
    let asked = channel.state.read(|state| {
        let is_of_chat = |asked: &AskedQuestion| asked.wants_text && asked.chat == chat;
        let asked = state.questions.iter().filter(|(_, asked)| is_of_chat(asked));
        asked.map(|(call, _)| call.clone()).collect::<Vec<_>>()
    });
    for call in asked.await {
        channel.keep(|state| state.answering = Some((number, call.clone()))).await;
        let decide = |approval: &ApprovalView| control::text_answer(approval, text.to_owned());
        // One that is answered or has expired stands there until it is edited: the next one may wait.
        if channel.door.handler.decide(&call, decide).await.is_ok_and(|decided| decided.is_some()) {
            return true;
        }
    }
    false
}

/// Whether the update of this number has answered a question before a crash: the call has its text as the result then.
async fn has_answered(channel: &Channel, number: i64, text: &str) -> bool {
    let answering = channel.state.read(|state| state.answering.clone()).await;
    let Some(call) =
        answering.filter(|(of, _)| *of == number).and_then(|(_, call)| call.parse::<CallId>().ok())
    else {
        return false;
    };
    let Ok(row) = channel.runtime().row(call.run).await else { return false };
    // What cannot be read is not known to be answered: the text may come twice then, and is not lost.
    let Ok(records) = channel.runtime().journal(row.session, row.first).await else { return false };
    records.iter().any(|(_, record)| {
        matches!(&record.body, Body::CallEnded(ended) if ended.call == call && *ended.end.content == *text)
    })
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{RunId, Timestamp};

    use super::*;

    #[test]
    fn the_data_of_a_button_is_short_and_is_read_again() {
        let call = CallId { run: RunId::from_bits(u128::MAX >> 1), iteration: 4_000_000, n: 4_000_000 };
        for press in [Press::Allow, Press::AllowForRun, Press::Deny, Press::Choice(7)] {
            let data = press.data(call);
            assert!(data.len() <= 64, "{data}");
            assert_eq!(Press::parse(&data), Some((press, call)));
        }
        for bad in ["", "a", "a:", "x:1.1.1", "c:1.1.1", "a:nothing"] {
            assert_eq!(Press::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_question_has_the_buttons_that_fit() {
        let request = |wants_text: bool, rules: &[&str]| ApprovalRequested {
            call: CallId { run: RunId::from_bits(1), iteration: 1, n: 1 },
            attempt: 0,
            question: "Which?\n1. red\n2. blue".to_owned(),
            rules: Vec::new(),
            allow_rules: rules.iter().map(|rule| (*rule).into()).collect(),
            wants_text,
            expires_at: Timestamp(0),
        };
        let labels = |wants_text: bool, rules: &[&str]| {
            let (_, buttons) = question(&request(wants_text, rules));
            buttons.into_iter().map(|button| button.label).collect::<Vec<_>>()
        };
        assert_eq!(labels(true, &[]), ["red", "blue"]);
        assert_eq!(labels(false, &[]), ["Allow", "Deny"]);
        assert_eq!(labels(false, &["shell(ls)"]), ["Allow", "Allow for this run", "Deny"]);
    }
}
