//! Free disk space: the reserve that outputs leave for records, the reserve that a new run needs, and whether an error
//! means a full disk. `control/disk_full.rs` tells the user.

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

/// A measurement is reused for this long.
const CACHE_TTL: Duration = Duration::from_secs(1);
/// Bytes that outputs leave free on a disk, so that the ends of their calls can still be recorded.
const OUTPUT_RESERVE_BYTES: u64 = 16 << 20;
/// On a small disk outputs leave the disk's size divided by this, if that is less.
const OUTPUT_RESERVE_DIVISOR: u64 = 16;

/// True if the error reports a full disk or an exhausted disk quota of this user.
pub fn is_full(error: &io::Error) -> bool {
    let codes = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    error.raw_os_error().map_or(error.kind() == io::ErrorKind::StorageFull, |code| codes.contains(&code))
}

/// Fails like a full disk if `bytes` more bytes of output would use up the space left for records.
pub fn check_reserve(file: impl AsFd, bytes: usize) -> io::Result<()> {
    if missing_bytes(file, bytes as u64)? == 0 { Ok(()) } else { Err(Errno::NOSPC.into()) }
}

/// Bytes that must become free on the disk of `file`, so that `bytes` more still leave the space for records.
pub fn missing_bytes(file: impl AsFd, bytes: u64) -> io::Result<u64> {
    let stats = fstatvfs(file)?;
    let total = stats.f_blocks.saturating_mul(stats.f_frsize);
    let reserve = OUTPUT_RESERVE_BYTES.min(total / OUTPUT_RESERVE_DIVISOR);
    // A file system that reports no size reports no usable free space either.
    Ok(if total == 0 { 0 } else { reserve.saturating_add(bytes).saturating_sub(free_bytes(&stats)) })
}

fn free_bytes(stats: &StatVfs) -> u64 {
    stats.f_bavail.saturating_mul(stats.f_frsize)
}

/// The last measurement and its time.
type CachedShortage = Option<(tokio::time::Instant, Option<LowDiskSpace>)>;

/// Free bytes on the disk of a path, for this user; `None` if the file system reports no size.
pub fn free_bytes_at(path: &Path) -> io::Result<Option<u64>> {
    let stats = statvfs(path)?;
    Ok((stats.f_blocks > 0).then(|| free_bytes(&stats)))
}

/// Compares the free bytes on the disk of a path with a reserve.
#[derive(Debug)]
pub struct DiskSpaceMonitor {
    path: PathBuf,
    reserve: u64,
    cached: Arc<Mutex<CachedShortage>>,
}

impl DiskSpaceMonitor {
    /// Reports a shortage while less than `reserve` bytes are free at `path`; never with a reserve of 0.
    pub fn new(path: &Path, reserve: u64) -> Self {
        Self { path: path.to_owned(), reserve, cached: Arc::default() }
    }
}

impl DiskSpaceGauge for DiskSpaceMonitor {
    fn low_disk_space(&self) -> BoxFuture<'static, Option<LowDiskSpace>> {
        let (path, reserve, cached) = (self.path.clone(), self.reserve, Arc::clone(&self.cached));
        async move {
            if reserve == 0 {
                return None;
            }
            // The lock is held during a measurement, so that concurrent callers share its result.
            let mut cached = cached.lock().await;
            let now = tokio::time::Instant::now();
            if let Some((measured_at, shortage)) = &*cached
                && now.duration_since(*measured_at) < CACHE_TTL
            {
                return shortage.clone();
            }
            let shortage = spawn_blocking(move || measure(&path, reserve)).await.ok().flatten();
            *cached = Some((now, shortage.clone()));
            shortage
        }
        .boxed()
    }
}

fn measure(path: &Path, reserve: u64) -> Option<LowDiskSpace> {
    match statvfs(path) {
        Ok(stats) if stats.f_blocks > 0 => {
            let (free, path) = (free_bytes(&stats), path.display().to_string());
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
