//! What the world must offer: traits that adapters implement. Nothing here assumes one process or one machine.

mod admit;
mod artifacts;
mod clock;
mod context;
mod journal;
mod ledger;
mod provider;
mod segments;
mod space;
mod tool;

pub use admit::{View, admit, fence};
pub use artifacts::{
    ArtifactError, ArtifactHashes, ArtifactName, ArtifactWriter, Artifacts, Excerpt, Keeper, Presence, Shelf,
};
pub use clock::Clock;
pub use context::{ContextEngine, ContextError, FixedPrompt, Layer, Occasion, Prompt, tokens_of};
pub use journal::{
    Append, Appended, Founded, InboxItem, InboxRow, Index, Journal, JournalError, Opened, Read, ReadError,
    Refusal, Rows, StoredRecord, Write, Written,
};
pub use ledger::{Posting, post};
pub use provider::{Deltas, Encoder, Head, ModelRequest, Provider, ToolChoice};
pub use segments::Segments;
pub use space::Space;
pub use tool::{BadArguments, Boot, Found, Intent, Invocation, Progress, Tool};
