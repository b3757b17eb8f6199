use std::{path::PathBuf, time::Duration};

use hermod_actors::{
    model::{Access, CallEnd, CallStatus, EffectClass},
    port::BadArguments,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    Visible,
    blocking::failed_inside,
    hardline::refused,
    paths::resolve,
    typed::{self, Site, Typed},
};
use crate::process::{self, Capture, Cause, Command, Ran};

/// POSIX promises this one on every machine, so a command means the same wherever it runs.
const SHELL: &str = "/bin/sh";
const TIMEOUT: u64 = 120;

/// Runs a shell command.
#[derive(Debug)]
pub(super) struct Shell;

/// What to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The command, in the language of a POSIX `sh`; use `bash -c '...'` for what only bash knows.
    command: String,
    /// Seconds after which the command is ended; 120 if absent.
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
}

impl Typed for Shell {
    const NAME: &'static str = "shell";
    const DESCRIPTION: &'static str = "Runs a shell command in the workspace, without a terminal and without input. \
        Answers {exit_code, signal, timed_out, stdout, stderr}; what the command leaves in the background is ended \
        with it.";
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
        let workspace = site.workspace;
        let folder = match spawn_blocking(move || folder(&workspace, workdir.as_deref())).await {
            Ok(Ok(folder)) => folder,
            Ok(Err(bad)) => return typed::refused(&bad),
            Err(error) => return failed_inside(&error),
        };
        let timeout = Duration::from_secs(timeout.unwrap_or(TIMEOUT));
        let arguments = vec!["-c".into(), command.into()];
        execute(Command { program: SHELL.into(), arguments, folder, timeout }, &site.cancel).await
    }
}

fn folder(workspace: &str, workdir: Option<&str>) -> Result<PathBuf, BadArguments> {
    let place = resolve(workspace, "workdir", workdir.unwrap_or("."))?;
    place.open_folder()?;
    Ok(place.absolute())
}

async fn execute(command: Command, cancel: &CancellationToken) -> CallEnd {
    if cancel.is_cancelled() {
        let hint = "call again if it is still wanted";
        return CallEnd::error(
            CallStatus::Stopped,
            "the call was stopped before the command started",
            None,
            hint,
        );
    }
    match process::run(command, cancel).await {
        Ok(ran) => told(ran),
        Err(error) => CallEnd::error(
            CallStatus::Error,
            &format!("{SHELL} cannot be run: {error}"),
            None,
            "wait and try a smaller command; if it stays, the operator has to look",
        ),
    }
}

fn told(mut ran: Ran) -> CallEnd {
    let status = match ran.cause {
        Cause::Exit => CallStatus::Ok,
        Cause::Timeout => CallStatus::Error,
        Cause::Cancel => CallStatus::Stopped,
    };
    let told = Told {
        exit_code: ran.exit_code,
        signal: ran.signal,
        timed_out: ran.cause == Cause::Timeout,
        stdout: text(&mut ran.stdout),
        stderr: text(&mut ran.stderr),
    };
    let content = serde_json::to_string(&told).expect("numbers and strings are JSON");
    CallEnd { status, content }
}

fn text(stream: &mut Capture) -> String {
    let shown = stream.shown();
    let mut visible = Visible::of(shown.head);
    if shown.left_out > 0 {
        visible.push(format!("\n[… {} bytes left out …]\n", shown.left_out).as_bytes());
        visible.push(shown.tail);
    }
    visible.text
}
