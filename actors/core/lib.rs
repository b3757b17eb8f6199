//! The pure core of Hermod: what an input means (as records), what a record changes, and which actions are due.
//!
//! A session's state is the fold of its records. This crate knows no actor, no async runtime, no I/O and no clock: time
//! and chance are arguments. The shell around it is the crate `hermod-actors`.
//!
//! # Guide
//!
//! A shell drives a session with three functions of [`turn::Turn`]:
//!
//! - [`decide`](turn::Turn::decide) turns inputs into one [`Append`](journal::Append): records with their account
//!   changes, index rows and inbox messages. Free leases and permits are granted in the same decision.
//! - [`apply`](turn::Turn::apply) changes the state by one durable record.
//! - [`due`](turn::Turn::due) lists the actions that should be in flight. The shell starts what is missing and cancels
//!   what is not due any more.
//!
//! [`turn::WaitTracker`] explains what a run waits for. It reads the same records and drives no action.
//!
//! ```
//! use std::sync::Arc;
//!
//! use hermod_core::{
//!     model::{AgentName, Durable, Incarnation, RunAccepted, RunId, RunSpec, SessionId, SessionOpened, SessionTime},
//!     turn::{DueAction, GrantRequest, Input, ReplayedSession},
//! };
//!
//! // A journal without records: the session is new, so the first input opens it.
//! let now = SessionTime::default();
//! let replayed = ReplayedSession::empty(SessionId::from_bits(1));
//! let incarnation = Incarnation { epoch: 1, revival: 1 };
//! let (key, prompt) = ("chat".into(), "Be brief.".into());
//! let opened = Input::Opened(SessionOpened { key, agent: AgentName::default(), prompt, incarnation, boot: "boot".into() });
//! let decision = replayed.start_decision(now, &opened).finish();
//!
//! // A shell appends the records here. `mark_durable` states that they are on disk.
//! let durable: Vec<_> = decision.records.into_iter().map(Durable::mark_durable).collect();
//! let mut turn = replayed.into_turn(&durable);
//! assert!(turn.due(now).is_empty());
//!
//! // A run is submitted. Its model call needs a lease, and one is free.
//! let model = "provider/model".parse()?;
//! let spec = RunSpec::new(vec![model], "/workspace");
//! let submitted = Input::Submitted {
//!     accepted: Box::new(RunAccepted::new(RunId::from_bits(2), "Hello.", Arc::new(spec))),
//!     key: None,
//! };
//! let decision = turn.decide(now, &[submitted], |request| match request {
//!     GrantRequest::Lease(id) => Some(Input::Leased { id, model: "provider/model".parse().ok()? }),
//!     GrantRequest::Permit(..) | GrantRequest::Place(..) => None,
//! });
//! let kinds: Vec<_> = decision.records.iter().map(|record| record.body.kind().name()).collect();
//! assert_eq!(kinds, ["run.accepted", "model.started"]);
//!
//! // Only now, with its start on disk, the call is due.
//! decision.records.into_iter().map(Durable::mark_durable).for_each(|record| turn.apply(&record));
//! assert!(matches!(turn.due(now)[..], [DueAction::CallModel(_)]));
//!
//! // The process crashes. The journal is folded again, the session is revived, and the same call is due once more.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

pub mod journal;
pub mod model;
#[doc(hidden)]
pub mod mutants;
pub mod policy;
pub mod turn;
