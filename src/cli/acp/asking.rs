//! The part of an open session that asks the user and stops runs, beside the session's own task.

use std::{collections::BTreeSet, sync::Arc};

use agent_client_protocol::{
    Error, ErrorCode, is_connection_terminated, is_incoming_transport_closed, v1::schema::StopReason,
};
use hermod_actors::model::{
    ApprovalDecision, ApprovalScope, CallId, RunId, SessionId, StopReason as RunStop,
};

use super::{
    fold::note,
    questions::{OpenQuestion, QuestionForm, UserAnswer, filled},
    session::{Session, answer, to_error},
    tool_calls::asked_below,
};
use crate::{
    cli::shared_owner::SharedOwner,
    control::{ControlRequest, ControlResponse, RequestErrorKind},
    host::{HostError, unexpected_response},
    view::{ApprovalView, NodeView},
};

/// Something that was done beside the session's task.
#[derive(Debug)]
pub(super) enum TaskEnd {
    /// The user has answered, or could not be asked.
    Asked(CallId, Result<UserAnswer, Error>),
    /// A decision was made, or could not be.
    Decided(CallId, Result<(), HostError>),
    /// A run was stopped, or could not be.
    Stopped(RunId, Result<(), HostError>),
    /// A run goes on, or does not.
    Revived(RunId, Result<(), HostError>),
    /// What subagents ask.
    Looked(Result<Vec<ApprovalView>, HostError>),
}

impl Session {
    /// Asks the user about a call. A client that cannot show the question gets it as text, and its next prompt answers it.
    pub(super) async fn ask(&mut self, call: CallId) {
        let Some(question) = self.question(call).cloned() else { return };
        let client = self.front.client.clone();
        let asked = match question.form(&self.id, self.front.has_forms) {
            QuestionForm::NextPrompt => return self.ask_in_text(&question).await,
            QuestionForm::Options(request) => self.tasks.spawn(async move {
                let response = client.send_request(*request).block_task().await;
                TaskEnd::Asked(call, response.map(|response| question.chosen(&response)))
            }),
            QuestionForm::Fields(request) => self.tasks.spawn(async move {
                let response = client.send_request(*request).block_task().await;
                TaskEnd::Asked(call, response.map(filled))
            }),
        };
        self.asked.insert(call, asked);
    }

    fn question(&self, call: CallId) -> Option<&OpenQuestion> {
        self.fold.questions().get(&call).or_else(|| self.questions_below.get(&call))
    }

    /// Shows a question as text and ends the prompt. The run waits for the next one.
    async fn ask_in_text(&mut self, question: &OpenQuestion) {
        self.show(note(format!("{}\n\n*(The next message answers this.)*", question.text))).await;
        let is_own = self.fold.open_runs().contains(&question.call.run);
        let run = if is_own { Some(question.call.run) } else { self.fold.open_runs().first().copied() };
        let run = run.unwrap_or(question.call.run);
        self.awaits_text = Some((question.call, run));
        for reply in self.prompts.remove(&run).unwrap_or_default() {
            answer(reply, Ok(StopReason::EndTurn));
        }
    }

    /// Gives the text of a prompt to the question that waits for it; returns the run that goes on. `None` if none waits.
    pub(super) async fn answer_with(&mut self, text: &str) -> Option<RunId> {
        let (call, run) = self.awaits_text.take()?;
        self.question(call)?;
        let request = ControlRequest::ApprovalsAnswer { call: call.to_string(), text: text.to_owned() };
        match self.front.owner.ask(&request).await {
            Ok(_) => Some(run),
            Err(error) => {
                tracing::warn!(%call, %error, "the question does not take this answer; it becomes a task");
                None
            }
        }
    }

    /// Nothing is asked about the call any more.
    pub(super) fn settle(&mut self, call: CallId) {
        if let Some(asked) = self.asked.remove(&call) {
            asked.abort();
        }
        self.awaits_text.take_if(|(waiting, _)| *waiting == call);
    }

    /// Takes back everything that the user is asked.
    pub(super) fn forget_questions(&mut self) {
        std::mem::take(&mut self.asked).into_values().for_each(|asked| asked.abort());
        self.questions_below.clear();
        self.awaits_text = None;
    }

    /// Stops everything in the session that has no outcome.
    pub(super) fn cancel(&mut self) {
        let runs: BTreeSet<RunId> = self.prompts.keys().chain(self.fold.open_runs()).copied().collect();
        for run in runs {
            self.cancelled.insert(run);
            let (owner, reason) = (Arc::clone(&self.front.owner), RunStop::Command);
            self.tasks.spawn(async move {
                let request = ControlRequest::Stop { run: run.to_string(), tree: false, reason };
                TaskEnd::Stopped(run, owner.ask(&request).await.map(drop))
            });
        }
    }

    /// Takes the end of a task.
    pub(super) async fn on_task_end(&mut self, end: TaskEnd) {
        match end {
            TaskEnd::Asked(call, answer) => {
                self.asked.remove(&call);
                match answer {
                    Ok(answer) => self.on_answer(call, answer).await,
                    Err(error) => self.on_unasked(call, &error).await,
                }
            }
            TaskEnd::Decided(call, Err(error)) => {
                tracing::warn!(%call, %error, "a decision is not taken");
                if self.question(call).is_some() {
                    self.show(note(format!("*(The decision is not taken: {error})*"))).await;
                }
            }
            // The record of its end follows, or was there before.
            TaskEnd::Stopped(run, Err(error)) if is_usage(&error) => {
                tracing::debug!(%run, %error, "the run has ended by itself");
            }
            TaskEnd::Stopped(run, Err(error)) => {
                for reply in self.prompts.remove(&run).unwrap_or_default() {
                    answer(reply, Err(to_error(&error)));
                }
            }
            TaskEnd::Revived(run, Err(error)) => tracing::warn!(%run, %error, "a run does not go on"),
            TaskEnd::Looked(Ok(asked)) => self.on_asked_below(asked).await,
            TaskEnd::Looked(Err(error)) => tracing::debug!(%error, "what subagents ask is not known"),
            TaskEnd::Decided(_, Ok(())) | TaskEnd::Stopped(_, Ok(())) | TaskEnd::Revived(_, Ok(())) => {}
        }
    }

    async fn on_answer(&mut self, call: CallId, answer: UserAnswer) {
        let Some(question) = self.question(call).cloned() else { return };
        match answer {
            UserAnswer::Decision(verdict, scope) => self.decide(call, verdict, scope),
            UserAnswer::Text(text) => {
                let call_id = call.to_string();
                self.send_decision(call, ControlRequest::ApprovalsAnswer { call: call_id, text });
            }
            UserAnswer::NextPrompt => self.ask_in_text(&question).await,
            UserAnswer::Cancelled => self.cancel(),
        }
    }

    /// The client could not ask. If it has gone, the question waits for the next one; else silence is no permission.
    async fn on_unasked(&mut self, call: CallId, error: &Error) {
        if is_incoming_transport_closed(error) || is_connection_terminated(error) {
            return;
        }
        if error.code == ErrorCode::REQUEST_CANCELLED {
            return self.cancel();
        }
        let Some(question) = self.question(call).cloned() else { return };
        tracing::warn!(%call, error = error.message, "the client does not ask its user");
        if question.wants_text {
            return self.ask_in_text(&question).await;
        }
        let text = format!("*(The editor cannot ask about this call, so it is denied: {})*", error.message);
        self.show(note(text)).await;
        self.decide(call, ApprovalDecision::Deny, ApprovalScope::Once);
    }

    fn decide(&mut self, call: CallId, verdict: ApprovalDecision, scope: ApprovalScope) {
        self.send_decision(call, ControlRequest::ApprovalsDecide { call: call.to_string(), verdict, scope });
    }

    fn send_decision(&mut self, call: CallId, request: ControlRequest) {
        let owner = Arc::clone(&self.front.owner);
        self.tasks.spawn(async move { TaskEnd::Decided(call, owner.ask(&request).await.map(drop)) });
    }

    /// Looks for what subagents ask: their records are in sessions of their own.
    pub(super) fn look_below(&mut self) {
        let owner = Arc::clone(&self.front.owner);
        let known: BTreeSet<SessionId> = self.fold.subagents().collect();
        let runs: Vec<RunId> = self.fold.open_runs().iter().copied().collect();
        self.tasks.spawn(async move { TaskEnd::Looked(asked_in(&owner, known, runs).await) });
    }

    async fn on_asked_below(&mut self, asked: Vec<ApprovalView>) {
        let before: Vec<CallId> = self.questions_below.keys().copied().collect();
        for call in before.into_iter().filter(|call| !asked.iter().any(|asked| asked.call == *call)) {
            self.questions_below.remove(&call);
            self.settle(call);
        }
        for ApprovalView { call, question, wants_text, allow_rules, .. } in asked {
            if self.question(call).is_some() {
                continue;
            }
            let shown = asked_below(call, &question);
            let question =
                OpenQuestion { call, text: question, wants_text, has_rules: !allow_rules.is_empty(), shown };
            self.questions_below.insert(call, question);
            self.ask(call).await;
        }
    }
}

fn is_usage(error: &HostError) -> bool {
    matches!(error, HostError::Request(error) if error.kind == RequestErrorKind::Usage)
}

/// What is asked in these sessions of subagents, and in those of their subagents.
async fn asked_in(
    owner: &SharedOwner,
    mut sessions: BTreeSet<SessionId>,
    runs: Vec<RunId>,
) -> Result<Vec<ApprovalView>, HostError> {
    let ControlResponse::Approvals(mut asked) = owner.ask(&ControlRequest::ApprovalsList {}).await? else {
        return Err(unexpected_response().into());
    };
    if asked.iter().any(|asked| !sessions.contains(&asked.session)) {
        for run in runs {
            let request = ControlRequest::Tree { run: Some(run.to_string()) };
            let ControlResponse::Tree(nodes) = owner.ask(&request).await? else {
                return Err(unexpected_response().into());
            };
            let mut open: Vec<NodeView> = nodes.into_iter().flat_map(|node| node.children).collect();
            while let Some(node) = open.pop() {
                sessions.insert(node.run.session);
                open.extend(node.children);
            }
        }
    }
    asked.retain(|asked| sessions.contains(&asked.session));
    Ok(asked)
}
