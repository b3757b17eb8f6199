//! SIGINT and SIGTERM as events, so that a command can suspend its runs before it exits.

use std::{io, ops::ControlFlow};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::exit::{CliError, Exit};

/// The signals that end a command.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) interrupt: Signal,
    pub(crate) terminate: Signal,
}

impl Signals {
    /// Starts to listen: neither signal ends the process any more.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listen = || -> io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        };
        listen().map_err(|error| CliError {
            exit: Exit::Internal,
            text: format!("signals cannot be listened to: {error}"),
        })
    }

    /// Resolves at either signal, with its exit code.
    pub(crate) async fn next_exit(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Suspended,
        }
    }

    /// Runs `work`, which precedes the runs; either signal cancels it, and its exit code is returned.
    pub(crate) async fn run_until_signal<T>(
        &mut self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<ControlFlow<Exit, T>, CliError> {
        tokio::select! {
            biased;
            exit = self.next_exit() => Ok(ControlFlow::Break(exit)),
            done = work => done.map(ControlFlow::Continue),
        }
    }
}
