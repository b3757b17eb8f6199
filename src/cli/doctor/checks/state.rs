//! Checks of the state directory: its rights, the space on its disk, and how fast that disk is.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::model::ByteSize;

use crate::{
    cli::doctor::check::{Examination, Finding},
    clock,
    disk_space::free_bytes_at,
    files::off_thread,
};

/// Permissions of others, which see journals and keys then.
const RIGHTS_OF_OTHERS: u32 = 0o077;
/// The reserve that is expected if the configuration cannot be read.
const DEFAULT_RESERVE: u64 = 100 << 20;
/// Multiple of the reserve below which a remark is due.
const COMFORT_FACTOR: u64 = 10;
/// Writes that are measured.
const SYNCS: usize = 9;
/// A disk that is slower than this, in microseconds, slows down every step of a run.
const SLOW_SYNC_US: i64 = 50_000;

/// Whether the state directory belongs to this user alone, and can be written.
pub(in crate::cli::doctor) fn state(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let path = match &examination.state {
            Ok(path) => path.clone(),
            Err(error) => {
                return vec![Finding::fail(
                    "state",
                    error.to_string(),
                    "set HERMOD_HOME to a folder of yours",
                )];
            }
        };
        let checked = off_thread(move || Ok(check_rights(&path))).await;
        vec![checked.unwrap_or_else(|error| Finding::fail("state", error.to_string(), "examine it again"))]
    }
    .boxed()
}

fn check_rights(path: &Path) -> Finding {
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return check_parent(path),
        Err(error) => {
            return Finding::fail(
                "state",
                format!("{shown}: {error}"),
                "set HERMOD_HOME to a folder of yours",
            );
        }
    };
    if !metadata.is_dir() {
        let remedy = "move it away, or set HERMOD_HOME to a folder";
        return Finding::fail("state", format!("{shown} is no folder"), remedy);
    }
    let (user, mode) = (rustix::process::geteuid().as_raw(), metadata.permissions().mode() & 0o7777);
    if metadata.uid() != user {
        let value = format!("{shown} belongs to user {}, and this is user {user}", metadata.uid());
        let remedy = format!("run hermod as its owner, or `sudo chown -R {user} '{shown}'`");
        return Finding::fail("state", value, remedy);
    }
    if mode & RIGHTS_OF_OTHERS != 0 {
        let value = format!("{shown} is open to other users (mode {mode:o})");
        return Finding::fail("state", value, format!("`chmod 700 '{shown}'`"));
    }
    match probe_file(path).and_then(fs::remove_file) {
        Ok(()) => Finding::ok("state", shown.to_string()),
        Err(error) => {
            let remedy = format!("`chmod u+rwx '{shown}'`, and see that its disk is not mounted read-only");
            Finding::fail("state", format!("{shown} cannot be written: {error}"), remedy)
        }
    }
}

/// Whether a state directory that is missing can be made.
fn check_parent(path: &Path) -> Finding {
    let shown = path.display();
    let existing = path.ancestors().skip(1).find(|parent| parent.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::access(existing, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::ok("state", format!("{shown} is made at the first run")),
        Err(error) => {
            let value = format!("{shown} cannot be made: {}: {error}", existing.display());
            Finding::fail("state", value, "set HERMOD_HOME to a folder of yours")
        }
    }
}

/// A new file in a folder.
fn probe_file(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join(format!("doctor-{}.part", std::process::id()));
    File::options().write(true).create_new(true).open(&path)?;
    Ok(path)
}

/// Whether there is space on the disk.
pub(in crate::cli::doctor) fn space(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let Some(path) = examination.existing_state() else {
            return vec![Finding::skipped("space", "there is no state directory yet")];
        };
        let reserve = examination.config.as_ref().map_or(DEFAULT_RESERVE, |config| config.store.reserve.0);
        let free = off_thread(move || free_bytes_at(&path)).await;
        let text = |bytes| ByteSize(bytes).to_string();
        vec![match free {
            Err(error) => Finding::warn("space", error.to_string(), "look at it with `df`"),
            Ok(None) => Finding::skipped("space", "the file system reports no size"),
            Ok(Some(free)) if free < reserve => {
                let value = format!("{} are free, and runs begin only with {}", text(free), text(reserve));
                let remedy = "make room: `hermod store footprint` shows what Hermod takes, `hermod gc` removes what is \
                              not needed; or set store.reserve to less";
                Finding::fail("space", value, remedy)
            }
            Ok(Some(free)) if free < reserve.saturating_mul(COMFORT_FACTOR) => {
                let value = format!("{} are free", text(free));
                Finding::warn("space", value, "make room: `hermod gc` removes what is not needed")
            }
            Ok(Some(free)) => Finding::ok("space", format!("{} are free", text(free))),
        }]
    }
    .boxed()
}

/// How long the disk takes to make a small write durable.
pub(in crate::cli::doctor) fn fsync(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let Some(path) = examination.existing_state() else {
            return vec![Finding::skipped("fsync", "there is no state directory yet")];
        };
        let measured = off_thread(move || measure_sync(&path)).await;
        vec![match measured {
            Err(error) => {
                let remedy = "see that the disk is not full or read-only, and no network file system";
                Finding::fail("fsync", format!("a file cannot be synced: {error}"), remedy)
            }
            Ok(median) if median > SLOW_SYNC_US => {
                let value = format!("a write takes {} until it is durable", milliseconds(median));
                let remedy = "set HERMOD_HOME to a folder on a local SSD: each step of a run waits for this";
                Finding::warn("fsync", value, remedy)
            }
            Ok(median) => {
                Finding::ok("fsync", format!("a write takes {} until it is durable", milliseconds(median)))
            }
        }]
    }
    .boxed()
}

fn milliseconds(us: i64) -> String {
    format!("{}.{} ms", us / 1_000, us % 1_000 / 100)
}

/// The median, in microseconds.
fn measure_sync(folder: &Path) -> io::Result<i64> {
    let path = probe_file(folder)?;
    let measured = (|| {
        let mut file = File::options().append(true).open(&path)?;
        let mut times = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            let start = clock::monotonic_us();
            file.write_all(&[0; 4096])?;
            file.sync_data()?;
            times.push(clock::monotonic_us().saturating_sub(start));
        }
        times.sort_unstable();
        Ok(times[SYNCS / 2])
    })();
    fs::remove_file(&path)?;
    measured
}
