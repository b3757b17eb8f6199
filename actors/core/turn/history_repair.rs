//! Turns an imported list of messages into rounds. Each defect is repaired by a fixed rule; each rule has a test below.

use std::{collections::BTreeSet, sync::Arc};

use crate::model::{
    AssistantMessage, ImportedCall, ImportedHistory, ImportedRound, ImportedStep, Message, ToolCall,
};

/// Replaces a missing result.
const NO_RESULT: &str = "[The result of this call is not in the history that was given.]";
/// Replaces a missing answer.
const NO_ANSWER: &str = "[The history that was given has no answer here.]";
/// Replaces the missing user message before an answer.
const NO_QUESTION: &str = "[The history that was given begins with the assistant.]";

/// A repaired history.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RepairedHistory {
    /// The conversation as rounds.
    pub past: ImportedHistory,
    /// The system messages of the list, joined.
    pub system: Option<String>,
}

/// Repairs an imported list of messages. Consecutive messages of one role become one; empty messages are dropped;
/// system messages are taken out. A result without its call in the directly preceding assistant message is dropped; a
/// call without a result gets a placeholder. Call ids become unique.
pub fn repair(messages: &[Message]) -> RepairedHistory {
    let mut repair = HistoryRepair::default();
    for message in messages {
        match message {
            Message::System(text) => repair.system(text),
            Message::User(content) => repair.user(&content.text_with_note()),
            Message::Assistant(message) => repair.assistant(message),
            Message::Tool { call, content, .. } => repair.result(call, &content.text_with_note()),
        }
    }
    repair.finish()
}

#[derive(Debug, Default)]
struct HistoryRepair {
    done: RepairedHistory,
    /// The round that is not closed yet.
    open: Option<OpenRound>,
    ids: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct OpenRound {
    user: String,
    steps: Vec<ImportedStep>,
    answer: Option<PendingAnswer>,
}

/// Consecutive assistant messages, joined, and the results that follow them.
#[derive(Debug, Default)]
struct PendingAnswer {
    text: String,
    reasoning: String,
    calls: Vec<(ToolCall, Option<String>)>,
}

impl HistoryRepair {
    fn system(&mut self, text: &str) {
        if !text.trim().is_empty() {
            join(self.done.system.get_or_insert_default(), text);
        }
    }

    fn user(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        if self.open.as_ref().is_some_and(|open| open.answer.is_some() || !open.steps.is_empty()) {
            self.close();
        }
        join(&mut self.open.get_or_insert_default().user, text);
    }

    fn assistant(&mut self, message: &AssistantMessage) {
        if message.text.trim().is_empty() && message.calls.is_empty() {
            return;
        }
        let open =
            self.open.get_or_insert_with(|| OpenRound { user: NO_QUESTION.into(), ..OpenRound::default() });
        if open.answer.as_ref().is_some_and(|answer| answer.calls.iter().any(|(_, result)| result.is_some()))
        {
            open.step(&mut self.ids);
        }
        let answer = open.answer.get_or_insert_default();
        join(&mut answer.text, &message.text);
        join(&mut answer.reasoning, &message.reasoning);
        answer.calls.extend(message.calls.iter().map(|call| (call.clone(), None)));
    }

    fn result(&mut self, id: &str, content: &str) {
        let answer = self.open.as_mut().and_then(|open| open.answer.as_mut());
        let mut calls = answer.into_iter().flat_map(|answer| &mut answer.calls);
        if let Some((_, result)) = calls.find(|(call, result)| call.id == id && result.is_none()) {
            *result = Some(content.to_owned());
        }
    }

    fn close(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        open.step(&mut self.ids);
        let answer = match open.answer {
            Some(PendingAnswer { text, reasoning, .. }) => {
                AssistantMessage { text, reasoning, ..AssistantMessage::default() }
            }
            None => AssistantMessage { text: NO_ANSWER.into(), ..AssistantMessage::default() },
        };
        let (user, steps, answer) = (open.user.into(), open.steps, Arc::new(answer));
        self.done.past.rounds.push(ImportedRound { user, steps, answer });
    }

    fn finish(mut self) -> RepairedHistory {
        match self.open.take_if(|open| open.answer.is_none() && open.steps.is_empty()) {
            Some(open) => self.done.past.unanswered = Some(open.user.into()),
            None => self.close(),
        }
        self.done
    }
}

impl OpenRound {
    /// Turns the pending answer into a step if it has calls.
    fn step(&mut self, ids: &mut BTreeSet<String>) {
        let Some(PendingAnswer { text, reasoning, calls }) =
            self.answer.take_if(|answer| !answer.calls.is_empty())
        else {
            return;
        };
        let call = |(call, result): (ToolCall, Option<String>)| ImportedCall {
            call: ToolCall { id: unique(ids, call.id), ..call },
            result: result.unwrap_or_else(|| NO_RESULT.into()),
        };
        let calls = calls.into_iter().map(call).collect();
        self.steps.push(ImportedStep { text, reasoning, calls });
    }
}

/// Returns `id`, or a name derived from it that no earlier call has.
fn unique(ids: &mut BTreeSet<String>, id: String) -> String {
    let id = if id.trim().is_empty() { "call".to_owned() } else { id };
    let numbered = (2..).map(|n: u64| format!("{id}_{n}"));
    let free = std::iter::once(id.clone()).chain(numbered).find(|id| !ids.contains(id)).unwrap_or(id);
    ids.insert(free.clone());
    free
}

/// Appends a paragraph.
fn join(to: &mut String, text: &str) {
    if !to.is_empty() && !text.is_empty() {
        to.push_str("\n\n");
    }
    to.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::history::History;

    fn user(text: &str) -> Message {
        Message::User(text.into())
    }

    fn answer(text: &str, ids: &[&str]) -> Message {
        let call = |id: &&str| ToolCall { id: (*id).into(), name: "look".into(), arguments: "{}".into() };
        let calls = ids.iter().map(call).collect();
        Message::Assistant(Arc::new(AssistantMessage {
            text: text.into(),
            calls,
            ..AssistantMessage::default()
        }))
    }

    fn result(id: &str, content: &str) -> Message {
        Message::Tool { call: id.into(), name: "look".into(), content: content.into() }
    }

    /// The rendered view, one line for each message.
    fn shown(past: &ImportedHistory) -> Vec<String> {
        let mut history = History::default();
        history.import(past);
        let line = |message: &Message| match message {
            Message::System(text) => format!("s {text}"),
            Message::User(content) => format!("u {}", content.text),
            Message::Assistant(answer) if answer.calls.is_empty() => format!("a {}", answer.text),
            Message::Assistant(answer) => {
                let ids: Vec<_> = answer.calls.iter().map(|call| call.id.as_str()).collect();
                format!("c {} [{}]", answer.text, ids.join(" "))
            }
            Message::Tool { call, content, .. } => format!("t {call} {}", content.text),
        };
        let mut lines: Vec<_> =
            history.render(crate::turn::RenderCursor::default()).0.iter().map(line).collect();
        lines.extend(past.unanswered.iter().map(|text| format!("u {text}")));
        lines
    }

    #[track_caller]
    fn check(messages: &[Message], expect: &[&str]) {
        let shown = shown(&repair(messages).past);
        let shown: Vec<_> = shown.iter().map(|line| line.replace('\n', "/")).collect();
        assert_eq!(shown, expect);
    }

    #[test]
    fn what_is_right_stays_as_it_is() {
        check(&[], &[]);
        let whole =
            [user("a"), answer("", &["1", "2"]), result("2", "y"), result("1", "x"), answer("b", &[])];
        check(&whole, &["u a", "c  [1 2]", "t 1 x", "t 2 y", "a b"]);
    }

    #[test]
    fn consecutive_users_are_one() {
        check(&[user("a"), user("b"), answer("c", &[])], &["u a//b", "a c"]);
    }

    #[test]
    fn consecutive_assistants_are_one() {
        check(&[user("a"), answer("b", &[]), answer("c", &[])], &["u a", "a b//c"]);
        let split = [user("a"), answer("b", &["1"]), answer("", &["2"]), result("1", "x"), result("2", "y")];
        check(&split, &["u a", "c b [1 2]", "t 1 x", "t 2 y", &format!("a {NO_ANSWER}")]);
    }

    #[test]
    fn a_result_without_its_call_directly_before_it_is_dropped() {
        check(&[user("a"), result("1", "x"), answer("b", &[]), result("1", "x")], &["u a", "a b"]);
        let late = [user("a"), answer("", &["1"]), result("1", "x"), answer("b", &[]), result("1", "again")];
        check(&late, &["u a", "c  [1]", "t 1 x", "a b"]);
        let twice = [user("a"), answer("", &["1"]), result("1", "x"), result("1", "y"), answer("b", &[])];
        check(&twice, &["u a", "c  [1]", "t 1 x", "a b"]);
    }

    #[test]
    fn a_missing_result_says_so() {
        let half = [user("a"), answer("", &["1", "2"]), result("2", "y"), answer("b", &[])];
        check(&half, &["u a", "c  [1 2]", &format!("t 1 {NO_RESULT}"), "t 2 y", "a b"]);
    }

    #[test]
    fn ids_become_unique() {
        let twins =
            [user("a"), answer("", &["1", "1"]), result("1", "x"), result("1", "y"), answer("b", &[])];
        check(&twins, &["u a", "c  [1 1_2]", "t 1 x", "t 1_2 y", "a b"]);
        let again = [user("a"), answer("", &["1"]), result("1", "x"), answer("", &["1"]), result("1", "y")];
        let closed = format!("a {NO_ANSWER}");
        check(&again, &["u a", "c  [1]", "t 1 x", "c  [1_2]", "t 1_2 y", &closed]);
        let nameless = [user("a"), answer("", &["", " "]), result("", "x"), answer("b", &[])];
        check(&nameless, &["u a", "c  [call call_2]", "t call x", &format!("t call_2 {NO_RESULT}"), "a b"]);
    }

    #[test]
    fn what_leads_without_a_question_is_kept_or_dropped() {
        check(&[answer("hello", &[]), user("a")], &[&format!("u {NO_QUESTION}"), "a hello", "u a"]);
        check(&[result("1", "x"), user("a")], &["u a"]);
    }

    #[test]
    fn empty_messages_are_dropped() {
        check(&[user("a"), answer(" ", &[]), user("\n"), user("b")], &["u a//b"]);
        check(
            &[user("a"), answer("", &["1"]), user(""), result("1", ""), answer("b", &[])],
            &["u a", "c  [1]", "t 1 ", "a b"],
        );
    }

    #[test]
    fn an_unanswered_round_is_closed_and_an_unanswered_question_waits() {
        let closed = format!("a {NO_ANSWER}");
        check(
            &[user("a"), answer("", &["1"]), result("1", "x"), user("b")],
            &["u a", "c  [1]", "t 1 x", &closed, "u b"],
        );
        let repaired = repair(&[user("a"), answer("b", &[]), user("c")]);
        assert_eq!(repaired.past.unanswered.as_deref(), Some("c"));
    }

    #[test]
    fn system_messages_are_taken_out() {
        let system = |text: &str| Message::System(text.into());
        let repaired = repair(&[system("one"), user("a"), system(" "), system("two"), user("b")]);
        assert_eq!(repaired.system.as_deref(), Some("one\n\ntwo"));
        assert_eq!(shown(&repaired.past), ["u a\n\nb"]);
    }
}
