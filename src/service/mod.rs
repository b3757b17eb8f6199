//! The HTTP service: a front door on a runtime. It serves clients on threads of its own, so that no client slows a run.
//!
//! `server.rs` accepts connections within limits, `authorization.rs` checks tokens and hosts, and each file of `routes/`
//! has the operations of one resource. `reach.rs` decides which runs and sessions a token reaches. Every error is a problem document (`problem.rs`). What is shown are the views of
//! `crate::view`. `openai/` has the operations that clients of OpenAI's API use, with the errors that those read.

mod authorization;
mod chat_events;
mod connection;
mod data_url;
mod document;
mod events;
mod expectation_field;
mod extract;
mod fields;
mod idle;
mod lifecycle;
mod metrics;
mod openai;
mod operations;
mod page;
mod problem;
mod reach;
mod reply;
mod routes;
mod rpc;
mod serve;
mod server;
mod stream_event;
mod time_field;
mod tls;

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use hermod_actors::{
    AcceptedRun, Runtime,
    model::{LimitIncrease, RunRow, SessionId},
};
use tokio::{runtime::Handle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    access::TokenVerifier,
    control::{RequestError, RequestHandler, SessionRemoval},
    host::{Exchangeable, HostError, RunSubmitter},
    inbound::InboundEndpoints,
};

use metrics::Metrics;
use problem::Problem;
use reach::AdmittedSubmission;
pub use serve::{ServeRequest, ServiceEnd, serve};
pub use server::{HttpServer, ServerLimits};
pub(crate) use time_field::parse as parse_time;
use tls::TlsAcceptor;
pub use tls::{TlsFiles, TlsSource};

/// How often a removal waits for the actor of its session, and how long.
const MAX_REMOVAL_TRIES: u32 = 20;
const REMOVAL_RETRY_DELAY: Duration = Duration::from_millis(50);

/// What the operations of the service use.
#[derive(Debug)]
pub struct Service {
    /// The runtime.
    pub runtime: Arc<Runtime>,
    /// Where the actors and their tasks are.
    pub engine: Handle,
    /// Submits runs.
    pub submitter: Arc<RunSubmitter>,
    /// Answers queries.
    pub handler: RequestHandler,
    /// The webhooks of other services.
    pub inbound: Arc<Exchangeable<InboundEndpoints>>,
    /// The tokens of clients.
    pub tokens: TokenVerifier,
    /// Names of this service in the header `Host`, each with or without its port; lower case.
    pub hosts: Vec<String>,
    /// Speaks TLS with clients; without it they speak plain HTTP.
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    /// What is measured.
    pub(crate) metrics: Metrics,
    /// Fires when the service stops.
    pub closing: CancellationToken,
}

impl Service {
    /// Refuses new work that would begin beside unfinished runs on trial, or during a drain.
    fn check_ready(&self) -> Result<(), Problem> {
        let drain = self.submitter.drain().check_not_requested();
        drain.map_err(|refusal| Problem::new(StatusCode::SERVICE_UNAVAILABLE, refusal.text))?;
        self.check_revived()
    }

    /// Refuses what would go on beside unfinished runs on trial.
    fn check_revived(&self) -> Result<(), Problem> {
        if self.submitter.may_submit() {
            return Ok(());
        }
        let text = "the process has crashed repeatedly, and its unfinished runs go on one at a time first; try again later";
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, text))
    }

    /// Raises limits of a run, even if the client is gone meanwhile.
    async fn raise(&self, row: RunRow, by: LimitIncrease) -> Result<RunRow, Problem> {
        self.check_ready()?;
        let submitter = Arc::clone(&self.submitter);
        let raised = self.engine.spawn(async move { submitter.raise(&row, by).await }).await;
        Ok(raised.map_err(|_| Problem::stopping())??)
    }

    /// Removes a session and those of its subagents, whose idle actors are stopped before.
    async fn remove_session(&self, session: SessionId) -> Result<SessionRemoval, Problem> {
        let mut tries = 0;
        loop {
            let removal = self.handler.remove_session(session).await?;
            let SessionRemoval::Open(open) = removal else { return Ok(removal) };
            if tries == MAX_REMOVAL_TRIES {
                return Ok(removal);
            }
            tries += 1;
            self.runtime.passivate(open)?;
            sleep(REMOVAL_RETRY_DELAY).await;
        }
    }

    /// Submits a run to its end, even if the client is gone meanwhile.
    async fn submit(&self, submission: AdmittedSubmission) -> Result<AcceptedRun, HostError> {
        let (submitter, submission) = (Arc::clone(&self.submitter), submission.into_inner());
        let submitted = self.engine.spawn(async move { submitter.submit(submission).await });
        submitted.await.unwrap_or_else(|_| {
            let text =
                "the service ended before it answered; repeat the request with its key at its next start";
            Err(RequestError::internal(text).into())
        })
    }
}
