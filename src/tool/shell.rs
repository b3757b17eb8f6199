use std::{path::PathBuf, time::Duration};

use hermod_actors::{
    Visible,
    model::{Access, Artifact, CallEnd, CallStatus, EffectClass, MAX_OUTPUT},
    port::{ArtifactError, BadArguments, Shelf},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    Settings,
    blocking::failed_inside,
    hardline::refused,
    paths::resolve,
    spool::{Spooled, spool},
    typed::{self, Site, Typed},
};
use crate::process::{self, Capture, Cause, Command, Environment, Ran, Tee};

/// POSIX promises this one on every machine, so a command means the same wherever it runs.
const SHELL: &str = "/bin/sh";
/// What ending a command and reading the rest of its output may take, with room.
const ENDING: Duration = Duration::from_secs(30);
/// From its stop a call waits no longer than this until its output is on disk.
const PATIENCE: Duration = Duration::from_millis(2_090);
/// Bytes that the words about an artifact take.
const FOR_ARTIFACT: usize = 500;

/// Runs a shell command.
#[derive(Debug)]
pub(super) struct Shell;

/// What to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The command, in the language of a POSIX `sh`; use `bash -c '...'` for what only bash knows.
    command: String,
    /// Seconds after which the command is ended; if absent, as many as the operator has set (120 unless changed).
    #[schemars(range(min = 1, max = 3600))]
    timeout: Option<u64>,
    /// The folder to run it in, relative to the workspace or absolute inside it; the workspace itself if absent.
    workdir: Option<String>,
}

/// What the model reads of a command.
#[derive(Debug, Serialize)]
struct Told {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    stdout: String,
    stderr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<Whole>,
}

/// Where the whole output is, if it is not shown.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Whole {
    Kept {
        #[serde(flatten)]
        artifact: Artifact,
        /// Bytes of the end that it does not have.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<u64>,
    },
    Lost {
        error: String,
    },
}

impl Typed for Shell {
    const NAME: &'static str = "shell";
    const DESCRIPTION: &'static str = "Runs a shell command in the workspace, without a terminal and without input. \
        Answers {exit_code, signal, timed_out, stdout, stderr, artifact?}; if the output is too long to be shown, \
        artifact has all of it, both streams as they came, for `read_artifact`. What the command leaves in the \
        background is ended with it.";
    const EFFECT: EffectClass = EffectClass::Once;
    type Arguments = Arguments;

    fn check(arguments: &Arguments) -> Result<(), BadArguments> {
        let bad = |error: String, hint: &str| {
            Err(BadArguments { field: Some("command".into()), error, hint: hint.into() })
        };
        let command = &arguments.command;
        if command.trim().is_empty() {
            return bad("`command` is empty".into(), "give a command");
        }
        if command.contains('\0') {
            return bad("`command` contains a NUL byte".into(), "leave it out");
        }
        match refused(command) {
            Some(reason) => bad(
                format!("`command` {command:?} is never run: it {reason}"),
                "name exactly what is to change, inside the workspace, or ask the operator to do it",
            ),
            None => Ok(()),
        }
    }

    fn access(_: &Arguments, _: &str) -> Access {
        Access::Anything
    }

    async fn run(arguments: Arguments, site: Site) -> CallEnd {
        let Arguments { command, timeout, workdir } = arguments;
        let workspace = site.workspace.clone();
        let folder = match spawn_blocking(move || folder(&workspace, workdir.as_deref())).await {
            Ok(Ok(folder)) => folder,
            Ok(Err(bad)) => return typed::refused(&bad),
            Err(error) => return failed_inside(&error),
        };
        let timeout = timeout_of(timeout, site.settings);
        let arguments = vec!["-c".into(), command.into()];
        let environment = Environment::Clean;
        let command = Command { program: SHELL.into(), arguments, folder, environment, timeout };
        execute(command, &site).await
    }

    fn limit(arguments: &Arguments, settings: Settings) -> Option<Duration> {
        Some(timeout_of(arguments.timeout, settings) + ENDING)
    }
}

fn timeout_of(seconds: Option<u64>, settings: Settings) -> Duration {
    seconds.map_or(settings.shell_timeout, Duration::from_secs)
}

fn folder(workspace: &str, workdir: Option<&str>) -> Result<PathBuf, BadArguments> {
    let place = resolve(workspace, "workdir", workdir.unwrap_or("."))?;
    place.open_folder()?;
    Ok(place.absolute())
}

async fn execute(command: Command, site: &Site) -> CallEnd {
    if site.cancel.is_cancelled() {
        let hint = "call again if it is still wanted";
        return CallEnd::error(
            CallStatus::Stopped,
            "the call was stopped before the command started",
            None,
            hint,
        );
    }
    let (tee, pieces) = Tee::new();
    let spooled = async {
        tokio::select! {
            biased;
            spooled = spool(pieces, &site.shelf) => spooled,
            () = too_late(&site.cancel) => Spooled::Lost(ArtifactError::Unavailable("the call was stopped".into())),
        }
    };
    match tokio::join!(process::run(command, Some(tee), &site.cancel), spooled) {
        (Ok(ran), spooled) => told(ran, spooled, &site.shelf).await,
        (Err(error), _) => CallEnd::error(
            CallStatus::Error,
            &format!("{SHELL} cannot be run: {error}"),
            None,
            "wait and try a smaller command; if it stays, the operator has to look",
        ),
    }
}

/// Resolves when a stopped call waits for its disk no longer.
async fn too_late(cancel: &CancellationToken) {
    cancel.cancelled().await;
    sleep(PATIENCE).await;
}

async fn told(mut ran: Ran, spooled: Spooled, shelf: &Shelf) -> CallEnd {
    let status = match ran.cause {
        Cause::Exit => CallStatus::Ok,
        Cause::Timeout => CallStatus::Error,
        Cause::Cancel => CallStatus::Stopped,
    };
    let (mut told, is_whole) = fitting(&mut ran);
    let whole = match spooled {
        Spooled::Short(_) if is_whole => None,
        Spooled::Short(bytes) => Some(shelf.keep(bytes).await.map(|artifact| (artifact, 0))),
        Spooled::Kept(artifact, left_out) => Some(Ok((artifact, left_out))),
        Spooled::Lost(error) => Some(Err(error)),
    };
    let artifact = whole.as_ref().and_then(|whole| Some(whole.as_ref().ok()?.0.clone()));
    told.artifact = whole.map(|whole| match whole {
        Ok((artifact, left_out)) => Whole::Kept { artifact, left_out: (left_out > 0).then_some(left_out) },
        Err(error) => Whole::Lost { error: format!("the whole output could not be kept: {error}") },
    });
    CallEnd { artifact, ..CallEnd::new(status, json(&told)) }
}

/// As much of the output as fits, and whether that is all.
fn fitting(ran: &mut Ran) -> (Told, bool) {
    let (out, err) = (ran.stdout.total(), ran.stderr.total());
    let mut room = MAX_OUTPUT;
    loop {
        // Each may have half, and what the other leaves.
        let half = room / 2;
        let of =
            |other: u64| usize::try_from(other).map_or(half, |other| room.saturating_sub(other).max(half));
        let (stdout, out_is_whole) = text(&mut ran.stdout, of(err));
        let (stderr, err_is_whole) = text(&mut ran.stderr, of(out));
        let told = Told {
            exit_code: ran.exit_code,
            signal: ran.signal,
            timed_out: ran.cause == Cause::Timeout,
            stdout,
            stderr,
            artifact: None,
        };
        if json(&told).len() + FOR_ARTIFACT <= MAX_OUTPUT {
            return (told, out_is_whole && err_is_whole);
        }
        // Quotes and what is made visible take more room than the bytes had.
        room = room * 3 / 4;
    }
}

fn json(told: &Told) -> String {
    serde_json::to_string(told).expect("numbers and strings are JSON")
}

fn text(stream: &mut Capture, room: usize) -> (String, bool) {
    let shown = stream.shown(room);
    let mut visible = Visible::of(shown.head);
    if shown.left_out > 0 {
        visible.push(format!("\n[… {} bytes left out …]\n", shown.left_out).as_bytes());
        visible.push(shown.tail);
    }
    (visible.text, shown.left_out == 0)
}
