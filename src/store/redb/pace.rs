/// It was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it was stopped")]
pub struct Stopped;

/// Hears of every so many bytes that were worked through; may wait, or say that it is enough.
pub type Pace<'p> = dyn FnMut(usize) -> Result<(), Stopped> + 'p;
