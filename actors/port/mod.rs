//! Ports: traits that the adapters implement, with their data and the checks shared by all stores. No port assumes one
//! process or one machine.

mod artifacts;
mod clock;
mod disk_space;
mod journal;
mod ledger;
mod message_buffer;
mod provider;
mod system_prompt;
mod tool;
mod validate;

pub use artifacts::{
    ArtifactError, ArtifactHashes, ArtifactName, ArtifactSink, ArtifactWriter, Artifacts, AttemptArtifacts,
    Excerpt, Presence,
};
pub use clock::Clock;
pub use disk_space::DiskSpaceGauge;
pub use journal::{
    Append, AppendReceipt, InboxItem, InboxRow, IndexRow, Journal, JournalError, OpenedSession, ReadError,
    ReadFuture, RowReader, SpawnedSession, StoredRecord, WriteOp, WriteOutcome, WriteRefusal,
};
pub use ledger::{Posting, post};
pub use message_buffer::MessageBuffer;
pub use provider::{DeltaSink, EncodedHead, Encoder, ModelProvider, ModelRequest, ToolChoice};
pub use system_prompt::{
    FixedPrompt, PromptLayer, PromptRequest, SystemPrompt, SystemPromptBuilder, SystemPromptError,
    estimate_tokens,
};
pub use tool::{AttachOutcome, BadArguments, Boot, Intent, Invocation, ProgressReporter, Tool};
pub use validate::{StoreView, fence, validate_append};
