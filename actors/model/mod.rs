//! Plain data that every part of the runtime speaks: no logic beyond what keeps a value well formed.

mod access;
mod approval;
mod ask;
mod breaker;
mod budget;
mod call;
mod codec;
mod compaction;
mod credential;
mod delegation;
mod durable;
mod event;
mod failure;
mod hash;
mod ids;
mod inbox;
mod learned;
mod message;
mod outcome;
mod past;
mod rate;
mod record;
mod retry;
mod run;
mod space;
mod time;
mod todo;
mod tool;
mod traits;
mod usage_anomaly;
mod wait;

pub use access::Access;
pub use approval::{Answerer, ApprovalAnswered, ApprovalRequested, Doubt, Verdict, WhenInDoubt, WhyAgain};
pub use ask::{LateSettled, ModelAnswered, ModelFailed, ModelStarted, ModelWaiting, PrefixChange};
pub use breaker::{BreakerPolicy, BreakerState, NotAnswered, WhyNot};
pub use budget::{Account, Amounts, Dimension, Ledger, NewAccount, NoAllowance, Raise, Reserve, Settle};
pub use call::{CallAdmitted, CallEnded, CallLost, CallStarted};
pub use codec::{DecodeError, check_readable, decode, encode};
pub use compaction::{
    Compression, ContextCompacted, Irreducible, Place, Rung, SummaryAnswered, SummaryStarted, Unusable,
};
pub use credential::{CredentialId, PoolStrategy};
pub use delegation::{Child, ChildEnded, Delegation, Parent, Raised};
pub use durable::Durable;
pub use event::{Event, EventBody, Lifecycle, RunStatus, Stream};
pub use failure::{Deadline, Failure, FailureClass, RequestFate};
pub use hash::{ContentHash, ContentHasher, Hash, Hasher};
pub use ids::{AccountId, Attempt, BootId, CallId, IdError, Incarnation, RunId, Seq, SessionId};
pub use inbox::Inbox;
pub use learned::{Density, ListedLimits, ModelLimits, ModelRow};
pub use message::{
    Answer, AssistantMessage, Content, FROM_RUNTIME, Finish, Flaw, Image, ImageFormat, MAX_OPAQUE_DEPTH,
    Message, Opaque, Origin, TooDeep, ToolCall, Usage,
};
pub use outcome::{Cause, Ended, Outcome, StopReason};
pub use past::{Past, PastCall, PastRound, PastStep};
pub use rate::{RateInfo, RateLeft, RateLimits};
pub use record::{
    Body, BudgetRaised, Kind, MessageSteered, Record, RunAccepted, RunEnded, RunExhausted, RunReopened,
    RunStopping, SessionOpened, SessionRevived,
};
pub use retry::{RetryAttempts, RetryPolicy};
pub use run::{Limits, ModelRef, ModelRefError, RunRow, RunSpec, RunState, SessionRow};
pub use space::{Shortage, Size};
pub use time::{Now, Timestamp};
pub use todo::{TodoChanged, TodoItem, TodoList, TodoStatus};
pub use tool::{Artifact, CallEnd, CallStatus, EffectClass, MAX_OUTPUT, ToolSpec};
pub use traits::{Levels, ModelDeadlines, ModelTraits, Price, Thinking, ThinkingRequest, ThinkingStyle};
pub use usage_anomaly::{UsageAnomaly, UsageAnomalyKind};
pub use wait::{Awaited, NoRoom, Wait};
