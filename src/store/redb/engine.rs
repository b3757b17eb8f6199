//! Access to the engine: catches its panics, and adds path and remedy to its errors. [`EngineFile`] is the file,
//! [`Engine`] an open database whose closing cannot panic.

use std::{
    cell::{Cell, RefCell},
    ops::{Deref, DerefMut},
    panic::{self, AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Once},
};

use redb::{Builder, Database, StorageBackend};

use super::{
    error::{Result, StoreError},
    pages::{DamagedPages, VerifiedFile},
};

/// Maximum number of damaged pages named by an error.
const MAX_NAMED_PAGES: usize = 5;

thread_local! {
    /// Whether panics of this thread are caught, and so not printed.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    /// Message and place of the last caught panic.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The engine's file; adds its path and damaged pages to errors.
#[derive(Debug, Clone)]
pub(super) struct EngineFile {
    pub(super) path: Arc<Path>,
    damaged: DamagedPages,
}

impl EngineFile {
    /// The file at `path`, without known damaged pages.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.into(), damaged: DamagedPages::default() }
    }

    /// Opens or creates the database over `backend`, with a cache of at most `cache` bytes. Pages are verified when
    /// they are read.
    pub(super) fn open(&self, backend: impl StorageBackend, cache: usize) -> Result<Engine> {
        let backend = VerifiedFile::new(backend, self.damaged.clone());
        let db = self.run(|| Ok(Builder::new().set_cache_size(cache).create_with_backend(backend)?))?;
        Ok(Engine { db: Some(db), file: self.clone() })
    }

    /// Runs `work`, which uses the file. Panics of the engine become errors, and errors get path and pages.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.catch(|| work().map_err(|error| self.explain(error)))?
    }

    /// Runs `work`, which uses the file. A panic of the engine becomes an error.
    pub(super) fn catch<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let was_caught = silence();
        let result = catch_unwind(AssertUnwindSafe(work));
        IS_CAUGHT.set(was_caught);
        result.map_err(|_| {
            let (path, text) = (self.path.display(), PANIC.take());
            if self.damaged.offsets().is_empty() {
                tracing::error!(%path, text, "the engine panicked, and no page of its file is known to be damaged");
            } else {
                tracing::debug!(%path, text, "the engine panicked over a damaged page");
            }
            self.damage("the engine cannot decode what it holds")
        })
    }

    /// Adds path and pages to an error that reports corruption.
    pub(super) fn explain(&self, error: StoreError) -> StoreError {
        if let StoreError::Engine(redb::Error::Corrupted(text)) = &error {
            return self.damage(text);
        }
        error
    }

    /// The damage that reads have met so far, if any.
    pub(super) fn known_damage(&self) -> Option<StoreError> {
        (!self.damaged.offsets().is_empty()).then(|| self.damage(""))
    }

    fn damage(&self, text: &str) -> StoreError {
        let offsets = self.damaged.offsets();
        let named: Vec<_> = offsets.iter().take(MAX_NAMED_PAGES).map(u64::to_string).collect();
        let what = match (&named[..], offsets.len().saturating_sub(MAX_NAMED_PAGES)) {
            ([], _) => format!("the file is damaged ({text})"),
            ([one], _) => format!("the page at byte {one} is not what was written to it"),
            (some, 0) => format!("the pages at bytes {} are not what was written to them", some.join(", ")),
            (some, more) => format!(
                "the pages at bytes {} and {more} more are not what was written to them",
                some.join(", ")
            ),
        };
        StoreError::Damaged { path: self.path.to_path_buf(), what }
    }
}

/// Stops printing this thread's panics; returns the flag's previous value, with which the caller restores it.
fn silence() -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if IS_CAUGHT.get() {
                PANIC.set(panic.to_string());
            } else {
                print(panic);
            }
        }));
    });
    IS_CAUGHT.replace(true)
}

/// An open database whose closing cannot panic.
pub(super) struct Engine {
    /// `None` only during its drop.
    db: Option<Database>,
    pub(super) file: EngineFile,
}

impl Engine {
    /// Closes the database; returns an error unless all of it is on disk.
    pub(super) fn close(mut self) -> Result<()> {
        let (db, file) = (self.db.take(), self.file.clone());
        file.run(|| Ok(db.map_or(Ok(()), Database::close)?))
    }
}

impl Deref for Engine {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.db.as_ref().unwrap_or_else(|| unreachable!("it is there until it is dropped"))
    }
}

impl DerefMut for Engine {
    fn deref_mut(&mut self) -> &mut Database {
        self.db.as_mut().unwrap_or_else(|| unreachable!("it is there until it is dropped"))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let db = self.db.take();
        if let Err(error) = self.file.catch(|| drop(db)) {
            tracing::error!(fault = %error, "the store's file was not closed in order");
        }
    }
}
