//! Starts and stops the observers of a process. They have a thread of their own, so that they take no time of the actors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use futures::future::join_all;
use hermod_actors::{
    Runtime,
    port::{Journal, ReadError},
};
use tokio::{runtime, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{configured::ConfiguredHooks, hook::Hook, observer::Observer, teller::Teller};
use crate::feed_cursor::CursorFile;

/// The folder in the state directory with the places of hooks in the feed. Its name is none that a person would give to a
/// folder of hooks: it has nothing else.
const FOLDER: &str = "hook_places";

/// The observers of a running process.
#[derive(Debug, Default)]
pub struct HookObservers {
    thread: Option<ObserverThread>,
}

#[derive(Debug)]
struct ObserverThread {
    /// Fires when observers end with what is durable.
    finishing: CancellationToken,
    /// Fires when they end at once.
    closing: CancellationToken,
    handle: thread::JoinHandle<()>,
}

impl HookObservers {
    /// Tells the hooks of what happens after the places that earlier processes have kept; a new hook, from now on. Where
    /// that is impossible no run is hindered.
    pub async fn start(
        hooks: &ConfiguredHooks,
        runtime: &Arc<Runtime>,
        journal: &Arc<dyn Journal>,
        state: &Path,
    ) -> Result<Self, ReadError> {
        let observing: Vec<&Arc<Hook>> = hooks.hooks().iter().filter(|hook| hook.is_observer()).collect();
        let folder = state.join(FOLDER);
        if let Err(error) = prepare_folder(&folder, &observing) {
            tracing::error!(%error, folder = %folder.display(), "places of hooks in the feed cannot be kept");
        }
        if observing.is_empty() {
            return Ok(Self::default());
        }
        let end = runtime.feed_end().await?;
        let finishing = CancellationToken::new();
        let mut observers = Vec::new();
        for hook in observing {
            let cursor = CursorFile::new(cursor_path(&folder, &hook.name), journal.restore_generation());
            let kept = cursor.read().filter(|kept| *kept <= end);
            if kept.is_none() {
                cursor.write(end);
            }
            observers.push(Observer {
                hook: Arc::clone(hook),
                feed: runtime.feed(kept.unwrap_or(end)),
                cursor,
                kept: kept.unwrap_or(end),
                teller: Teller::new(Arc::clone(hook), finishing.clone()),
                runtime: Arc::clone(runtime),
                journal: Arc::clone(journal),
                finishing: finishing.clone(),
                calls: BTreeMap::new(),
            });
        }
        match run_on_thread(observers, finishing) {
            Ok(thread) => Ok(Self { thread: Some(thread) }),
            Err(error) => {
                tracing::error!(%error, "hooks are told of no events");
                Ok(Self::default())
            }
        }
    }

    /// Ends the observers: they tell what is durable now, as far as that takes no longer than `limit`. The rest is told by
    /// the next process.
    pub async fn stop(&mut self, limit: Duration) {
        let Some(ObserverThread { finishing, closing, handle }) = self.thread.take() else { return };
        finishing.cancel();
        let mut joined = tokio::task::spawn_blocking(move || handle.join());
        let ended = if let Ok(ended) = timeout(limit, &mut joined).await {
            ended
        } else {
            closing.cancel();
            joined.await
        };
        if !matches!(ended, Ok(Ok(()))) {
            tracing::error!("the thread that tells hooks of events died");
        }
    }
}

/// Observers that are dropped end soon after.
impl Drop for HookObservers {
    fn drop(&mut self) {
        if let Some(thread) = &self.thread {
            thread.closing.cancel();
        }
    }
}

fn cursor_path(folder: &Path, hook: &str) -> PathBuf {
    folder.join(format!("{hook}.json"))
}

/// Makes the folder, and removes the places of hooks that are configured no more: one that comes again begins anew.
fn prepare_folder(folder: &Path, observing: &[&Arc<Hook>]) -> io::Result<()> {
    if observing.is_empty() {
        // A command that only writes to the store has no hooks: what it writes is told by the next process.
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    let known: BTreeSet<PathBuf> = observing.iter().map(|hook| cursor_path(folder, &hook.name)).collect();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_place = path.extension().is_some_and(|extension| extension == "json") && path.is_file();
        if is_place && !known.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn run_on_thread(observers: Vec<Observer>, finishing: CancellationToken) -> io::Result<ObserverThread> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let closing = CancellationToken::new();
    let closed = closing.clone();
    let handle = thread::Builder::new().name("hermod-hooks".into()).spawn(move || {
        let observed = join_all(observers.into_iter().map(Observer::run));
        if runtime.block_on(closed.run_until_cancelled(observed)).is_none() {
            tracing::debug!("hooks are told of the rest by the next process");
        }
        runtime.shutdown_background();
    })?;
    Ok(ObserverThread { finishing, closing, handle })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_of_hooks_that_are_gone_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join(FOLDER);
        fs::create_dir_all(folder.join("sub.json")).unwrap();
        for name in ["h.json", "gone.json", "guard.sh"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        prepare_folder(&folder, &[]).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4, "a process without hooks removes none");
        prepare_folder(&folder, &[&Hook::scripted(&["run_end"], |_| Ok(Vec::new()))]).unwrap();
        let left =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(left.collect::<BTreeSet<_>>(), ["h.json", "guard.sh", "sub.json"].map(Into::into).into());
    }
}
