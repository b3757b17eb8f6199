//! Resumes unfinished runs, from the request to the result: finds them, creates their endpoints, starts a runtime,
//! force-fails crash-looping runs and follows the others.

use std::{collections::BTreeMap, ops::ControlFlow, path::Path, sync::Arc};

use hermod_actors::{
    Defaults, RunError, Runtime,
    model::{RunId, RunRow, RunState},
};

use super::{ResumeObserver, probation::Probation, resumed_runs::ResumedRuns};
use crate::{
    clock,
    config::{Config, OLLAMA},
    control::{ResolvedId, StoreReader},
    crash_loop::CrashHistoryFile,
    discovery::Variables,
    host::{
        agents::missing_agent_note,
        crash_trials::fail_crash_looping,
        endpoints::Endpoints,
        error::HostError,
        model_choice::{OllamaProbe, discover},
        notes::NoteSink,
        owned_store::{OwnedStore, serve_commands},
        run_defaults,
        signals::{ShutdownSignal, Signals},
        start::{ShutdownUrgency, start},
        submission::RunSubmitter,
    },
    prompt::LayeredPrompt,
    view::RunView,
};

/// Which runs are resumed, and until when.
#[derive(Debug, Clone, Copy)]
pub struct ResumeRequest<'a> {
    /// A run or session: the unfinished runs of that conversation; `None` is every unfinished run.
    pub id: Option<&'a str>,
    /// Whether to end when every run has its outcome or waits for a person; else only a signal ends the work.
    pub wait: bool,
}

/// The result of resuming.
#[derive(Debug)]
pub struct ResumeOutcome {
    /// The runs, in the order of their acceptance.
    pub runs: Vec<RunView>,
    /// The signal that ended the process's work.
    pub signal: Option<ShutdownSignal>,
    /// The final texts of the ended runs; empty without [`ResumeRequest::wait`].
    pub texts: BTreeMap<RunId, String>,
}

impl ResumeOutcome {
    /// A result without texts: no run was waited for.
    fn without_texts(rows: Vec<RunRow>, signal: Option<ShutdownSignal>) -> Self {
        let runs = rows.into_iter().map(RunView::without_process).collect();
        Self { runs, signal, texts: BTreeMap::new() }
    }
}

/// Resumes the unfinished runs that are asked for, until they have ended or a signal comes.
pub async fn resume_runs(
    request: ResumeRequest<'_>,
    config: &Config,
    variables: &Variables,
    store: &mut OwnedStore,
    observer: &mut dyn ResumeObserver,
) -> Result<ResumeOutcome, HostError> {
    let since = clock::now();
    let reader = store.reader();
    let OwnedStore { journal, state, runtime: slot, signals, crash_history, notes, .. } = store;
    let rows = match signals.run_until_signal(unfinished(request.id, &reader)).await? {
        ControlFlow::Continue(rows) => rows,
        ControlFlow::Break(signal) => return Ok(ResumeOutcome::without_texts(Vec::new(), Some(signal))),
    };
    if rows.is_empty() {
        notes.progress("nothing   is unfinished");
        return Ok(ResumeOutcome::without_texts(rows, None));
    }
    let started = async {
        let endpoints =
            endpoints((config, variables), &reader, (&rows, state), (OllamaProbe::Never, &**notes)).await?;
        let spec = run_defaults::spec(config, Vec::new(), None, state);
        let defaults = Defaults { spec, prompt: Arc::new(LayeredPrompt::new(config, state)) };
        Ok::<_, HostError>(
            start(Arc::clone(journal), endpoints, (config, variables), defaults, Some(Arc::clone(notes)))
                .await?,
        )
    };
    let host = match signals.run_until_signal(Box::pin(started)).await? {
        ControlFlow::Continue(host) => host,
        ControlFlow::Break(signal) => return Ok(ResumeOutcome::without_texts(rows, Some(signal))),
    };
    let host = Arc::new(host);
    host.start_deliveries((config, variables), None);
    let runtime = &host.runtime;
    let submitter = RunSubmitter::of_command(&host, (&reader, state), (config, variables));
    runtime.keep_lane_places(&rows);
    let mut runs = ResumedRuns::new(runtime, (rows, since), observer);
    let followed = async {
        let preparation = async {
            fail_crash_looping(runtime, &**notes, crash_history, &runs.rows()).await?;
            runs.refresh_running().await
        };
        if let ControlFlow::Break(signal) = signals.run_until_signal(preparation).await? {
            return Ok(Some(signal));
        }
        let mut trials = Probation::new(&runs, crash_history, notes);
        let allow_revivals = || submitter.allow_revivals();
        let stores = (&reader, &mut *crash_history);
        follow(&mut runs, &mut trials, stores, (signals, &**notes, request.wait), allow_revivals).await
    };
    let submissions = Arc::clone(&submitter);
    let followed = serve_commands((slot, runtime), submissions, notes, followed).await;
    let rows = runs.rows();
    drop(runs);
    let texts = if request.wait { texts(runtime, &rows).await? } else { BTreeMap::new() };
    host.suspend(if matches!(followed, Ok(Some(_))) {
        ShutdownUrgency::Urgent
    } else {
        ShutdownUrgency::Normal
    })
    .await;
    let signal = followed?;
    let runs = with_current_counts(rows, &reader).await?;
    Ok(ResumeOutcome { runs: runs.into_iter().map(RunView::without_process).collect(), signal, texts })
}

/// Processes events until a signal comes, and returns it; with `wait`, also ends when no run is in
/// progress.
async fn follow(
    runs: &mut ResumedRuns<'_>,
    trials: &mut Probation,
    (reader, crash_history): (&StoreReader, &mut CrashHistoryFile),
    (signals, notes, wait): (&mut Signals, &dyn NoteSink, bool),
    allow_revivals: impl Fn(),
) -> Result<Option<ShutdownSignal>, HostError> {
    let runtime = runs.runtime;
    let mut was_idle = false;
    loop {
        trials.advance(runs, reader, crash_history).await?;
        if trials.is_over() {
            allow_revivals();
        }
        if trials.is_over() && runs.is_idle() {
            if wait {
                return Ok(None);
            }
            if !was_idle {
                notes.note("holding   the store: nothing is under way; a signal ends this");
            }
        }
        was_idle = runs.is_idle();
        tokio::select! {
            biased;
            signal = signals.next() => return Ok(Some(signal)),
            reason = runtime.wait_for_end() => return Err(reason.into()),
            stepped = trials.next_step(runs, crash_history) => stepped?,
        }
    }
}

/// The rows with current counts: the stored row of an unfinished run is as old as its last change of state.
async fn with_current_counts(rows: Vec<RunRow>, reader: &StoreReader) -> Result<Vec<RunRow>, HostError> {
    let mut counted = Vec::with_capacity(rows.len());
    for row in rows {
        let now = reader.read(|rows| rows.run(row.id)).await?.unwrap_or(row);
        counted.push(reader.with_current_counts(now).await?);
    }
    Ok(counted)
}

/// The final texts of the ended runs.
async fn texts(runtime: &Runtime, rows: &[RunRow]) -> Result<BTreeMap<RunId, String>, HostError> {
    let mut texts = BTreeMap::new();
    for row in rows.iter().filter(|row| row.state == RunState::Ended) {
        let result = match runtime.wait(row.id, None).await {
            Ok(result) => result,
            // A run with unreadable records has an end but no text.
            Err(RunError::Read(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        texts.extend(result.text().map(|text| (row.id, text.to_owned())));
    }
    Ok(texts)
}

/// The selected unfinished runs, in the order of their acceptance.
pub(super) async fn unfinished(id: Option<&str>, reader: &StoreReader) -> Result<Vec<RunRow>, HostError> {
    let mut rows = reader.read(|rows| rows.open_runs()).await?;
    rows.sort_by_key(|row| row.id);
    let Some(id) = id else { return Ok(rows) };
    let (session, ended) = match reader.find(id).await? {
        ResolvedId::Session(row) => (row.id, None),
        ResolvedId::Run(row) => (row.session, row.ended.clone()),
    };
    rows.retain(|row| row.session == session);
    if !rows.is_empty() {
        return Ok(rows);
    }
    let what = ended.map_or_else(
        || format!("session {session} has no unfinished run"),
        |ended| format!("run {id} has ended: {ended}; its session {session} has no unfinished run"),
    );
    Err(HostError::usage(format!("{what}; `hermod run --resume {id} TEXT` continues the conversation")))
}

/// The endpoints for the runs; a local Ollama is queried if a run needs it, or `probe` says so. Unavailable providers are reported, and each run that needs one ends accordingly.
pub(super) async fn endpoints(
    (config, variables): (&Config, &Variables),
    reader: &StoreReader,
    (rows, state): (&[RunRow], &Path),
    (probe, notes): (OllamaProbe, &dyn NoteSink),
) -> Result<Endpoints, HostError> {
    let mut specs = Vec::new();
    for row in rows {
        match reader.acceptance(row).await {
            Ok(accepted) => {
                if let Some(note) = missing_agent_note(config, row.id, &accepted.spec) {
                    notes.note(&note);
                }
                specs.push(accepted.spec);
            }
            // The session will be quarantined, and the run ended.
            Err(error) => notes.note(&format!("missing   run {} cannot be read: {error}", row.id)),
        }
    }
    let ollama = specs.iter().any(|spec| spec.chain.iter().any(|link| &**link.provider() == OLLAMA));
    let providers = discover(config, variables, if ollama { OllamaProbe::Requested } else { probe }).await;
    let mut endpoints = Endpoints::new(providers, state.to_owned(), config.provider_defaults);
    let mut unavailable = BTreeMap::new();
    for spec in &specs {
        for (provider, error) in endpoints.add_available(spec, variables).await {
            unavailable.entry(provider).or_insert((error.to_string(), 0)).1 += 1;
        }
    }
    for (provider, (error, runs)) in unavailable {
        notes.note(&format!("missing   {provider}, which {runs} of the runs may ask: {error}"));
    }
    if specs.iter().any(|spec| spec.script.is_some()) {
        notes.progress(&format!("rehearsal {}", crate::rehearsal::NOTICE));
    }
    Ok(endpoints)
}
