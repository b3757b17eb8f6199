/// It was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it was stopped")]
pub struct StoppedError;

/// Hears of every so many bytes that were worked through; may wait, or say that it is enough.
pub type ThrottleFn<'p> = dyn FnMut(usize) -> Result<(), StoppedError> + 'p;
