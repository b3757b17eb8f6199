//! The name of the control socket, and its path within the kernel's length limit.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

/// The socket, in the state directory.
pub(super) const SOCKET: &str = "control.sock";
/// The kernel's limit is 108 bytes, including the closing NUL.
const MAX_PATH_BYTES: usize = 107;

/// Whether clients find the socket of the process that owns the store in `state`.
pub(crate) fn is_reachable(state: &Path) -> bool {
    state.join(SOCKET).exists()
}

/// A path that is short enough for a socket.
#[derive(Debug)]
pub(super) struct SocketPath {
    path: PathBuf,
    /// The descriptor in `path`; it must stay open as long as the path is used.
    _folder: Option<OwnedFd>,
}

impl SocketPath {
    /// The path of `name` in `state`. A path above the limit goes through an open descriptor of the folder.
    pub(super) fn new(state: &Path, name: &str) -> io::Result<Self> {
        let path = state.join(name);
        if path.as_os_str().len() <= MAX_PATH_BYTES {
            return Ok(Self { path, _folder: None });
        }
        let folder =
            rustix::fs::open(state, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_may_lie_deep() {
        let dir = tempfile::tempdir().unwrap();
        for depth in [1, 200] {
            let state = dir.path().join("d".repeat(depth));
            std::fs::create_dir(&state).unwrap();
            let socket = || SocketPath::new(&state, SOCKET).unwrap();
            assert!(socket().path().as_os_str().len() <= MAX_PATH_BYTES);
            let listener = UnixListener::bind(socket().path()).unwrap();
            UnixStream::connect(socket().path()).unwrap();
            drop(listener);
            assert!(state.join(SOCKET).exists());
        }
    }
}
