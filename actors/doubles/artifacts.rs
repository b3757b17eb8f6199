//! Artifacts in memory, optionally with a limit for the size of each.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};

use crate::{
    model::ContentHash,
    port::{ArtifactError, ArtifactName, ArtifactSink, Artifacts, Excerpt},
};

/// Artifacts in memory; clones are handles of one store.
#[derive(Debug, Clone, Default)]
pub struct MemoryArtifacts {
    store: Arc<Mutex<BTreeMap<ArtifactName, Bytes>>>,
    /// Most bytes of one artifact; a larger one fails as on a full disk. `None`: no limit.
    capacity: Option<usize>,
}

impl MemoryArtifacts {
    /// A store in which an artifact that grows beyond `capacity` bytes fails as on a full disk.
    pub fn full_after(capacity: usize) -> Self {
        Self { capacity: Some(capacity), ..Self::default() }
    }

    /// All finished artifacts.
    pub fn all(&self) -> BTreeMap<ArtifactName, Bytes> {
        lock(&self.store).clone()
    }
}

impl Artifacts for MemoryArtifacts {
    fn create(&self, name: ArtifactName) -> BoxFuture<'static, Result<Box<dyn ArtifactSink>, ArtifactError>> {
        let sink = MemoryArtifactSink { store: self.clone(), name, bytes: Vec::new() };
        ready(Ok(Box::new(sink) as Box<dyn ArtifactSink>)).boxed()
    }

    fn verify(
        &self,
        name: ArtifactName,
        sha256: ContentHash,
    ) -> BoxFuture<'static, Result<(), ArtifactError>> {
        let verified = match lock(&self.store).get(&name) {
            None => Err(ArtifactError::NotFound(name.handle())),
            Some(all) if ContentHash::of(all) == sha256 => Ok(()),
            Some(_) => Err(ArtifactError::Altered(name.handle())),
        };
        ready(verified).boxed()
    }

    fn read(
        &self,
        name: ArtifactName,
        offset: u64,
        max: usize,
    ) -> BoxFuture<'static, Result<Excerpt, ArtifactError>> {
        let found = lock(&self.store).get(&name).cloned();
        let excerpt = found.ok_or_else(|| ArtifactError::NotFound(name.handle())).map(|all| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
            let end = start.saturating_add(max).min(all.len());
            Excerpt { bytes: all.slice(start..end), total: all.len() as u64 }
        });
        ready(excerpt).boxed()
    }
}

#[derive(Debug)]
struct MemoryArtifactSink {
    store: MemoryArtifacts,
    name: ArtifactName,
    bytes: Vec<u8>,
}

impl ArtifactSink for MemoryArtifactSink {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactError>> {
        self.bytes.extend_from_slice(&bytes);
        let is_full = self.store.capacity.is_some_and(|capacity| self.bytes.len() > capacity);
        let full = || ArtifactError::Unavailable("no space left on device".into());
        ready(if is_full { Err(full()) } else { Ok(()) }).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), ArtifactError>> {
        lock(&self.store.store).insert(self.name, self.bytes.into());
        ready(Ok(())).boxed()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
