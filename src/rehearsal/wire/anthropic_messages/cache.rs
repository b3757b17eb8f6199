//! Cache marks (`cache_control`) of `anthropic_messages` requests, and the prefixes that they end.

use serde::Deserialize;

use super::{block::RequestBlock, refuse, tools::OfferedTool};
use crate::rehearsal::wire::{
    CachePolicy, CachePrefix, RequestRefusal,
    fields::{JsonFields, ObjectShape},
};

/// Maximum number of marks; requests with more are refused.
const MAX_MARKS: usize = 4;

/// How long a prefix stays cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Ttl {
    #[serde(rename = "5m")]
    FiveMinutes,
    #[serde(rename = "1h")]
    OneHour,
}

impl Ttl {
    /// The mark in `cache_control` of an object, if there is one.
    pub(super) fn of(fields: &JsonFields<'_>) -> Result<Option<Self>, RequestRefusal> {
        let Some(control) = fields.object("cache_control", "dictionary")? else { return Ok(None) };
        control.check(&ObjectShape { required: "type", optional: "ttl scope" })?;
        if control.text("type")?.0 != "ephemeral" {
            return Err(refuse(control.path("type"), "Input should be 'ephemeral'"));
        }
        let ttl = control.read("ttl", "string: '5m' or '1h'")?;
        Ok(Some(ttl.unwrap_or(Self::FiveMinutes)))
    }
}

/// The parts of a request in cache order.
pub(super) struct CacheableParts<'p, 'a> {
    pub(super) model: &'p str,
    pub(super) tools: &'p [OfferedTool<'a>],
    pub(super) system: &'p [RequestBlock<'a>],
    /// The blocks, each with its role.
    pub(super) blocks: Vec<(&'static str, &'p RequestBlock<'a>)>,
    /// The request's own mark, which applies to the last part.
    pub(super) last: Option<Ttl>,
}

/// The prefixes of a request. Refuses too many marks and a wrong order of lifetimes.
pub(super) fn prefix(parts: &CacheableParts<'_, '_>) -> Result<CachePrefix, RequestRefusal> {
    let mut prefix = CachePrefix::new(CachePolicy::Explicit, parts.model);
    let mut marks = Vec::new();
    let mut add_breakpoint = |prefix: &mut CachePrefix, marker: Option<Ttl>| {
        marks.extend(marker);
        match marker {
            None => prefix.add_breakpoint(),
            Some(_) => prefix.add_marked_breakpoint(),
        }
    };
    for tool in parts.tools {
        hash_fields(&mut prefix, &tool.fields, &["cache_control"]);
        add_breakpoint(&mut prefix, tool.marker);
    }
    let system = parts.system.iter().map(|block| ("system", block));
    for (role, block) in system.chain(parts.blocks.iter().copied()) {
        prefix.name(role);
        for part in &block.parts {
            hash_fields(&mut prefix, &part.fields, &["cache_control"]);
            add_breakpoint(&mut prefix, part.marker);
        }
        // The content of a result is already included as parts.
        let excluded: &[_] =
            if block.parts.is_empty() { &["cache_control"] } else { &["cache_control", "content"] };
        hash_fields(&mut prefix, &block.fields, excluded);
        add_breakpoint(&mut prefix, block.marker);
    }
    if parts.last.is_some() {
        prefix.mark_last();
        marks.extend(parts.last);
    }
    if marks.len() > MAX_MARKS {
        let found = marks.len();
        let message =
            format!("A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {found}.");
        return Err(RequestRefusal::bad_request(None, message));
    }
    if marks.windows(2).any(|pair| pair == [Ttl::FiveMinutes, Ttl::OneHour]) {
        let message = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note \
                       that blocks are processed in the following order: `tools`, `system`, `messages`.";
        return Err(RequestRefusal::bad_request(None, message));
    }
    Ok(prefix)
}

/// Hashes the fields except those in `excluded`. Marks are left out because they move from request to request. `type`
/// is left out because a text is the same with and without it.
fn hash_fields(prefix: &mut CachePrefix, fields: &JsonFields<'_>, excluded: &[&str]) {
    for (name, value) in fields.iter().filter(|(name, _)| *name != "type" && !excluded.contains(name)) {
        prefix.name(name);
        prefix.value(value.get());
    }
}
