//! Simulates vendors' prompt caches, for the reported usage. `wire/prefix.rs` makes the prefixes of a request.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use super::wire::{CacheBreakpoint, CachePolicy, CachePrefix};

/// Maximum number of remembered prefixes; the oldest is evicted first.
const MAX_PREFIXES: usize = 16_384;
/// How many breakpoints are searched for a known prefix, from a marked breakpoint backwards. The marked one counts.
const MAX_LOOK_BACK: usize = 20;
/// Shorter prefixes count as not cached by vendors that cache automatically.
const MIN_CACHED_TOKENS: u64 = 1024;
/// Granularity of automatic caching.
const CACHE_STEP_TOKENS: u64 = 128;

/// The prefixes of the requests so far. Affects only the reported usage.
#[derive(Debug, Default)]
pub struct PromptCache(Mutex<KnownPrefixes>);

#[derive(Debug, Default)]
struct KnownPrefixes {
    known: HashSet<u64>,
    oldest_first: VecDeque<u64>,
}

/// Cached tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUsage {
    /// Tokens read from the cache.
    pub read: u64,
    /// Tokens written to the cache.
    pub written: u64,
}

impl PromptCache {
    /// The cache usage of a request. Its prefixes are remembered for later requests: all of them, or with explicit
    /// marks only the marked ones.
    pub fn look_up(&self, prefix: &CachePrefix) -> CacheUsage {
        let mut prefixes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match prefix.policy {
            CachePolicy::Explicit => prefixes.usage_by_marks(&prefix.breakpoints),
            CachePolicy::Automatic => prefixes.usage_by_prefix(&prefix.breakpoints),
        }
    }
}

impl KnownPrefixes {
    fn usage_by_marks(&mut self, breakpoints: &[CacheBreakpoint]) -> CacheUsage {
        let Some(last) = breakpoints.iter().rposition(|breakpoint| breakpoint.is_marked) else {
            return CacheUsage::default();
        };
        let near =
            |at: usize| breakpoints[at..].iter().take(MAX_LOOK_BACK).any(|breakpoint| breakpoint.is_marked);
        let known = (0..=last).rev().find(|at| near(*at) && self.known.contains(&breakpoints[*at].hash));
        let read = known.map_or(0, |at| breakpoints[at].tokens);
        for breakpoint in breakpoints.iter().filter(|breakpoint| breakpoint.is_marked) {
            self.remember(breakpoint.hash);
        }
        CacheUsage { read, written: breakpoints[last].tokens - read }
    }

    fn usage_by_prefix(&mut self, breakpoints: &[CacheBreakpoint]) -> CacheUsage {
        let known = breakpoints.iter().rposition(|breakpoint| self.known.contains(&breakpoint.hash));
        let read = known.map_or(0, |at| breakpoints[at].tokens);
        for breakpoint in &breakpoints[known.map_or(0, |at| at + 1)..] {
            self.remember(breakpoint.hash);
        }
        CacheUsage {
            read: if read < MIN_CACHED_TOKENS { 0 } else { read - read % CACHE_STEP_TOKENS },
            written: 0,
        }
    }

    fn remember(&mut self, hash: u64) {
        if !self.known.insert(hash) {
            return;
        }
        self.oldest_first.push_back(hash);
        if self.oldest_first.len() > MAX_PREFIXES {
            let oldest = self.oldest_first.pop_front();
            oldest.map(|oldest| self.known.remove(&oldest));
        }
    }
}
