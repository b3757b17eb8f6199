//! Counts what is open at the moment.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Number of the open things of one kind. A clone counts the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveCount(Arc<AtomicU64>);

/// Counts one open thing until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(LiveCount);

impl LiveCount {
    /// Counts one more until the returned value is dropped.
    pub(crate) fn enter(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_counted_no_more() {
        let count = LiveCount::default();
        let (first, second) = (count.enter(), count.clone().enter());
        assert_eq!(count.get(), 2);
        drop(first);
        assert_eq!(count.get(), 1);
        drop(second);
        assert_eq!(count.get(), 0);
    }
}
