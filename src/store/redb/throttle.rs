//! The callback with which a caller slows down or stops a long operation on the store.

/// The throttle callback asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it was stopped")]
pub struct StoppedError;

/// Called with the bytes processed since the last call; may wait, and returns an error to stop.
pub type ThrottleFn<'p> = dyn FnMut(usize) -> Result<(), StoppedError> + 'p;
