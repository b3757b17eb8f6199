//! Room on a disk: how much is free, what is kept free, and which errors say that there is none.

use std::{
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::{model::LowDiskSpace, port::DiskSpaceGauge};
use rustix::{
    fs::{StatVfs, fstatvfs, statvfs},
    io::Errno,
};
use tokio::{sync::Mutex, task::spawn_blocking};

/// For so long what was seen is believed.
const CACHE_TTL: Duration = Duration::from_secs(1);
/// What outputs leave of a disk, so that there is room to record that their calls have ended ...
const OUTPUT_RESERVE_BYTES: u64 = 16 << 20;
/// ... or, of a small one, one part of so many.
const OUTPUT_RESERVE_DIVISOR: u64 = 16;

/// Whether an error says that there is no room: on the disk, or for this user on it.
pub fn is_full(error: &io::Error) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    error.raw_os_error().map_or(error.kind() == io::ErrorKind::StorageFull, |code| full.contains(&code))
}

/// Refuses so many bytes of an output, as a full disk does, if they would take what is left for records.
pub fn check_reserve(file: impl AsFd, bytes: usize) -> io::Result<()> {
    if missing_bytes(file, bytes as u64)? == 0 { Ok(()) } else { Err(Errno::NOSPC.into()) }
}

/// The bytes that must become free on the disk of a file or folder, so that so many more leave what is left for records.
pub fn missing_bytes(file: impl AsFd, bytes: u64) -> io::Result<u64> {
    let seen = fstatvfs(file)?;
    let whole = seen.f_blocks.saturating_mul(seen.f_frsize);
    let left = OUTPUT_RESERVE_BYTES.min(whole / OUTPUT_RESERVE_DIVISOR);
    // A file system that does not say how large it is says nothing of what is free.
    Ok(if whole == 0 { 0 } else { left.saturating_add(bytes).saturating_sub(free_bytes(&seen)) })
}

fn free_bytes(seen: &StatVfs) -> u64 {
    seen.f_bavail.saturating_mul(seen.f_frsize)
}

/// What was seen last, and when.
type CachedShortage = Option<(tokio::time::Instant, Option<LowDiskSpace>)>;

/// Holds what is free where a path is against a reserve.
#[derive(Debug)]
pub struct DiskSpaceMonitor {
    path: PathBuf,
    reserve: u64,
    seen: Arc<Mutex<CachedShortage>>,
}

impl DiskSpaceMonitor {
    /// With less than `reserve` bytes free at `path` there is a shortage; never with a reserve of 0.
    pub fn new(path: &Path, reserve: u64) -> Self {
        Self { path: path.to_owned(), reserve, seen: Arc::default() }
    }
}

impl DiskSpaceGauge for DiskSpaceMonitor {
    fn low_disk_space(&self) -> BoxFuture<'static, Option<LowDiskSpace>> {
        let (path, reserve, seen) = (self.path.clone(), self.reserve, Arc::clone(&self.seen));
        async move {
            if reserve == 0 {
                return None;
            }
            // Who comes while it is looked at waits for that.
            let mut seen = seen.lock().await;
            let now = tokio::time::Instant::now();
            if let Some((at, shortage)) = &*seen
                && now.duration_since(*at) < CACHE_TTL
            {
                return shortage.clone();
            }
            let shortage = spawn_blocking(move || measure(&path, reserve)).await.ok().flatten();
            *seen = Some((now, shortage.clone()));
            shortage
        }
        .boxed()
    }
}

fn measure(path: &Path, reserve: u64) -> Option<LowDiskSpace> {
    match statvfs(path) {
        Ok(seen) if seen.f_blocks > 0 => {
            let (free, path) = (free_bytes(&seen), path.display().to_string());
            (free < reserve).then_some(LowDiskSpace { path, free, reserve })
        }
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "it cannot be seen how much room is left");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_that_there_is_no_room() {
        let check = |error: io::Error, full| assert_eq!(is_full(&error), full, "{error}");
        check(Errno::NOSPC.into(), true);
        check(Errno::DQUOT.into(), true);
        check(io::ErrorKind::StorageFull.into(), true);
        check(Errno::FBIG.into(), false);
        check(Errno::IO.into(), false);
        check(io::ErrorKind::NotFound.into(), false);
    }

    #[tokio::test]
    async fn a_shortage_is_seen_and_believed_for_a_second() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(DiskSpaceMonitor::new(dir.path(), 0).low_disk_space().await, None);
        assert_eq!(DiskSpaceMonitor::new(dir.path(), 1).low_disk_space().await, None);
        let all = DiskSpaceMonitor::new(dir.path(), u64::MAX);
        let shortage = all.low_disk_space().await.expect("no disk has so much");
        assert_eq!((shortage.path, shortage.reserve), (dir.path().display().to_string(), u64::MAX));
        drop(dir);
        assert!(all.low_disk_space().await.is_some(), "it was not looked at again");
    }

    #[test]
    fn outputs_leave_room() {
        let file = tempfile::tempfile().unwrap();
        check_reserve(&file, 1).unwrap();
        assert!(is_full(&check_reserve(&file, usize::MAX / 2).unwrap_err()));
        assert_eq!(missing_bytes(&file, 1).unwrap(), 0);
        let seen = fstatvfs(&file).unwrap();
        let more = missing_bytes(&file, u64::MAX / 2).unwrap();
        assert!(more > u64::MAX / 2 - seen.f_blocks * seen.f_frsize, "{more}");
    }
}
