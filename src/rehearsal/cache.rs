use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use super::wire::{Caching, Prefix, Stop};

/// The beginnings that are remembered; the oldest is forgotten first.
const BEGINNINGS: usize = 16_384;
/// So many stops before a mark are looked up too.
const LOOK_BACK: usize = 20;
/// A shorter beginning is not cached of itself.
const SHORTEST: u64 = 1024;
/// What is cached of itself is counted in such steps.
const STEP: u64 = 128;

/// The beginnings of requests that were answered: changes the usage that is reported, and nothing else.
#[derive(Debug, Default)]
pub struct Cache(Mutex<Beginnings>);

#[derive(Debug, Default)]
struct Beginnings {
    known: HashSet<u64>,
    oldest_first: VecDeque<u64>,
}

/// What a request has of the cache, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cached {
    /// Read from it.
    pub read: u64,
    /// Written to it.
    pub written: u64,
}

impl Cache {
    /// What is known of a request; remembers the rest.
    pub fn meet(&self, prefix: &Prefix) -> Cached {
        let mut beginnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match prefix.caching() {
            Caching::Marks => beginnings.marks(prefix.stops()),
            Caching::Itself => beginnings.itself(prefix.stops()),
        }
    }
}

impl Beginnings {
    fn marks(&mut self, stops: &[Stop]) -> Cached {
        let Some(last) = stops.iter().rposition(|stop| stop.marked) else { return Cached::default() };
        let near = |at: usize| stops[at..].iter().take(LOOK_BACK).any(|stop| stop.marked);
        let known = (0..=last).rev().find(|at| near(*at) && self.known.contains(&stops[*at].hash));
        let read = known.map_or(0, |at| stops[at].tokens);
        for stop in stops.iter().filter(|stop| stop.marked) {
            self.remember(stop.hash);
        }
        Cached { read, written: stops[last].tokens - read }
    }

    fn itself(&mut self, stops: &[Stop]) -> Cached {
        let known = stops.iter().rposition(|stop| self.known.contains(&stop.hash));
        let read = known.map_or(0, |at| stops[at].tokens);
        for stop in &stops[known.map_or(0, |at| at + 1)..] {
            self.remember(stop.hash);
        }
        Cached { read: if read < SHORTEST { 0 } else { read - read % STEP }, written: 0 }
    }

    fn remember(&mut self, hash: u64) {
        if !self.known.insert(hash) {
            return;
        }
        self.oldest_first.push_back(hash);
        if self.oldest_first.len() > BEGINNINGS {
            let oldest = self.oldest_first.pop_front();
            oldest.map(|oldest| self.known.remove(&oldest));
        }
    }
}
