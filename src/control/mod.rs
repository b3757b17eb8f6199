//! The control socket: the owner of the store answers and obeys other processes of the same user. Only one process can
//! have the store open, even for reading. The owner therefore listens on `control.sock` in the state directory. Other
//! processes ask it there, and open the store themselves only without an owner. `docs/control.md` has the protocol.
//! Architecture invariant: no client can hold up the owner. Lines, connections, waiting times and pending commands are
//! bounded, and each connection is a task of its own.

#[cfg(test)]
mod approval_tests;
mod approvals;
mod backup_service;
mod budget;
mod client;
mod commands;
mod connection;
mod continuation;
mod deliveries;
mod disk_full;
mod error;
mod follow;
#[cfg(test)]
mod follow_tests;
mod followed_event;
mod follower_stream;
mod handler;
mod lineage;
mod lines;
mod maintenance;
mod messages;
mod protocol;
mod reader;
mod report;
mod report_cost;
mod report_schedules;
mod run_filter;
mod run_folds;
mod run_prefix;
mod run_records;
mod schedules;
mod server;
mod service_control;
mod session_queue;
mod socket_path;
mod submission;
mod token;
mod tree;
#[cfg(test)]
mod tree_tests;
mod usage_days;

pub use approvals::{ApprovalWriter, decision, text_answer};
pub use backup_service::BackupService;
pub use client::{AskError, ControlClient};
pub use commands::{RuntimeSlot, stop};
pub use connection::MAX_LINE_BYTES;
pub use continuation::{BudgetUsage, Continuation, continuation};
pub use deliveries::{DeliveryFilter, retry as retry_deliveries};
pub use disk_full::DiskFullMonitor;
pub use error::{RequestError, RequestErrorKind};
pub use follow::{FollowStep, RunFollower};
pub use followed_event::{FedRecord, FollowedContent, FollowedEvent};
pub use handler::RequestHandler;
pub use maintenance::{
    ClassUsage, Footprint, GcClassReport, GcReport, GcRequest, MaintenanceService, SessionRemoval,
};
pub use messages::{MessageStatus, MessageSubmission};
pub use protocol::{ControlRequest, ControlResponse, MAX_DAYS};
pub use reader::{PAGE_RECORDS, ResolvedId, StoreReader};
pub use run_filter::{RunFilter, RunOutcomeFilter};
pub use run_records::RunRecords;
pub use schedules::{ScheduleChange, change_schedule};
pub use server::ControlServer;
pub use service_control::ServiceControl;
pub use session_queue::check_queue;
pub(crate) use socket_path::is_reachable;
pub use submission::{OwnerKind, RunSubmission, SubmissionConversation, SubmissionService, SubmittedRun};
pub use tree::{RunTreeCache, run_view};
pub use usage_days::check_days;
