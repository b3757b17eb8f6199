//! Starts and stops the export of a service. It has a thread of its own, so that it takes no time of the actors.

use std::{path::Path, sync::Arc};

use hermod_actors::{
    Runtime,
    port::{Journal, ReadError},
};
#[cfg(feature = "otlp")]
use {
    super::{exporter::Exporter, sender::SpanSender},
    crate::feed_cursor::CursorFile,
    std::{io, thread},
    tokio::runtime,
    tokio_util::sync::CancellationToken,
};

use super::{counts::ExportCounts, settings::OtlpSettings};
use crate::{config::Config, discovery::Variables, host::NoteSink};

/// Where the place in the feed is kept, in the state directory.
#[cfg(feature = "otlp")]
const CURSOR_FILE: &str = "traces.json";

/// What is exported.
#[derive(Debug, Clone, Copy)]
pub struct TraceSource<'s> {
    /// The feed of records.
    pub runtime: &'s Runtime,
    /// The records of a run.
    pub journal: &'s Arc<dyn Journal>,
    /// Where the place in the feed is kept.
    pub state: &'s Path,
}

/// The export of a running service; nothing is exported if none is configured.
#[derive(Debug, Default)]
pub struct TraceExport {
    #[cfg(feature = "otlp")]
    thread: Option<(CancellationToken, thread::JoinHandle<()>)>,
}

impl TraceExport {
    /// Exports runs that end after the place in the feed that an earlier process has kept, or from now on. What hinders the
    /// export is noted, and does not hinder the service.
    pub async fn start(
        source: TraceSource<'_>,
        (config, variables): (&Config, &Variables),
        counts: ExportCounts,
        notes: &Arc<dyn NoteSink>,
    ) -> Result<Self, ReadError> {
        let note = |why: &str| notes.note(&format!("traces    not exported: {why}"));
        match OtlpSettings::resolve(config, variables) {
            Ok(None) => Ok(Self::default()),
            Ok(Some(settings)) => Self::start_with(source, settings, counts, notes).await,
            Err(why) => {
                note(&why);
                Ok(Self::default())
            }
        }
    }
}

#[cfg(not(feature = "otlp"))]
impl TraceExport {
    #[expect(clippy::unused_async, reason = "as with the feature")]
    async fn start_with(
        _: TraceSource<'_>,
        settings: OtlpSettings,
        _: ExportCounts,
        notes: &Arc<dyn NoteSink>,
    ) -> Result<Self, ReadError> {
        notes.note(&format!(
            "traces    not exported to {}: this build cannot; install one with `cargo install --path . --features otlp`",
            settings.redacted_url()
        ));
        Ok(Self::default())
    }

    /// Ends the export.
    #[expect(clippy::unused_async, reason = "as with the feature")]
    pub async fn stop(self) {}
}

#[cfg(feature = "otlp")]
impl TraceExport {
    async fn start_with(
        TraceSource { runtime, journal, state }: TraceSource<'_>,
        settings: OtlpSettings,
        counts: ExportCounts,
        notes: &Arc<dyn NoteSink>,
    ) -> Result<Self, ReadError> {
        let cursor = CursorFile::new(state.join(CURSOR_FILE), journal.restore_generation());
        let end = runtime.feed_end().await?;
        let kept = cursor.read().filter(|kept| *kept <= end);
        if kept.is_none() {
            cursor.write(end);
        }
        let feed = runtime.feed(kept.unwrap_or(end));
        let url = settings.redacted_url();
        let started = SpanSender::new(settings, counts, Arc::clone(notes)).and_then(|sender| {
            let journal = Arc::clone(journal);
            let exporter = Exporter { feed, journal, cursor, sender, batch: Vec::new() };
            run_on_thread(exporter).map_err(|error| error.to_string())
        });
        match started {
            Ok(thread) => Ok(Self { thread: Some(thread) }),
            Err(why) => {
                notes.note(&format!("traces    not exported to {url}: {why}"));
                Ok(Self::default())
            }
        }
    }

    /// Ends the export. What has ended and is not exported yet comes at the next start.
    pub async fn stop(mut self) {
        let Some((closing, thread)) = self.thread.take() else { return };
        closing.cancel();
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::error!("the thread that exports traces died");
        }
    }
}

/// An export that is dropped ends soon after.
#[cfg(feature = "otlp")]
impl Drop for TraceExport {
    fn drop(&mut self) {
        if let Some((closing, _)) = &self.thread {
            closing.cancel();
        }
    }
}

#[cfg(feature = "otlp")]
fn run_on_thread(exporter: Exporter) -> io::Result<(CancellationToken, thread::JoinHandle<()>)> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let closing = CancellationToken::new();
    let closed = closing.clone();
    let thread = thread::Builder::new().name("hermod-traces".into()).spawn(move || {
        // `None` is the end that was asked for, `Some` that of the store.
        let (None | Some(())) = runtime.block_on(closed.run_until_cancelled(exporter.run()));
        runtime.shutdown_background();
    })?;
    Ok((closing, thread))
}
