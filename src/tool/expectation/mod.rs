//! Checks what a run has to leave behind: files, JSON by a schema, commands, and texts in the answer. The default of the
//! port [`Verifier`].
//!
//! A command is run as a `shell` call of the run would be: judged by the policy, in the sandbox of the run's agent, and
//! only if the run has that tool. A check may be made again, so what it runs must be repeatable.

mod command;
mod file;
mod schema;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    model::{CallId, Expectation, ExpectationMiss, RunSpec},
    port::{BadArguments, CallPolicy, Verification, Verifier},
};
use tokio::task::spawn_blocking;

use super::Settings;
use crate::{excerpt::first_chars, redaction};
use file::{is_older, locate, open, read_json};
use schema::FileSchema;

/// Checks expectations with the settings of the tools.
#[derive(Debug)]
pub struct ExpectationVerifier {
    settings: Settings,
    policy: Arc<dyn CallPolicy>,
}

impl ExpectationVerifier {
    /// A verifier with these settings. The policy judges each command, again before it runs.
    pub fn new(settings: Settings, policy: Arc<dyn CallPolicy>) -> Self {
        Self { settings, policy }
    }
}

impl Verifier for ExpectationVerifier {
    fn validate(&self, spec: &RunSpec) -> Result<(), String> {
        let settings = self.settings.for_agent(&spec.agent);
        for (n, expectation) in spec.expects.iter().enumerate() {
            let valid = match expectation {
                Expectation::File { path, .. } => locate(&settings, spec, path).map(drop),
                Expectation::Schema { path, schema } => {
                    locate(&settings, spec, path).and_then(|()| FileSchema::new(schema).map(drop))
                }
                Expectation::Command { command, .. } => {
                    command::check(command, spec, &settings, &*self.policy)
                }
                Expectation::Text { .. } => Ok(()),
            };
            valid.map_err(|error| format!("[{n}] {error}"))?;
        }
        Ok(())
    }

    fn verify(&self, verification: Verification) -> BoxFuture<'static, Vec<ExpectationMiss>> {
        let settings = self.settings.for_agent(&verification.spec.agent);
        let check = Check { settings, policy: Arc::clone(&self.policy), verification };
        Box::pin(check.misses())
    }
}

/// One check of the expectations of a run.
#[derive(Debug, Clone)]
struct Check {
    settings: Settings,
    policy: Arc<dyn CallPolicy>,
    verification: Verification,
}

impl Check {
    /// The expectations that do not hold. They are looked at one after the other: a command may read what another wrote.
    async fn misses(self) -> Vec<ExpectationMiss> {
        let mut misses = Vec::new();
        let spec = Arc::clone(&self.verification.spec);
        for (n, expectation) in spec.expects.iter().enumerate() {
            let checked = match expectation {
                Expectation::Command { command, .. } => {
                    let timeout = Duration::from_millis(expectation.command_timeout_ms().unwrap_or(0));
                    self.run_command(n, command, timeout).await
                }
                Expectation::File { .. } | Expectation::Schema { .. } | Expectation::Text { .. } => {
                    self.look(expectation.clone()).await
                }
            };
            misses.extend(checked.err().map(|reason| ExpectationMiss::new(n, expectation, &reason)));
        }
        misses
    }

    async fn run_command(&self, n: usize, command: &str, timeout: Duration) -> Result<(), String> {
        let (check, text) = (self.clone(), command.to_owned());
        let Verification { call, spec, .. } = &self.verification;
        blocking(move || command::check(&text, &check.verification.spec, &check.settings, &*check.policy))
            .await?;
        let n = u32::try_from(n).unwrap_or(u32::MAX).saturating_add(1);
        // The answer has no tool calls, so no call has this number.
        let name = CallId { n, ..*call };
        command::run((name, command), spec, &self.settings, timeout).await
    }

    /// Looks at files, on a thread that may block.
    async fn look(&self, expectation: Expectation) -> Result<(), String> {
        let Self { settings, verification, .. } = self.clone();
        let Verification { spec, answer, started_at, .. } = verification;
        let look = move || match &expectation {
            Expectation::File { path, not_empty, newer } => {
                let (_, stat) = open(&settings, &spec, path)?;
                if *not_empty && stat.st_size == 0 {
                    return Err("it is empty".into());
                }
                match *newer && is_older(&stat, started_at) {
                    true => Err("it was there before this run, and has not been written since".into()),
                    false => Ok(()),
                }
            }
            Expectation::Schema { path, schema } => {
                let (file, stat) = open(&settings, &spec, path)?;
                let (value, values) = read_json(file, &stat)?;
                FileSchema::new(schema)?.check(&value, values)
            }
            Expectation::Text { contains } if answer.contains(contains) => Ok(()),
            Expectation::Text { .. } => Err("the answer does not contain it".into()),
            // Run elsewhere.
            Expectation::Command { .. } => Ok(()),
        };
        blocking(look).await
    }
}

async fn blocking(work: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    let caught = spawn_blocking(|| catch_unwind(AssertUnwindSafe(work))).await;
    caught.ok().and_then(Result::ok).unwrap_or_else(|| Err("it could not be checked: that panicked".into()))
}

/// The beginning of a text from outside. It is redacted first: a secret that is cut in the middle would not be found.
fn shown(text: &str, max_chars: usize) -> String {
    first_chars(&redaction::of_process().redact(text), max_chars).into_owned()
}

fn text(bad: BadArguments) -> String {
    format!("{}; {}", bad.error, bad.hint)
}
