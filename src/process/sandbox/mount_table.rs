//! Sees whether something was mounted or unmounted. What is mounted later is not read-only in a namespace that was made
//! before.

use std::{fs::File, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The mounts of this process's namespace, from the opening on.
#[derive(Debug)]
pub(super) struct MountTable(File);

impl MountTable {
    pub(super) fn open() -> io::Result<Self> {
        File::open("/proc/self/mountinfo").map(Self)
    }

    /// True if they have changed since the last call, or if that cannot be seen. A fork of this process takes changes from
    /// it if it calls this.
    pub(super) fn has_changed(&self) -> bool {
        let mut changes = [PollFd::new(&self.0, PollFlags::PRI)];
        let polled = poll(&mut changes, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_err() || changes[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
    }
}
