//! Views of a pending approval, and of a person's answer to one.

use std::sync::Arc;

use hermod_actors::model::{
    ApprovalDecision, ApprovalScope, CallId, PendingApproval, PersonAnswer, RunId, SessionId, Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    encoding,
    run::RunView,
    schema::{Call, Decision, Id, Scope, Time},
};

/// An approval that a person has to give or deny.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalView {
    /// The call to decide about; it identifies the approval.
    #[schema(value_type = Call)]
    pub call: CallId,
    /// The call's run.
    #[schema(value_type = Id)]
    pub run: RunId,
    /// The call's session.
    #[schema(value_type = Id)]
    pub session: SessionId,
    /// Whether the call has not started: the policy asks. Otherwise it is in doubt.
    pub before_start: bool,
    /// Whether the request is a question of the model, which is answered with text.
    pub wants_text: bool,
    /// The known facts and the question.
    pub question: String,
    /// The names of the policy's rules that ask.
    #[schema(value_type = Vec<String>)]
    pub rules: Vec<Arc<str>>,
    /// The rules that an approval for the run, or for always, makes.
    #[schema(value_type = Vec<String>)]
    pub allow_rules: Vec<Arc<str>>,
    /// When the approval was requested.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub since: Timestamp,
    /// When a missing answer counts as a denial.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub expires_at: Timestamp,
}

impl ApprovalView {
    /// A pending approval of a session.
    pub fn new(session: SessionId, pending: PendingApproval) -> Self {
        let PendingApproval { request, since } = pending;
        Self {
            call: request.call,
            run: request.call.run,
            session,
            before_start: request.attempt == 0,
            wants_text: request.wants_text,
            question: request.question,
            rules: request.rules,
            allow_rules: request.allow_rules,
            since,
            expires_at: request.expires_at,
        }
    }
}

/// The answer to an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DecisionView {
    /// The call that was decided.
    #[schema(value_type = Call)]
    pub call: CallId,
    /// Whether the call may be made.
    #[schema(value_type = Decision)]
    pub verdict: ApprovalDecision,
    /// How far an approval goes.
    #[schema(value_type = Scope)]
    pub scope: ApprovalScope,
    /// The call's run.
    pub run: RunView,
}

impl DecisionView {
    /// A person's answer to the request about this call, and the run after it.
    pub fn new(call: CallId, answer: &PersonAnswer, run: RunView) -> Self {
        let (verdict, scope) = match answer {
            PersonAnswer::Allow(scope) => (ApprovalDecision::Allow, *scope),
            PersonAnswer::Text(_) => (ApprovalDecision::Allow, ApprovalScope::Once),
            PersonAnswer::Deny => (ApprovalDecision::Deny, ApprovalScope::Once),
        };
        Self { call, verdict, scope, run }
    }
}

/// The choices at the end of a question of a model: lines that are numbered from 1.
pub fn question_choices(question: &str) -> Vec<String> {
    let lines: Vec<&str> = question.lines().collect();
    let numbered = |n: usize, line: &str| {
        line.strip_prefix(&format!("{n}. ")).map(str::to_owned).filter(|choice| !choice.trim().is_empty())
    };
    (1..lines.len())
        .find_map(|from| {
            let rest = lines.get(from..)?;
            rest.iter().zip(1..).map(|(line, n)| numbered(n, line)).collect::<Option<Vec<_>>>()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_the_numbered_lines_at_the_end() {
        let check = |question: &str, expect: &[&str]| assert_eq!(question_choices(question), expect, "{question}");
        check("Which?\n1. red\n2. blue", &["red", "blue"]);
        check("Which?\n1. x\nof these:\n1. red\n2. blue", &["red", "blue"]);
        check("Which?", &[]);
        check("Which?\n2. red", &[]);
        check("Which?\n1. red\nor so", &[]);
        check("1. red", &[]);
    }
}
