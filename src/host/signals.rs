//! SIGINT and SIGTERM as events, so that a process can suspend its runs before it exits. Also cancels work at a signal.

use std::ops::ControlFlow;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::HostError;
use crate::control::RequestError;

/// A signal that ends a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownSignal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// The signals that end a command.
#[derive(Debug)]
pub struct Signals {
    /// SIGINT.
    pub interrupt: Signal,
    /// SIGTERM.
    pub terminate: Signal,
}

impl Signals {
    /// Starts to listen: neither signal ends the process any more.
    pub fn listen() -> Result<Self, HostError> {
        let listen = |kind| {
            let text = |error| format!("signals cannot be listened to: {error}");
            signal(kind).map_err(|error| RequestError::internal(text(error)))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Resolves at either signal.
    pub async fn next(&mut self) -> ShutdownSignal {
        tokio::select! {
            _ = self.interrupt.recv() => ShutdownSignal::Interrupt,
            _ = self.terminate.recv() => ShutdownSignal::Terminate,
        }
    }

    /// Runs `work` to its end or until a signal; the signal cancels `work` and is returned as `Break`.
    pub async fn run_until_signal<T, E>(
        &mut self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<ControlFlow<ShutdownSignal, T>, E> {
        tokio::select! {
            biased;
            signal = self.next() => Ok(ControlFlow::Break(signal)),
            result = work => result.map(ControlFlow::Continue),
        }
    }
}
