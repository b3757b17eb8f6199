//! Submissions: from a request to an accepted run. Checks the request, looks for the first run of its idempotency key,
//! makes the spec of the run, and delivers the submission to its session.

use std::{sync::Arc, time::Duration};

use tokio::sync::OwnedSemaphorePermit;

use crate::{
    model::{Dimension, ModelRow, RunAccepted, RunId, RunRow, RunSpec, SessionId, SessionRow},
    port::TextRedactor,
    redaction::{redact_expectations, redact_messages, redact_text},
    runtime::{RunError, RunRequest, Runtime, SessionChoice, images, repeat::FirstTask},
    session::{AcceptedRun, InputReply, SessionMsg, SubmitError, SubmitReply},
    supervisor::{SessionSeed, SessionsMsg},
    turn::{Input, repair},
};

/// Tries of a request to a session that crashes before it answers. After three crashes at one step the supervisor gives
/// the run up, so more tries rarely help.
pub(super) const MAX_TRIES: usize = 5;

/// Most bytes of a message to a session.
pub const MAX_MESSAGE_BYTES: usize = 256 << 10;

/// The session of a submission.
#[derive(Debug)]
struct SessionTarget {
    session: SessionId,
    /// The key of a session that does not exist yet.
    new_key: Option<Arc<str>>,
}

impl Runtime {
    /// Submits a task. When this resolves with `Ok`, the run is durable and will reach an outcome.
    pub async fn submit(&self, request: RunRequest) -> Result<AcceptedRun, RunError> {
        let request = request.redacted(&*self.parts.redactor).with_message_hash();
        request.check()?;
        let permit = self.admit()?;
        if let Some(first) = self.find_first(&request).await? {
            return Ok(first);
        }
        self.check_space().await?;
        let run = RunId::from_bits(self.new_ulid());
        let repaired = repair(&request.history);
        let mut spec = request.spec(&self.defaults().spec, run, repaired.system.as_deref());
        check_prices(&spec)?;
        spec.schema_bytes = self.parts.executor.tools().schema_bytes(&spec.tools);
        self.apply_observations(&mut spec).await;
        let spec = Arc::new(spec);
        self.check_expectations(&spec).await?;
        for (model, level) in spec.models_without_thinking_control() {
            let level = level.name();
            tracing::info!(%run, %model, level, "the model cannot be told how much to think, so it is not told");
        }
        let scaled = images::scale_all(&request.images, &*self.pictures).await?;
        let images = images::describe_all(run, &scaled);
        let accepted = RunAccepted::new(run, Arc::clone(&request.input), Arc::clone(&spec));
        let (history, request_hash) = (Arc::new(repaired.past), request.request_hash);
        let (queueing, occurrence) = (request.queueing, request.occurrence.clone());
        let accepted = RunAccepted { images, history, request_hash, queueing, occurrence, ..accepted };
        let input = Input::Submitted { accepted: Box::new(accepted), key: request.idempotency_key.clone() };
        self.submit_to_session(&request, (run, &spec, &scaled), input, permit).await
    }

    async fn submit_to_session(
        &self,
        request: &RunRequest,
        (run, spec, images): (RunId, &RunSpec, &[images::ScaledImage]),
        input: Input,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Result<AcceptedRun, RunError> {
        let mut target = self.resolve(&request.session).await?;
        let mut prompt = request.prompt.clone();
        for _ in 0..MAX_TRIES {
            let session = target.session;
            let new = match &target.new_key {
                Some(key) => Some(self.session_seed(key, spec, &mut prompt).await?),
                None => None,
            };
            images::write_all(&*self.parts.executor.artifacts, session, run, images).await?;
            let (input, permit) = (input.clone(), Arc::clone(&permit));
            let command = |reply| {
                let reply = InputReply::Submit(SubmitReply::new(reply, permit));
                SessionsMsg::Deliver(session, new, SessionMsg::Command { input, reply, suspended: None })
            };
            let answer = self.request(command).await;
            // A session recognizes a repeated message only for some time; its row is there from its append on.
            if answer.is_none()
                && request.queueing.is_some()
                && let Some((session, _)) = self.message(run).await?
            {
                return Ok(AcceptedRun { run, session, at: run.created_at() });
            }
            match answer {
                Some(Ok(accepted)) => return Ok(accepted),
                Some(Err(SubmitError::Duplicate(first))) if request.occurrence.is_some() => {
                    return Ok(accepted_run(&self.row(first).await?));
                }
                Some(Err(SubmitError::Duplicate(first))) => {
                    return self.check_repeat_of(request, first).await;
                }
                // Another submission opened a session with this key first: this one belongs there.
                Some(Err(SubmitError::KeyTaken(_))) => target = self.resolve(&request.session).await?,
                // The session's history may come from this very request, submitted twice at the same time.
                Some(Err(error @ SubmitError::HasHistory(_))) => {
                    let first = self.find_first(request).await?;
                    return first.ok_or(error.into());
                }
                Some(Err(error)) => return Err(error.into()),
                // The session crashed before it answered, or was removed: it is resolved again.
                None if target.new_key.is_none() => target = self.resolve(&request.session).await?,
                // The session crashed before it answered. A repeat is recognized if the run is durable.
                None => self.check_running()?,
            }
        }
        Err(SubmitError::CrashLooping(target.session).into())
    }

    /// The initial data of a new session. Its prompt is built once, however often the request is tried.
    async fn session_seed(
        &self,
        key: &Arc<str>,
        spec: &RunSpec,
        prompt: &mut Option<Arc<str>>,
    ) -> Result<Arc<SessionSeed>, RunError> {
        let built = match prompt {
            Some(built) => Arc::clone(built),
            None => self.build_prompt(spec).await?,
        };
        let (agent, prompt) = (spec.agent.clone(), Arc::clone(prompt.insert(built)));
        Ok(Arc::new(SessionSeed { key: Arc::clone(key), agent, prompt }))
    }

    /// Takes the permit of a submission that waits to become durable. Stops need none.
    fn admit(&self) -> Result<Arc<OwnedSemaphorePermit>, RunError> {
        let permit = Arc::clone(&self.parts.admission).try_acquire_owned();
        permit.map(Arc::new).map_err(|_| SubmitError::Overloaded { waiting: self.submissions }.into())
    }

    /// Refuses the submission if the disk space may not suffice until the run's end.
    async fn check_space(&self) -> Result<(), RunError> {
        let Some(space) = &self.space else { return Ok(()) };
        let shortage = space.low_disk_space().await.map(SubmitError::LowDiskSpace);
        shortage.map_or(Ok(()), |shortage| Err(shortage.into()))
    }

    /// Applies limits observed by earlier runs, and limits listed by providers for models with an unknown window.
    /// Without them the run begins with estimates.
    async fn apply_observations(&self, spec: &mut RunSpec) {
        let rows = self.model_rows(spec).await;
        let listed = self.listed_limits(self.models_to_list(spec, &rows)).await;
        spec.apply_listed_limits(&listed);
        spec.apply_model_rows(&rows);
    }

    /// The rows of a run's models; none if they cannot be read.
    pub(super) async fn model_rows(&self, spec: &RunSpec) -> Vec<ModelRow> {
        self.parts.journal.rows().models(spec.models()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what was found out about models cannot be read");
            Vec::new()
        })
    }

    async fn resolve(&self, choice: &SessionChoice) -> Result<SessionTarget, RunError> {
        self.check_running()?;
        let existing = |row: &SessionRow| SessionTarget { session: row.id, new_key: None };
        let new = || SessionId::from_bits(self.new_ulid());
        match choice {
            SessionChoice::New => {
                let session = new();
                Ok(SessionTarget { session, new_key: Some(session.to_string().into()) })
            }
            SessionChoice::Key(key) => {
                let known = self.session_of_key(key).await?;
                let create = || SessionTarget { session: new(), new_key: Some(Arc::clone(key)) };
                Ok(known.as_ref().map_or_else(create, existing))
            }
            SessionChoice::Id(id) => self.session(*id).await.map(|row| existing(&row)),
        }
    }

    /// The first run of the request's idempotency key, or of its occurrence.
    async fn find_first(&self, request: &RunRequest) -> Result<Option<AcceptedRun>, RunError> {
        if let Some(occurrence) = &request.occurrence {
            let known = self.parts.journal.rows().occurrence(occurrence.clone()).await?;
            return match known.map(|known| known.state.run()) {
                None => Ok(None),
                Some(Some(run)) => Ok(Some(accepted_run(&self.row(run).await?))),
                Some(None) => Err(SubmitError::OccurrenceLeftOut(occurrence.clone()).into()),
            };
        }
        let Some(key) = &request.idempotency_key else { return Ok(None) };
        match self.parts.journal.rows().id_of_key(key).await? {
            Some(first) => self.check_repeat_of(request, first).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the run or the message of the request's key if the request repeats it.
    async fn check_repeat_of(&self, request: &RunRequest, first: RunId) -> Result<AcceptedRun, RunError> {
        // A message that has joined a run may have become a run since, together with others: its row tells what was sent.
        if let Some(message) = self.parts.journal.rows().message(first).await? {
            return request.check_repeats_message(&message);
        }
        self.check_repeat(request, first).await
    }

    /// Returns the run of the request's key if its task is that of the request.
    async fn check_repeat(&self, request: &RunRequest, run: RunId) -> Result<AcceptedRun, RunError> {
        let row = self.row(run).await?;
        let (session, accepted) = (self.session(row.session).await?, self.acceptance(&row).await?);
        let first = FirstTask { row: &row, session: &session, accepted: &accepted };
        let repeats = request.check_repeats(first, &*self.parts.executor.artifacts).await;
        repeats.map_err(|conflict| RunError::KeyConflict(Box::new(conflict)))?;
        Ok(accepted_run(&row))
    }
}

const fn accepted_run(row: &RunRow) -> AcceptedRun {
    AcceptedRun { run: row.id, session: row.session, at: row.accepted_at }
}

impl RunRequest {
    /// The request with the secrets in its texts redacted, as it is recorded. Names and keys are not redacted.
    #[must_use]
    pub fn redacted(mut self, redactor: &dyn TextRedactor) -> Self {
        redact_text(&mut self.input, redactor);
        let system = self.spec.as_mut().and_then(|spec| spec.system.as_mut());
        for text in [self.system.as_mut(), self.prompt.as_mut(), system].into_iter().flatten() {
            redact_text(text, redactor);
        }
        redact_messages(&mut self.history, redactor);
        let of_spec = self.spec.as_mut().map(|spec| &mut spec.expects);
        for expects in [Some(&mut self.expects), of_spec].into_iter().flatten() {
            redact_expectations(expects, redactor);
        }
        self
    }

    /// Checks the fields of the request.
    fn check(&self) -> Result<(), RunError> {
        let invalid = |field, error: &str| Err(RunError::Invalid { field, error: error.into() });
        if self.input.trim().is_empty() {
            return invalid("input", "is empty; say what is to be done");
        }
        if self.queueing.is_some() && self.input.len() > MAX_MESSAGE_BYTES {
            let bytes = self.input.len();
            return invalid(
                "input",
                &format!("has {bytes} bytes; a message has at most {MAX_MESSAGE_BYTES}"),
            );
        }
        if self.queueing.is_some() && !self.history.is_empty() {
            return invalid("history", "comes with a message; only a task may bring one");
        }
        if self.occurrence.is_some() && (self.queueing.is_some() || self.idempotency_key.is_some()) {
            return invalid("occurrence", "comes with an idempotency key or as a message; leave those out");
        }
        let is_blank = |text: &Arc<str>| text.trim().is_empty();
        if self.task.as_ref().is_some_and(is_blank) {
            return invalid("task", "is empty; leave it out to have one made");
        }
        if self.spec.as_ref().is_some_and(|spec| self.task.is_none() && spec.isolation_key.trim().is_empty())
        {
            return invalid("spec.task", "is empty; name one, here or in the request");
        }
        if self.idempotency_key.as_ref().is_some_and(is_blank) {
            return invalid("idempotency_key", "is empty; give the task a name of its own, or leave it out");
        }
        if matches!(&self.session, SessionChoice::Key(key) if is_blank(key)) {
            return invalid("session", "has an empty key; give it one, or take a new session");
        }
        if self.spec.as_ref().is_some_and(|spec| spec.chain.is_empty()) {
            return invalid("spec.chain", "names no model; name at least one");
        }
        for (field, limit) in [("timeout", self.timeout), ("wall", self.wall)] {
            if limit.is_some_and(|limit| limit < Duration::from_millis(1)) {
                return invalid(field, "is less than a millisecond; leave it out for none");
            }
        }
        Ok(())
    }

    /// The spec of the run: fields of the request override its spec, which replaces the default.
    fn spec(&self, default: &RunSpec, run: RunId, system: Option<&str>) -> RunSpec {
        let mut spec = self.spec.as_ref().unwrap_or(default).clone();
        match (&self.task, &self.spec) {
            (Some(task), _) => spec.isolation_key = task.to_string(),
            (None, Some(_)) => {}
            (None, None) => spec.isolation_key = run.to_string(),
        }
        let layers = [system, self.system.as_deref().or(spec.system.as_deref())];
        let layers: Vec<&str> = layers.into_iter().flatten().filter(|text| !text.trim().is_empty()).collect();
        spec.system = (!layers.is_empty()).then(|| layers.join("\n\n").into());
        for dimension in Dimension::ALL {
            if let Some(amount) = self.budget.get(dimension) {
                spec.limits.budget.set(dimension, amount);
            }
        }
        spec.thinking = self.thinking.or(spec.thinking);
        if !self.expects.is_empty() {
            spec.expects.clone_from(&self.expects);
        }
        let millis = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        spec.limits.wall_ms = self.wall.map(millis).or(spec.limits.wall_ms);
        spec.limits.timeout_ms = self.timeout.map(millis).or(spec.limits.timeout_ms);
        spec
    }
}

/// Checks that a limit in dollars can be enforced: all prices must be known.
fn check_prices(spec: &RunSpec) -> Result<(), RunError> {
    match spec.first_unpriced().filter(|_| spec.limits.budget.usd.is_some()) {
        None => Ok(()),
        Some(model) => Err(RunError::Invalid {
            field: "budget.usd",
            error: format!("the price of {model} is not known, so it cannot be kept; limit tokens instead"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AgentName, Amounts, InDoubtPolicy, Lane, Limits, ThinkingLevel};

    const RUN: RunId = RunId::from_bits(7);

    fn default() -> RunSpec {
        RunSpec {
            agent: AgentName::default(),
            chain: vec!["p/m".parse().unwrap()],
            workspace: "/w".into(),
            isolation_key: "default".into(),
            tools: Vec::new(),
            schema_bytes: 0,
            profiles: Vec::new(),
            thinking: None,
            lane: Lane::default(),
            limits: Limits {
                budget: Amounts { iterations: Some(90), ..Amounts::default() },
                max_tokens: 10,
                ..Limits::default()
            },
            system: None,
            in_doubt: InDoubtPolicy::default(),
            compaction: None,
            title: None,
            vision: None,
            memory: None,
            delegation: None,
            loop_guard: true,
            expects: Vec::new(),
            must_answer: true,
            script: None,
            deliver_to: Vec::new(),
        }
    }

    fn request() -> RunRequest {
        RunRequest::new("do it")
    }

    /// Checks the spec that a request makes of the default, with a history whose system message is `system`.
    #[track_caller]
    fn check(request: RunRequest, system: Option<&str>, change: impl FnOnce(&mut RunSpec)) {
        let mut expect = RunSpec { isolation_key: RUN.to_string(), ..default() };
        change(&mut expect);
        assert_eq!(request.spec(&default(), RUN, system), expect);
    }

    #[test]
    fn what_is_left_out_is_made_or_taken_from_the_default() {
        check(request(), None, |_| {});
        let own = RunSpec { isolation_key: "own".into(), workspace: "/other".into(), ..default() };
        check(RunRequest { spec: Some(own.clone()), ..request() }, None, |spec| *spec = own);
    }

    #[test]
    fn what_is_said_counts() {
        check(RunRequest { task: Some("t".into()), ..request() }, None, |spec| {
            spec.isolation_key = "t".into();
        });
        let budget = Amounts { tokens: Some(5), ..Amounts::default() };
        check(RunRequest { budget, ..request() }, None, |spec| spec.limits.budget.tokens = Some(5));
        let (wall, timeout) = (Some(Duration::from_secs(3)), Some(Duration::from_secs(2)));
        check(RunRequest { wall, timeout, ..request() }, None, |spec| {
            (spec.limits.timeout_ms, spec.limits.wall_ms) = (Some(2_000), Some(3_000));
        });
        let thinking = Some(ThinkingLevel::Low);
        check(RunRequest { thinking, ..request() }, None, |spec| spec.thinking = thinking);
        let own =
            RunSpec { thinking: Some(ThinkingLevel::High), isolation_key: RUN.to_string(), ..default() };
        check(RunRequest { spec: Some(own), thinking, ..request() }, None, |spec| spec.thinking = thinking);
    }

    #[test]
    fn system_messages_of_a_history_come_first() {
        let system = |text: &str| RunRequest { system: Some(text.into()), ..request() };
        check(system("s"), None, |spec| spec.system = Some("s".into()));
        check(system("s"), Some("h"), |spec| spec.system = Some("h\n\ns".into()));
        check(system(" "), Some("h"), |spec| spec.system = Some("h".into()));
    }

    #[test]
    fn what_cannot_be_taken_names_the_field() {
        let check = |request: RunRequest, expect: Option<&str>| {
            let error = request.check().err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expect);
        };
        check(request(), None);
        check(RunRequest::new(" "), Some("input: is empty; say what is to be done"));
        let task = RunRequest { task: Some("".into()), ..request() };
        check(task, Some("task: is empty; leave it out to have one made"));
        let spec = Some(RunSpec { isolation_key: " ".into(), ..default() });
        check(RunRequest { spec: spec.clone(), task: Some("t".into()), ..request() }, None);
        let expect = Some("spec.task: is empty; name one, here or in the request");
        check(RunRequest { spec, ..request() }, expect);
        for blank in ["", " ", "\n\t", "\u{a0}"] {
            let key = RunRequest { idempotency_key: Some(blank.into()), ..request() };
            let expect = "idempotency_key: is empty; give the task a name of its own, or leave it out";
            check(key, Some(expect));
            let session = RunRequest { session: SessionChoice::Key(blank.into()), ..request() };
            check(session, Some("session: has an empty key; give it one, or take a new session"));
        }
        let modelless = RunRequest { spec: Some(RunSpec { chain: Vec::new(), ..default() }), ..request() };
        check(modelless, Some("spec.chain: names no model; name at least one"));
        let timeout = RunRequest { timeout: Some(Duration::ZERO), ..request() };
        check(timeout, Some("timeout: is less than a millisecond; leave it out for none"));
    }
}
