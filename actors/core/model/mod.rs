//! Data types that all parts of the runtime share, with computations on single values. Rules are in `policy` and
//! `turn`.

mod access;
mod agent_name;
mod approval;
mod artifact_name;
mod breaker;
mod budget;
mod call;
mod codec;
mod compaction;
mod credential;
mod delegation;
mod disk_space;
mod durable;
mod event;
mod expectation;
mod failure;
mod hash;
mod hold;
mod hook;
mod ids;
mod imported_history;
mod inbox;
mod index_row;
mod memory;
mod message;
mod message_queue;
mod model_call;
mod model_profile;
mod occurrence;
mod outbox;
mod outcome;
mod rate;
mod record;
mod record_class;
mod repetition;
mod retry;
mod run;
mod schedule;
mod store_limits;
mod time;
mod todo;
mod token_density;
mod tool;
mod usage_anomaly;
mod wait;

pub use access::{Access, ToolClass};
pub use agent_name::{AgentName, AgentNameError};
pub use approval::{
    ApprovalAnswered, ApprovalDecision, ApprovalNeed, ApprovalRequested, ApprovalScope, DecisionSource,
    InDoubtAction, InDoubtPolicy, PendingApproval, PersonAnswer, RetryReason,
};
pub use artifact_name::{ArtifactHashes, ArtifactName};
pub use breaker::{BreakerPolicy, BreakerState, UnansweredModel, UnansweredReason};
pub use budget::{
    Amounts, BudgetAccount, BudgetRefusal, Dimension, LedgerChange, LimitRaise, NewAccount, Reservation,
    Settlement,
};
pub use call::{CallAdmitted, CallEnded, CallLost, CallStarted};
pub use codec::{DecodeError, RecordJson, check_readable, decode, encode};
pub use compaction::{
    AsideAnswered, AsideDefect, AuxiliaryChain, CompactionMethod, CompactionPolicy, ContextBreakdown,
    ContextCompacted, HistoryPosition, SummaryStarted,
};
pub use credential::{CredentialId, PoolStrategy};
pub use delegation::{ChildEnded, Delegation, LimitIncrease, ParentRef, SubagentRef};
pub use disk_space::{ByteSize, LowDiskSpace};
pub use durable::Durable;
pub use event::{CompactionStage, EventBody, EventStream, Lifecycle, RunStatus, SessionEvent};
pub use expectation::{Expectation, ExpectationMiss, MAX_EXPECTATIONS, RunVerified, check_expectations};
pub use failure::{Deadline, Failure, FailureClass, RequestFate};
pub use hash::{ContentHash, ContentHasher, Digest, Hash, Hasher};
pub use hold::{BeginRules, Hold, HookedRun, Lane, LaneLimits, RunBegun};
pub use hook::{HookAnswer, HookDecision, HookPoint, HookRuling, HookVerdict, HookedCall, HookedSummary};
pub use ids::{
    AccountId, AsideJob, Attempt, AttemptId, BootId, CallId, IdError, Incarnation, RunId, Seq, SessionId,
};
pub use imported_history::{ImportedCall, ImportedHistory, ImportedRound, ImportedStep};
pub use inbox::InboxMessage;
pub use index_row::{RunCounts, RunRow, RunState, SessionRow};
pub use memory::{MemoryEntry, MemoryRefusal, MemorySave, MemorySaved, MemoryTarget};
pub use message::{
    AnswerOrigin, AssistantMessage, FinishReason, Flaw, Image, ImageFormat, MAX_OPAQUE_DEPTH, Message,
    MessageContent, ModelAnswer, OpaqueDepthError, OpaqueState, RUNTIME_TEXT_PREFIX, ToolCall, Usage,
};
pub use message_queue::{
    DropPolicy, DropReason, MAX_COLLECTED_BYTES, MAX_COLLECTED_IMAGES, MessageCollected, MessageDropped,
    MessageFate, MessagePlace, MessageRow, MessageState, QueueMode, QueueOverrides, Queueing,
};
pub use model_call::{ModelAnswered, ModelFailed, ModelLate, ModelStarted, ModelWaiting, PrefixChange};
pub use model_profile::{
    ModelDeadlines, ModelProfile, Price, ThinkingLevel, ThinkingLevels, ThinkingRequest, ThinkingStyle,
};
pub use occurrence::{
    FurtherOccurrences, KEPT_OCCURRENCES, MAX_COUNTED_OCCURRENCES, Occurrence, OccurrenceId, OccurrenceQuery,
    OccurrenceState,
};
pub use outbox::{
    Delivery, DeliveryQuery, DeliveryState, MAX_OUTBOX_TEXT_BYTES, OutboxContent, OutboxMessage,
    StoredDelivery,
};
pub use outcome::{Outcome, OutcomeCause, OutcomeDetail, StopReason};
pub use rate::{RateInfo, RateLimits, RateQuota};
pub use record::{
    Body, BudgetRaised, Kind, MessageSteered, Record, RunAccepted, RunEnded, RunExhausted, RunReopened,
    RunStopping, SessionOpened, SessionRevived,
};
pub use repetition::{Repetition, RepetitionPattern};
pub use retry::{RetryAttempts, RetryPolicy};
pub use run::{Limits, ModelRef, ModelRefError, RunSpec};
pub use schedule::{
    MAX_PAUSE_AFTER, MAX_PAUSE_REASON_BYTES, MAX_SCHEDULE_TEXT_BYTES, MAX_SCHEDULES, MIN_INTERVAL_MS,
    Misfire, Overlap, Schedule, ScheduleDefinition, ScheduleName, ScheduleNameError, ScheduleOutcome,
    SchedulePause, ScheduleRules, ScheduleSource, ScheduleWrite, ScheduledTask, Timing,
};
pub use store_limits::{Period, PeriodUnit, StoreLimits};
pub use time::{SessionTime, Timestamp, optional_rfc3339_time, rfc3339, rfc3339_time};
pub use todo::{TodoChanged, TodoItem, TodoList, TodoStatus};
pub use token_density::{ListedLimits, ModelLimits, ModelRow, TokenDensity, estimate_tokens};
pub use tool::{
    Artifact, Attachment, BadArguments, Boot, CallEnd, CallStatus, EffectClass, Intent, MAX_RESULT_BYTES,
    ToolSpec,
};
pub use usage_anomaly::{UsageAnomaly, UsageAnomalyKind};
pub use wait::{DiskFull, RunWait, WaitKind};

/// Whether a field has its default, which is not stored.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
