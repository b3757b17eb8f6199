use std::fmt::Display;

use serde::Deserialize;

use super::{block::Block, refuse, refuse_field, tools::Tool};
use crate::rehearsal::{
    Id,
    wire::{
        Caching, Prefix, Refusal,
        fields::{Fields, Shape},
    },
};

/// More marks are refused.
const MARKS: usize = 4;

/// How long a cached beginning is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Ttl {
    #[serde(rename = "5m")]
    FiveMinutes,
    #[serde(rename = "1h")]
    OneHour,
}

impl Ttl {
    /// The mark in `cache_control` of the object at `place`, if there is one.
    pub(super) fn of(fields: &Fields<'_>, place: impl Display) -> Result<Option<Self>, Refusal> {
        let control = fields.read::<Fields<'_>>("cache_control", "dictionary");
        let Some(control) = control.map_err(|problem| refuse_field(&place, &problem))? else {
            return Ok(None);
        };
        let place = format!("{place}.cache_control");
        let shape = Shape { required: &["type"], optional: &["ttl", "scope"] };
        control.check(&shape).map_err(|problem| refuse_field(&place, &problem))?;
        let kind = control.text("type").map_err(|problem| refuse_field(&place, &problem))?;
        if kind != Id("ephemeral".into()) {
            return Err(refuse(format_args!("{place}.type"), "Input should be 'ephemeral'"));
        }
        let ttl = control.read("ttl", "string: '5m' or '1h'");
        let ttl = ttl.map_err(|problem| refuse_field(&place, &problem))?;
        Ok(Some(ttl.unwrap_or(Self::FiveMinutes)))
    }
}

/// The parts of a request in the order in which they are cached.
pub(super) struct Parts<'p, 'a> {
    pub(super) model: &'p str,
    pub(super) tools: &'p [Tool<'a>],
    pub(super) system: &'p [Block<'a>],
    /// With the role before each block.
    pub(super) blocks: Vec<(&'static str, &'p Block<'a>)>,
    /// The mark that the vendor shall put on the last part.
    pub(super) last: Option<Ttl>,
}

/// What a cache may know of a request; refuses marks that are too many or in the wrong order.
pub(super) fn prefix(parts: &Parts<'_, '_>) -> Result<Prefix, Refusal> {
    let mut prefix = Prefix::new(Caching::Marks, parts.model);
    let mut marks = Vec::new();
    let mut close = |prefix: &mut Prefix, marker: Option<Ttl>| {
        marks.extend(marker);
        match marker {
            None => prefix.stop(),
            Some(_) => prefix.marked_stop(),
        }
    };
    for tool in parts.tools {
        feed(&mut prefix, &tool.fields, &["cache_control"]);
        close(&mut prefix, tool.marker);
    }
    let system = parts.system.iter().map(|block| ("system", block));
    for (holder, block) in system.chain(parts.blocks.iter().copied()) {
        prefix.name(holder);
        for part in &block.parts {
            feed(&mut prefix, &part.fields, &["cache_control"]);
            close(&mut prefix, part.marker);
        }
        // The parts were the content of a result.
        let but: &[_] =
            if block.parts.is_empty() { &["cache_control"] } else { &["cache_control", "content"] };
        feed(&mut prefix, &block.fields, but);
        close(&mut prefix, block.marker);
    }
    if parts.last.is_some() {
        prefix.mark_last();
        marks.extend(parts.last);
    }
    if marks.len() > MARKS {
        let found = marks.len();
        let message =
            format!("A maximum of {MARKS} blocks with cache_control may be provided. Found {found}.");
        return Err(Refusal::bad_request(None, message));
    }
    if marks.windows(2).any(|pair| pair == [Ttl::FiveMinutes, Ttl::OneHour]) {
        let message = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note \
                       that blocks are processed in the following order: `tools`, `system`, `messages`.";
        return Err(Refusal::bad_request(None, message));
    }
    Ok(prefix)
}

/// Marks move from request to request, so they are left out; and a text is the same with and without a `type`.
fn feed(prefix: &mut Prefix, fields: &Fields<'_>, but: &[&str]) {
    for (name, value) in fields.iter().filter(|(name, _)| *name != "type" && !but.contains(name)) {
        prefix.name(name);
        prefix.value(value.get());
    }
}
