use hermod_actors::port::ContextError;

use super::{
    Ground,
    context::own,
    cut::{Cut, Most, head},
};
use crate::tool::skills::Source;

/// Who the agent is, in the state directory; it takes the place of what comes with the program.
const FILE: &str = "SOUL.md";
const EMBEDDED: &str = include_str!("../../config/prompts/identity.md");

/// Who the agent is. One of the user's own that cannot be read is an error: a session would be somebody else for good.
pub(super) fn build(ground: &Ground<'_>) -> Result<Cut, ContextError> {
    let most = ground.caps.identity_bytes.0 as usize;
    let unreadable = |error: String| {
        let path = ground.state.join(FILE);
        ContextError(format!("{}: {error}; mend it, or remove it for the one of the program", path.display()))
    };
    let read = own(&ground.state.join(FILE), most).map_err(unreadable)?;
    Ok(head(&read.unwrap_or_else(|| Source::of(EMBEDDED)), Most::Bytes(most)))
}
