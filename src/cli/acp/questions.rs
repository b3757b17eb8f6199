//! Questions to the user: approvals of calls, and what models ask with `clarify`. A request in, the question of ACP out;
//! its answer in, a decision out. Pure; `session.rs` asks and decides.

use agent_client_protocol::v1::schema::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAction, ElicitationContentValue,
    ElicitationFormMode, ElicitationSchema, ElicitationSessionScope, PermissionOption, PermissionOptionKind,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SessionId,
    StringPropertySchema, ToolCallUpdate,
};
use hermod_actors::model::{ApprovalDecision, ApprovalScope, CallId};

use crate::view::question_choices;

/// The ids of the options.
const ALLOW: &str = "allow";
const ALLOW_FOR_RUN: &str = "allow_run";
const ALLOW_ALWAYS: &str = "allow_always";
const DENY: &str = "deny";
const CHOICE: &str = "choice:";
const OWN_WORDS: &str = "own_words";
/// The fields of a form.
const CHOICE_FIELD: &str = "choice";
const ANSWER_FIELD: &str = "own_words";

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenQuestion {
    /// The call that waits.
    pub(super) call: CallId,
    /// The question.
    pub(super) text: String,
    /// Whether it is a question of the model, which is answered with text.
    pub(super) wants_text: bool,
    /// Whether rules can allow such calls from now on.
    pub(super) has_rules: bool,
    /// The call as the client is shown it.
    pub(super) shown: ToolCallUpdate,
}

/// The form of a question that a client takes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum QuestionForm {
    /// Options to choose from.
    Options(RequestPermissionRequest),
    /// A form with fields.
    Fields(CreateElicitationRequest),
    /// The client has none: the question is shown as text, and the next prompt answers it.
    NextPrompt,
}

/// What the user has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UserAnswer {
    /// A decision about the call.
    Decision(ApprovalDecision, ApprovalScope),
    /// The answer to a question of the model.
    Text(String),
    /// The next prompt is the answer.
    NextPrompt,
    /// The prompt is cancelled.
    Cancelled,
}

impl OpenQuestion {
    /// The form of this question for a client that takes forms, or not.
    pub(super) fn form(&self, session: &SessionId, has_forms: bool) -> QuestionForm {
        let choices = question_choices(&self.text);
        if self.wants_text && has_forms {
            let scope =
                ElicitationSessionScope::new(session.clone()).tool_call_id(self.shown.tool_call_id.clone());
            let mode = ElicitationFormMode::new(scope, schema(choices));
            return QuestionForm::Fields(CreateElicitationRequest::new(mode, &*self.text));
        }
        if self.wants_text && choices.is_empty() {
            return QuestionForm::NextPrompt;
        }
        let options = if self.wants_text { choice_options(choices) } else { self.decision_options() };
        QuestionForm::Options(RequestPermissionRequest::new(session.clone(), self.shown.clone(), options))
    }

    fn decision_options(&self) -> Vec<PermissionOption> {
        let mut options = vec![option(ALLOW, "Allow", PermissionOptionKind::AllowOnce)];
        if self.has_rules {
            let name = "Allow such calls for this run";
            options.push(option(ALLOW_FOR_RUN, name, PermissionOptionKind::AllowAlways));
            let name = "Always allow such calls";
            options.push(option(ALLOW_ALWAYS, name, PermissionOptionKind::AllowAlways));
        }
        options.push(option(DENY, "Deny", PermissionOptionKind::RejectOnce));
        options
    }

    /// What the chosen option means. An option that was not offered is a denial.
    pub(super) fn chosen(&self, response: &RequestPermissionResponse) -> UserAnswer {
        let RequestPermissionOutcome::Selected(selected) = &response.outcome else {
            return UserAnswer::Cancelled;
        };
        let id = &*selected.option_id.0;
        let choice = id.strip_prefix(CHOICE).and_then(|n| n.parse().ok());
        if let Some(choice) = choice.and_then(|n: usize| question_choices(&self.text).into_iter().nth(n)) {
            return UserAnswer::Text(choice);
        }
        let allow = |scope| UserAnswer::Decision(ApprovalDecision::Allow, scope);
        match id {
            ALLOW if !self.wants_text => allow(ApprovalScope::Once),
            ALLOW_FOR_RUN if self.has_rules => allow(ApprovalScope::Run),
            ALLOW_ALWAYS if self.has_rules => allow(ApprovalScope::Always),
            OWN_WORDS if self.wants_text => UserAnswer::NextPrompt,
            _ => UserAnswer::Decision(ApprovalDecision::Deny, ApprovalScope::Once),
        }
    }
}

/// What the fields of a form mean: the user's own words come before a choice.
pub(super) fn filled(response: CreateElicitationResponse) -> UserAnswer {
    let deny = UserAnswer::Decision(ApprovalDecision::Deny, ApprovalScope::Once);
    match response.action {
        ElicitationAction::Accept(accepted) => {
            let mut fields = accepted.content.unwrap_or_default();
            let mut text = |name: &str| match fields.remove(name) {
                Some(ElicitationContentValue::String(text)) if !text.trim().is_empty() => Some(text),
                Some(_) | None => None,
            };
            text(ANSWER_FIELD).or_else(|| text(CHOICE_FIELD)).map_or(deny, UserAnswer::Text)
        }
        ElicitationAction::Cancel => UserAnswer::Cancelled,
        _ => deny,
    }
}

fn option(id: &str, name: &str, kind: PermissionOptionKind) -> PermissionOption {
    PermissionOption::new(id.to_owned(), name, kind)
}

fn choice_options(choices: Vec<String>) -> Vec<PermissionOption> {
    let choices = choices.into_iter().enumerate();
    let options =
        choices.map(|(n, choice)| option(&format!("{CHOICE}{n}"), &choice, PermissionOptionKind::AllowOnce));
    let own = option(OWN_WORDS, "Answer with the next message", PermissionOptionKind::RejectOnce);
    options.chain([own]).collect()
}

fn schema(choices: Vec<String>) -> ElicitationSchema {
    let schema = ElicitationSchema::new();
    if choices.is_empty() {
        return schema.property(ANSWER_FIELD, StringPropertySchema::new().title("Answer".to_owned()), true);
    }
    let choice = StringPropertySchema::new().title("Choice".to_owned()).enum_values(choices);
    let answer = StringPropertySchema::new().title("Or in your own words".to_owned());
    schema.property(CHOICE_FIELD, choice, false).property(ANSWER_FIELD, answer, false)
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::RunId;
    use serde_json::{Value, json};

    use super::{super::tool_calls::asked_below, *};

    fn question(text: &str, wants_text: bool, has_rules: bool) -> OpenQuestion {
        let call = CallId { run: RunId::from_bits(1), iteration: 1, n: 1 };
        OpenQuestion { call, text: text.into(), wants_text, has_rules, shown: asked_below(call, text) }
    }

    /// Checks the ids of the options, and what each means.
    #[track_caller]
    fn check(question: &OpenQuestion, expect: &[(&str, UserAnswer)]) {
        let QuestionForm::Options(request) = question.form(&SessionId::new("s"), false) else {
            panic!("{question:?} has no options");
        };
        let meaning = |id: &str| {
            let outcome = json!({ "outcome": { "outcome": "selected", "optionId": id } });
            question.chosen(&serde_json::from_value(outcome).unwrap())
        };
        let ids = request.options.iter().map(|option| option.option_id.to_string());
        let got: Vec<(String, UserAnswer)> = ids.map(|id| (id.clone(), meaning(&id))).collect();
        assert_eq!(
            got,
            expect.iter().map(|(id, answer)| ((*id).to_owned(), answer.clone())).collect::<Vec<_>>()
        );
        assert_eq!(
            meaning("never offered"),
            UserAnswer::Decision(ApprovalDecision::Deny, ApprovalScope::Once)
        );
        let cancelled = serde_json::from_value(json!({ "outcome": { "outcome": "cancelled" } })).unwrap();
        assert_eq!(question.chosen(&cancelled), UserAnswer::Cancelled);
    }

    #[test]
    fn options_mean_decisions() {
        let allow = |scope| UserAnswer::Decision(ApprovalDecision::Allow, scope);
        let deny = UserAnswer::Decision(ApprovalDecision::Deny, ApprovalScope::Once);
        let once = (ALLOW, allow(ApprovalScope::Once));
        check(&question("May I?", false, false), &[once.clone(), (DENY, deny.clone())]);
        let run = (ALLOW_FOR_RUN, allow(ApprovalScope::Run));
        let always = (ALLOW_ALWAYS, allow(ApprovalScope::Always));
        check(&question("May I?", false, true), &[once, run, always, (DENY, deny)]);
        let text = |text: &str| UserAnswer::Text(text.into());
        let expect =
            [("choice:0", text("red")), ("choice:1", text("blue")), (OWN_WORDS, UserAnswer::NextPrompt)];
        check(&question("Which?\n1. red\n2. blue", true, false), &expect);
    }

    #[test]
    fn an_option_that_was_not_offered_allows_nothing() {
        let outcome = |id: &str| {
            serde_json::from_value(json!({ "outcome": { "outcome": "selected", "optionId": id } })).unwrap()
        };
        let deny = UserAnswer::Decision(ApprovalDecision::Deny, ApprovalScope::Once);
        for id in [ALLOW_FOR_RUN, ALLOW_ALWAYS, OWN_WORDS, "choice:0", "choice:x"] {
            assert_eq!(question("May I?", false, false).chosen(&outcome(id)), deny, "{id}");
        }
        assert_eq!(question("Which?", true, false).chosen(&outcome(ALLOW)), deny);
    }

    #[test]
    fn a_question_without_choices_waits_for_the_next_prompt() {
        let form = question("Which branch?", true, false).form(&SessionId::new("s"), false);
        assert_eq!(form, QuestionForm::NextPrompt);
    }

    /// Checks the properties of the form, and what an answer to it means.
    #[track_caller]
    fn check_form(text: &str, properties: &[&str], answer: Value, expect: UserAnswer) {
        let QuestionForm::Fields(request) = question(text, true, false).form(&SessionId::new("s"), true)
        else {
            panic!("no form");
        };
        let request = serde_json::to_value(request).unwrap();
        assert_eq!((&request["mode"], &request["sessionId"]), (&json!("form"), &json!("s")));
        let names: Vec<&String> =
            request["requestedSchema"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, properties);
        assert_eq!(filled(serde_json::from_value(answer).unwrap()), expect);
    }

    #[test]
    fn a_form_takes_a_choice_or_words() {
        let accept = |content: Value| json!({ "action": "accept", "content": content });
        let text = |text: &str| UserAnswer::Text(text.into());
        check_form("Which?", &["own_words"], accept(json!({ "own_words": "main" })), text("main"));
        let choices = "Which?\n1. red\n2. blue";
        check_form(choices, &["choice", "own_words"], accept(json!({ "choice": "red" })), text("red"));
        let both = accept(json!({ "choice": "red", "own_words": "green" }));
        check_form(choices, &["choice", "own_words"], both, text("green"));
        let deny = UserAnswer::Decision(ApprovalDecision::Deny, ApprovalScope::Once);
        check_form("Which?", &["own_words"], accept(json!({ "own_words": " " })), deny.clone());
        check_form("Which?", &["own_words"], json!({ "action": "decline" }), deny);
        check_form("Which?", &["own_words"], json!({ "action": "cancel" }), UserAnswer::Cancelled);
    }
}
