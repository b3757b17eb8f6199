//! Ports: traits that the adapters implement, with their data. Also re-exports the writes of a journal and the checks
//! that all stores share (`core/journal`). No port assumes one process or one machine.

mod artifacts;
mod clock;
mod disk_space;
mod feed;
mod hooks;
mod journal;
mod memory;
mod message_buffer;
mod picture;
mod policy;
mod provider;
mod redaction;
mod schedule;
mod system_prompt;
mod tool;
mod verifier;

pub use artifacts::{
    ArtifactError, ArtifactSink, ArtifactWriter, Artifacts, AttemptArtifacts, Excerpt, Presence,
};
pub use clock::Clock;
pub use disk_space::DiskSpaceGauge;
pub use feed::{FeedCursor, FeedEntry};
pub use hermod_core::journal::{
    Append, AppendReceipt, InboxItem, InboxRow, IndexRow, KEPT_DELIVERIES, OpenedSession, Posting,
    SpawnedSession, StoreView, StoredRecord, WriteOp, WriteOutcome, WriteRefusal, fence, post,
    validate_append,
};
pub use hermod_core::model::{ArtifactHashes, ArtifactName, BadArguments, Boot, Intent, estimate_tokens};
pub use hooks::{DecisionHooks, HookQuestion, HookSubject, NoHooks};
pub use journal::{Journal, JournalError, ReadError, ReadFuture, RowReader};
pub use memory::{MemoryWriter, NoMemory};
pub use message_buffer::MessageBuffer;
pub use picture::{NoScaling, PictureScaler};
pub use policy::{AllowAllCalls, CallPolicy, CallVerdict, ProposedCall};
pub use provider::{DeltaSink, EncodedHead, Encoder, ModelProvider, ModelRequest, ToolChoice};
pub use redaction::{NoRedaction, RedactedStream, TextRedactor};
pub use schedule::{Calendar, OccurrenceError, OccurrenceSubmitter};
pub use system_prompt::{
    FixedPrompt, PromptLayer, PromptRequest, SystemPrompt, SystemPromptBuilder, SystemPromptError,
};
pub use tool::{AttachOutcome, CallWork, Invocation, PreparedCall, ProgressReporter, Tool};
pub(crate) use verifier::command_timeouts_ms;
pub use verifier::{NoVerifier, Verification, Verifier};
