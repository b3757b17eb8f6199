//! Exit codes of the command line, and the error with which a command fails. All errors of `host` and `control` are
//! mapped here; only this module knows the numbers.

use std::process::ExitCode;

use hermod_actors::{
    RunError, RuntimeEnd, SubmitError,
    model::{FailureClass, Outcome, OutcomeCause, OutcomeDetail, StopReason},
    port::SystemPromptError,
};

use crate::{
    access::{TokenError, TokenFileError},
    config::ConfigErrors,
    control::{RequestError, RequestErrorKind},
    files::PathError,
    host::{HostError, ShutdownSignal, StartError},
    store::redb::OpenError,
};

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Success.
    Ok = 0,
    /// The run failed or was stopped by command. Also: a chaos test failed, or it is unknown whether the owner carried
    /// a command out.
    Failed = 1,
    /// The command line, or a file or folder that it names, is wrong.
    Usage = 2,
    /// `budget_exhausted`.
    Budget = 3,
    /// `loop_detected`.
    Loop = 4,
    /// `refused`.
    Refused = 5,
    /// The run waits for a person.
    Parked = 6,
    /// No answer from the provider: it is down, overloaded or no API, or refuses the key, the model or the rate of
    /// calls.
    Provider = 69,
    /// A part of the runtime crashed, or the operating system refused what the program needs.
    Internal = 70,
    /// The disk or the store failed, or a check found damage.
    Store = 74,
    /// Another process owns the store, or too many submissions are pending.
    Busy = 75,
    /// The owner of the store denies access: its control socket or its token.
    Denied = 77,
    /// The configuration is not usable.
    Config = 78,
    /// `timed_out`.
    TimedOut = 124,
    /// Stopped by SIGINT.
    Interrupted = 130,
    /// Suspended by SIGTERM; the run resumes at the next start.
    Suspended = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<&OutcomeDetail> for Exit {
    fn from(ended: &OutcomeDetail) -> Self {
        match (ended.outcome, &ended.cause) {
            (Outcome::Completed, _) => Self::Ok,
            (Outcome::Failed, Some(OutcomeCause::Provider { failure, .. })) => failure_exit(&failure.class),
            (Outcome::Failed, Some(OutcomeCause::CrashLoop { .. })) => Self::Internal,
            (Outcome::Failed, Some(OutcomeCause::Unreadable { .. })) => Self::Store,
            (Outcome::Stopped, Some(OutcomeCause::Stop { reason: StopReason::Signal })) => Self::Interrupted,
            (Outcome::Failed | Outcome::Stopped, _) => Self::Failed,
            (Outcome::TimedOut, _) => Self::TimedOut,
            (Outcome::BudgetExhausted, _) => Self::Budget,
            (Outcome::LoopDetected, _) => Self::Loop,
            (Outcome::Refused, _) => Self::Refused,
        }
    }
}

/// The exit code for a failed model call: failures of the provider, of the request, and of the runtime are
/// distinguished.
const fn failure_exit(class: &FailureClass) -> Exit {
    match class {
        FailureClass::RateLimited { .. }
        | FailureClass::Overloaded
        | FailureClass::Server
        | FailureClass::Timeout { .. }
        | FailureClass::Network
        | FailureClass::IncompleteStream
        | FailureClass::NotAnApi
        | FailureClass::Auth
        | FailureClass::QuotaExhausted { .. }
        | FailureClass::ModelNotFound => Exit::Provider,
        FailureClass::ContextTooLong { .. }
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ContentRefused
        | FailureClass::Cancelled => Exit::Failed,
        FailureClass::Lost | FailureClass::NotSent | FailureClass::Interrupted => Exit::Internal,
    }
}

impl From<&RuntimeEnd> for Exit {
    fn from(end: &RuntimeEnd) -> Self {
        match end {
            RuntimeEnd::Suspended => Self::Suspended,
            RuntimeEnd::Store(_) => Self::Store,
            RuntimeEnd::Actor { .. } => Self::Internal,
        }
    }
}

impl From<&RunError> for Exit {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Invalid { .. }
            | RunError::NoSession(_)
            | RunError::NoRun(_)
            | RunError::Ended(_)
            | RunError::NoPendingApproval(_)
            | RunError::NotRaised(..)
            | RunError::KeyConflict(_)
            | RunError::MessageKeyConflict { .. }
            | RunError::NotAccepted(
                SubmitError::HasHistory(_) | SubmitError::OtherAgent { .. } | SubmitError::Unreadable(_),
            ) => Self::Usage,
            RunError::NotAccepted(SubmitError::Quarantined { .. } | SubmitError::LowDiskSpace(_))
            | RunError::Read(_) => Self::Store,
            RunError::NotAccepted(SubmitError::NoPrompt(SystemPromptError::Refused(_))) => Self::Denied,
            RunError::NotAccepted(SubmitError::NoPrompt(SystemPromptError::Failed(_))) => Self::Config,
            RunError::NotAccepted(SubmitError::CrashLooping(_)) => Self::Internal,
            RunError::NotAccepted(SubmitError::Overloaded { .. }) => Self::Busy,
            RunError::NotAccepted(
                SubmitError::Duplicate(_) | SubmitError::OccurrenceLeftOut(_) | SubmitError::KeyTaken(_),
            ) => Self::Failed,
            RunError::Terminated(end) => end.into(),
            RunError::WaitTimedOut(_) => Self::TimedOut,
            RunError::NotCompleted(result) => (&result.ended).into(),
        }
    }
}

impl From<&StartError> for Exit {
    fn from(error: &StartError) -> Self {
        match error {
            StartError::Store(OpenError::Busy { .. }) => Self::Busy,
            StartError::Store(
                OpenError::Newer { .. }
                | OpenError::Older { .. }
                | OpenError::Corrupt { .. }
                | OpenError::Io { .. },
            )
            | StartError::State(_)
            | StartError::Script { .. } => Self::Store,
            StartError::NoHome
            | StartError::NoModels
            | StartError::DuplicateName { .. }
            | StartError::Config(_)
            | StartError::NoModel(_)
            | StartError::Agent { .. }
            | StartError::Provider(_) => Self::Config,
            StartError::Workspace { .. } => Self::Usage,
            StartError::Listen(_) => Self::Internal,
            StartError::Actors(end) => end.into(),
        }
    }
}

/// Why a command failed: the exit code, and the text for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct CliError {
    pub(crate) exit: Exit,
    /// The problem, with the wrong value and the remedy.
    pub(crate) text: String,
}

impl CliError {
    /// A failure of the program or of the operating system.
    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self { exit: Exit::Internal, text: text.into() }
    }

    /// An error of the command line.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, text: text.into() }
    }

    /// An error about the value of an option. A usage error gets `option` in front of its text.
    pub(crate) fn of_option(option: &str, error: HostError) -> Self {
        if let HostError::Request(RequestError { kind: RequestErrorKind::Usage, text }) = error {
            return Self::usage(format!("{option}{text}"));
        }
        error.into()
    }

    /// An error about the workspace as an error of the option `--workspace`; other errors stay.
    pub(crate) fn of_workspace(error: StartError) -> Self {
        if let StartError::Workspace { .. } = &error {
            return Self::usage(format!("--{error}"));
        }
        error.into()
    }
}

/// True if the runtime itself failed.
pub(crate) fn has_failed<T>(result: &Result<T, CliError>) -> bool {
    matches!(result, Err(CliError { exit: Exit::Internal, .. }))
}

impl From<ConfigErrors> for CliError {
    fn from(errors: ConfigErrors) -> Self {
        StartError::from(errors).into()
    }
}

impl From<ShutdownSignal> for Exit {
    fn from(signal: ShutdownSignal) -> Self {
        match signal {
            ShutdownSignal::Interrupt => Self::Interrupted,
            ShutdownSignal::Terminate => Self::Suspended,
        }
    }
}

impl From<RequestErrorKind> for Exit {
    fn from(kind: RequestErrorKind) -> Self {
        match kind {
            RequestErrorKind::Usage => Self::Usage,
            RequestErrorKind::Config => Self::Config,
            RequestErrorKind::Denied => Self::Denied,
            RequestErrorKind::Busy | RequestErrorKind::Crowded => Self::Busy,
            RequestErrorKind::Store => Self::Store,
            RequestErrorKind::Internal => Self::Internal,
        }
    }
}

impl<E: Into<HostError>> From<E> for CliError {
    fn from(error: E) -> Self {
        let error = error.into();
        let exit = match &error {
            HostError::Request(error) => error.kind.into(),
            HostError::Run(error) => error.into(),
            HostError::Start(error) => error.into(),
            HostError::End(end) => end.into(),
            HostError::ConnectionLost(_) => Exit::Failed,
        };
        Self { exit, text: error.to_string() }
    }
}

/// A file or folder that the program itself keeps cannot be used.
impl From<PathError> for CliError {
    fn from(error: PathError) -> Self {
        Self { exit: Exit::Store, text: error.to_string() }
    }
}

impl From<TokenError> for CliError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::File(error) => error.into(),
            TokenError::InvalidName(_)
            | TokenError::NoScope
            | TokenError::NoAgent
            | TokenError::NameTaken(_)
            | TokenError::Unknown(_)
            | TokenError::TooMany(_) => Self::usage(error.to_string()),
        }
    }
}

impl From<TokenFileError> for CliError {
    fn from(error: TokenFileError) -> Self {
        Self { exit: Exit::Store, text: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{
        BudgetRefusal, Failure as CallFailure, LowDiskSpace, Repetition, RepetitionPattern, RunId,
    };

    use super::*;

    #[track_caller]
    fn check(ended: &OutcomeDetail, code: u8) {
        assert_eq!(Exit::from(ended) as u8, code, "{ended}");
    }

    #[test]
    fn every_outcome_has_its_code() {
        let plain = |outcome| OutcomeDetail { outcome, cause: None };
        check(&plain(Outcome::Completed), 0);
        check(&plain(Outcome::Failed), 1);
        check(&plain(Outcome::Stopped), 1);
        check(&plain(Outcome::BudgetExhausted), 3);
        check(&plain(Outcome::LoopDetected), 4);
        check(&plain(Outcome::Refused), 5);
        check(&plain(Outcome::TimedOut), 124);
    }

    #[test]
    fn a_cause_can_say_more() {
        let because = |outcome, cause| OutcomeDetail::with_cause(outcome, cause);
        let auth = CallFailure::new(FailureClass::Auth, "401");
        check(&because(Outcome::Failed, OutcomeCause::provider(auth.clone())), 69);
        check(&because(Outcome::Refused, OutcomeCause::provider(auth)), 5);
        let failed = |class| OutcomeCause::provider(CallFailure::new(class, "x"));
        check(&because(Outcome::Failed, failed(FailureClass::InvalidRequest)), 1);
        check(&because(Outcome::Failed, failed(FailureClass::Lost)), 70);
        check(&because(Outcome::Failed, failed(FailureClass::NotSent)), 70);
        check(&because(Outcome::Failed, OutcomeCause::EmptyAnswer), 1);
        check(&because(Outcome::Failed, OutcomeCause::CrashLoop { error: "x".into() }), 70);
        check(&because(Outcome::Failed, OutcomeCause::Unreadable { error: "x".into() }), 74);
        let pattern = RepetitionPattern::SameResult;
        let repetition = Repetition { pattern, tool: "shell".into(), times: 5 };
        check(&because(Outcome::LoopDetected, OutcomeCause::Repetition { repetition }), 4);
        check(&because(Outcome::Stopped, OutcomeCause::Stop { reason: StopReason::Signal }), 130);
        check(&because(Outcome::Stopped, OutcomeCause::Stop { reason: StopReason::Command }), 1);
        let account = RunId::from_bits(1).into();
        let dimension = hermod_actors::model::Dimension::Tokens;
        let refusal = BudgetRefusal { account, dimension, limit: 1, spent: 1, reserved: 0, needed: None };
        check(&because(Outcome::BudgetExhausted, OutcomeCause::Limit { refusal }), 3);
        let model = "p/m".parse().unwrap();
        check(&because(Outcome::BudgetExhausted, OutcomeCause::Unpriced { model, above: 200_000 }), 3);
    }

    #[test]
    fn the_end_of_the_runtime_has_its_code() {
        let check = |end: &RuntimeEnd, code: u8| assert_eq!(Exit::from(end) as u8, code);
        check(&RuntimeEnd::Store("full".into()), 74);
        check(&RuntimeEnd::Actor { name: "Root", error: "x".into() }, 70);
        check(&RuntimeEnd::Suspended, 143);
    }

    #[test]
    fn too_little_room_is_the_disks_fault() {
        let shortage = LowDiskSpace { path: "/s".into(), free: 1, reserve: 2 };
        let refused = RunError::NotAccepted(SubmitError::LowDiskSpace(shortage));
        assert_eq!(Exit::from(&refused) as u8, 74);
    }

    #[test]
    fn what_does_not_start_has_its_code() {
        let check = |error: &StartError, code: u8| assert_eq!(Exit::from(error) as u8, code, "{error}");
        check(&OpenError::Busy { dir: "/s".into(), pid: Some(7) }.into(), 75);
        check(&OpenError::Corrupt { path: "/s".into(), reason: "x".into() }.into(), 74);
        check(&StartError::NoHome, 78);
        check(&ModelChoiceError::NoProvider { keys: "K".into() }.into(), 78);
    }

    use crate::discovery::ModelChoiceError;
}
