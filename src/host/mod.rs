//! The host: owns the store of a state directory, resolves what a front door asks for, and runs it.
//!
//! A front door is an interface of the program: the command line, or a service. It needs the host, `view` for what it
//! shows, and `control` to answer other processes. The host knows no front door: lines for people go to a [`NoteSink`],
//! and resumed runs are shown by a [`ResumeObserver`].

mod agents;
mod client_commands;
mod config_check;
mod conversation;
mod crash_trials;
mod deliveries;
mod drain;
mod endpoints;
mod error;
mod exchangeable;
mod folders;
mod handover;
mod identifier;
mod inbound;
mod model_choice;
mod new_run;
mod notes;
mod owned_store;
mod policy;
mod reload;
mod resume;
pub mod run_defaults;
mod run_records;
mod sandbox_rules;
mod schedules;
mod service_manager;
mod session_workspace;
mod signals;
mod start;
mod store_client;
mod submission;

pub use crate::budget_limits::{BudgetLimits, millis, parse_count, parse_dollars, parse_duration};
pub use agents::missing_agent_note;
pub use config_check::check_config;
pub use conversation::{ConversationChoice, ConversationTarget};
pub use crash_trials::{fail_crash_looping, first_trial};
pub(crate) use drain::runs_under_way;
pub use drain::{Drain, DrainOutcome};
pub(crate) use endpoints::endpoint;
pub use endpoints::{Endpoints, store_script};
pub use error::{HostError, StartError};
pub use exchangeable::Exchangeable;
pub use folders::{
    WorkspaceChoice, configured_state_dir, create_state_dir, open, resolve_workspace, state_dir,
};
pub(crate) use handover::request_error;
pub use handover::{
    DecodedRecord, FollowedEvents, FollowedPlace, FollowedRecord, FollowedStep, HandoverError,
    OwnerConnection, RecordFollower, as_text,
};
pub use identifier::Identifier;
pub use model_choice::{ModelSelection, OllamaProbe, RehearsalScript, discover, keep_script};
pub use new_run::{
    RunInput, SpecRequest, endpoints as run_endpoints, first_of_key, ignored_settings, new_spec,
};
pub use notes::NoteSink;
pub use owned_store::{OwnedStore, serve_commands};
pub use policy::AgentPolicies;
pub use resume::{ResumeObserver, ResumeOutcome, ResumeRequest, Revival, resume_runs};
pub use sandbox_rules::sandbox_rules;
pub use service_manager::ServiceManager;
pub use signals::{ShutdownSignal, Signals};
pub(crate) use start::{HostDependencies, checked_policy, runtime};
pub use start::{RuntimeHost, ShutdownUrgency, start, start_write_only};
pub use store_client::{
    OwnerReply, RETRY_DELAY, StoreAccess, StoreClient, open_as_owner, unexpected_response,
};
pub use submission::{MessageOptions, RunSettings, RunSubmitter, Submission, SubmissionOptions};
