use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use hermod_actors::{
    Defaults, RunRequest, Runtime,
    model::{Levels, RunId, RunSpec, SessionId, Thinking, ThinkingStyle},
    port::Journal,
};

use super::{
    args::RunArgs,
    follow::{self, Followed, Signals},
    model, orders, pictures,
    target::Target,
};
use crate::{
    cli::{
        budget,
        exit::{Exit, Failure},
        inquiry,
        output::{Teller, print, print_json, say},
        progress::{Progress, dollars, seconds},
        report, workspace,
    },
    config::Config,
    control::{Desk, Orders, Reader, Server},
    daemon::{self, Endpoints},
    environment::Variables,
    rehearsal,
};

/// A run that is waited for.
type Ids = (RunId, SessionId);

/// What a new run is to do.
struct Task {
    text: Arc<str>,
    images: Vec<Bytes>,
}

/// What is to be done.
enum Job {
    /// A new run.
    Submit { task: Task, spec: RunSpec },
    /// A run that was accepted earlier.
    GoOn { ids: Ids, spec: RunSpec },
}

impl Job {
    fn spec(&self) -> &RunSpec {
        match self {
            Self::Submit { spec, .. } | Self::GoOn { spec, .. } => spec,
        }
    }
}

/// Runs, and says what came of it.
pub(crate) async fn execute(args: RunArgs, variables: &Variables) -> Result<Exit, Failure> {
    let mut ids = None;
    let (object, exit) = match run(&args, variables, &mut ids).await {
        Ok(Followed::Ended(result)) => {
            let exit = Exit::from(&result.ended);
            say(ended(&result));
            if !args.json {
                tell_answer(&result, exit)?;
                return Ok(exit);
            }
            (report::result(&result), exit)
        }
        Ok(Followed::Parked) => {
            let id = ids.map_or_else(|| "last".into(), |(run, _)| run.to_string());
            say(format!(
                "parked    run {id}: answer with `hermod approvals`, then it goes on with `hermod run --resume {id}`"
            ));
            (report::no_result(ids, "parked"), Exit::Parked)
        }
        Ok(Followed::Left(exit)) => {
            let id = ids.map_or_else(|| "last".into(), |(run, _)| run.to_string());
            say(format!(
                "suspended run {id}: it goes on with `hermod run --resume last` (or `--resume {id}`)"
            ));
            (report::no_result(ids, "suspended"), exit)
        }
        Err(failure) => {
            if !args.json {
                return Err(failure);
            }
            say(format!("hermod: {failure}"));
            (report::no_result(ids, &failure.text), failure.exit)
        }
    };
    if args.json {
        print_json(&object)?;
    }
    Ok(exit)
}

/// Standard output is for answers alone: what a run said that did not complete goes to standard error.
fn tell_answer(result: &hermod_actors::RunResult, exit: Exit) -> Result<(), Failure> {
    match (result.text(), exit) {
        (Some(answer), Exit::Ok) => print(answer),
        (Some(partial), _) => {
            say(format!("said last {partial}"));
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

fn ended(result: &hermod_actors::RunResult) -> String {
    let took = match (result.started_at, result.ended_at) {
        (Some(start), Some(end)) => format!(", {}", seconds(end.ms_since(start))),
        (None | Some(_), _) => String::new(),
    };
    let (iterations, tokens) = (result.iterations, result.usage.total());
    let cost = result.cost.map_or_else(String::new, |cost| format!(", {}", dollars(cost)));
    format!("ended     {}: iterations {iterations}, tokens {tokens}{cost}{took}", result.ended)
}

async fn run(args: &RunArgs, variables: &Variables, ids: &mut Option<Ids>) -> Result<Followed, Failure> {
    let text = args.text.as_deref().map(read_text).transpose()?;
    if text.is_none() {
        args.check_without_text()?;
    }
    let images = pictures::read(&args.asking.image)?;
    let config = Config::read(variables)?;
    let state = daemon::make_state(&daemon::state_dir(variables)?)?;
    let new = match text {
        Some(text) => Some((Task { text, images }, workspace::resolve(args.task.place(), &state)?)),
        None => None,
    };
    let durability = args.durability.unwrap_or_else(|| config.store.durability.into());
    let store = Store { journal: inquiry::open(&state, durability.into()).await?, state };
    let (desk, mut orders) = Desk::new(Reader::new(Arc::clone(&store.journal)));
    let server = Server::start(&store.state, desk).map_err(|error| say(format!("control   {error}"))).ok();
    let followed = hold(args, (&config, variables), (&store, &mut orders), new, ids).await;
    if let Some(server) = server {
        // Nobody carries anything out any more; whoever still waits for that looks for himself.
        drop(orders);
        server.stop().await;
    }
    followed
}

/// The store that this process holds, and where it is.
struct Store {
    journal: Arc<dyn Journal>,
    state: PathBuf,
}

/// Runs while this process holds the store, and carries out the orders that others give it.
async fn hold(
    args: &RunArgs,
    (config, variables): (&Config, &Variables),
    (store, orders): (&Store, &mut Orders),
    new: Option<(Task, PathBuf)>,
    ids: &mut Option<Ids>,
) -> Result<Followed, Failure> {
    let reader = Reader::new(Arc::clone(&store.journal));
    let target = Target::find(&reader, &args.conversation).await?;
    let mut endpoints = endpoints(args, (config, variables), &target, &store.state).await;
    let job = if let Some((task, place)) = new {
        Job::Submit { task, spec: new_spec((config, args), &target, &endpoints, (&place, &store.state))? }
    } else {
        let (row, spec) = target.unfinished()?;
        Job::GoOn { ids: (row.id, row.session), spec: spec.clone() }
    };
    endpoints.offer(job.spec(), variables).await?;
    for (_, spec) in &target.open {
        endpoints.offer(spec, variables).await?;
    }
    if target.elsewhere > 0 {
        say(format!("waiting   {} unfinished in other sessions; see `hermod runs list`", target.elsewhere));
    }
    let prompt = daemon::prompt(Path::new(&job.spec().workspace)).into();
    let defaults = Defaults { spec: job.spec().clone(), prompt };
    let daemon = daemon::start(Arc::clone(&store.journal), endpoints, (config, defaults)).await?;
    let job = (job, Teller::new(variables));
    let followed = carry_out(&daemon.runtime, job, (&target, &reader), orders, ids).await;
    let told = match &followed {
        Ok(Followed::Ended(result)) => tell_rest(&daemon.runtime, result.session).await,
        Ok(Followed::Left(_) | Followed::Parked) | Err(_) => Ok(()),
    };
    daemon.runtime.suspend().await;
    told.and(followed)
}

/// Other runs of the conversation go on when somebody wants them to.
async fn tell_rest(runtime: &Runtime, session: SessionId) -> Result<(), Failure> {
    for row in runtime.open_runs().await?.iter().filter(|row| row.session == session) {
        let id = row.id;
        say(format!("waiting   run {id} of this conversation: it goes on with `hermod run --resume {id}`"));
    }
    Ok(())
}

async fn carry_out(
    runtime: &Runtime,
    (job, teller): (Job, Teller),
    (target, reader): (&Target, &Reader),
    orders: &mut Orders,
    ids: &mut Option<Ids>,
) -> Result<Followed, Failure> {
    let mut signals = Signals::listen()?;
    announce(job.spec());
    match job {
        Job::Submit { task, spec } => {
            notes(&spec, &task).iter().for_each(say);
            let model = spec.chain.first().map_or_else(String::new, ToString::to_string);
            let place = spec.workspace.clone();
            let session = target.choice.clone();
            let images = task.images;
            let request = RunRequest { session, images, spec: Some(spec), ..RunRequest::new(task.text) };
            let accepted = tokio::select! {
                biased;
                accepted = runtime.submit(request) => accepted?,
                exit = signals.either() => return Ok(Followed::Left(exit)),
            };
            *ids = Some((accepted.run, accepted.session));
            say(format!("accepted  run {} session {}", accepted.run, accepted.session));
            say(format!("with      {model} in {place}"));
            let first = runtime.row(accepted.run).await?.first;
            let watch = runtime.watch(accepted.session, first);
            let telling = (Progress::new(accepted.run), teller);
            let following = follow::follow(runtime, accepted.run, telling, (watch, signals));
            orders::attend(runtime, accepted.session, orders, following).await
        }
        Job::GoOn { ids: (run, session), .. } => {
            *ids = Some((run, session));
            say(format!("goes on   run {run} session {session}"));
            let (mut progress, mut next) = (Progress::new(run), 1);
            let first = target.open.iter().map(|(row, _)| row.first).min().unwrap_or(1);
            // What happened before is known: it is only looked at for the names of calls.
            reader
                .records(session, first, |(seq, record)| {
                    progress.line(&record);
                    next = seq + 1;
                    Ok::<(), Failure>(())
                })
                .await?;
            let watch = runtime.watch(session, next);
            runtime.revive(session)?;
            let following = follow::follow(runtime, run, (progress, teller), (watch, signals));
            orders::attend(runtime, session, orders, following).await
        }
    }
}

fn announce(spec: &RunSpec) {
    if spec.script.is_some() {
        say(format!("rehearsal {}", rehearsal::NOTICE));
    }
}

/// What of the task a model of the chain is not told, and why.
fn notes(spec: &RunSpec, task: &Task) -> Vec<String> {
    let thinking = spec.untold().map(|(model, level)| {
        let traits = spec.traits_of(model);
        let why = match (traits.thinking, traits.levels) {
            (None, _) => format!("how {model} is told is not known; set thinking in [models.\"{model}\"]"),
            (Some(ThinkingStyle::None), _) => format!("{model} cannot be told how much to think"),
            (Some(_), levels) => {
                let levels = levels.into_iter().flat_map(Levels::iter).map(Thinking::name);
                format!("{model} takes only {}", levels.collect::<Vec<_>>().join(", "))
            }
        };
        format!("thinking  {} is left out: {why}", level.name())
    });
    let blind = spec.chain.iter().filter(|model| !task.images.is_empty() && !spec.traits_of(model).sees());
    let images =
        blind.map(|model| format!("images    {model} does not see pictures; it is told that they are there"));
    thinking.chain(images).collect()
}

async fn endpoints(
    args: &RunArgs,
    (config, variables): (&Config, &Variables),
    target: &Target,
    state: &Path,
) -> Endpoints {
    let known: Vec<&RunSpec> = target.open.iter().map(|(_, spec)| spec).chain(&target.before).collect();
    let found = model::providers((config, variables), args, &known).await;
    Endpoints::new(found, state.to_owned(), config.provider_defaults)
}

fn new_spec(
    (config, args): (&Config, &RunArgs),
    target: &Target,
    endpoints: &Endpoints,
    (place, state): (&Path, &Path),
) -> Result<RunSpec, Failure> {
    let choice = model::choose((config, args), target.before.as_ref(), endpoints.found(), state)?;
    let budget = args.task.budget.unwrap_or_default();
    let mut spec = daemon::spec(config, choice.chain, choice.script, place);
    if budget.amounts.usd.is_some() {
        return Err(no_limit_in_dollars(&spec));
    }
    budget.apply(&mut spec.limits);
    // Whoever waits at a terminal ends a run when he has waited enough: only a limit of the user's own counts.
    let configured = spec.limits.timeout_ms.filter(|_| config.is_set("agents.defaults.timeout"));
    spec.limits.timeout_ms = args.task.timeout.map(budget::millis).or(configured);
    let session = target.before.as_ref().and_then(|before| before.thinking);
    spec.thinking = args.asking.thinking.or(session).or(spec.thinking);
    spec.system = args.task.system.as_deref().map(Into::into);
    Ok(spec)
}

fn no_limit_in_dollars(spec: &RunSpec) -> Failure {
    let unpriced = spec.chain.iter().find(|model| spec.traits_of(model).price.is_none());
    let why = match unpriced {
        Some(model) => format!("the price of {model} is not known, so no limit in dollars can be kept"),
        None => "limits in dollars are not kept yet".to_owned(),
    };
    Failure::usage(format!("--budget usd: {why}; limit tokens instead"))
}

/// The task: TEXT itself, or all of standard input if it is `-`.
fn read_text(text: &str) -> Result<Arc<str>, Failure> {
    let mut input = String::new();
    let text = if text == "-" {
        let read = std::io::stdin().lock().read_to_string(&mut input);
        read.map_err(|error| Failure::usage(format!("standard input cannot be read as text: {error}")))?;
        &input
    } else {
        text
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("TEXT is empty; say what is to be done"));
    }
    Ok(text.into())
}
