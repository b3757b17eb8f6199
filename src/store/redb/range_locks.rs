//! Locks of ranges of the store's file, which a storage backend around another one passes on.

/// The methods of `StorageBackend` that lock ranges, forwarded to the field `$inner`.
macro_rules! forward_range_locks {
    ($inner:ident) => {
        fn try_lock_range(
            &self,
            start: std::ops::Bound<u64>,
            end: std::ops::Bound<u64>,
        ) -> Result<bool, redb::BackendError> {
            self.$inner.try_lock_range(start, end)
        }

        fn try_lock_shared_range(
            &self,
            start: std::ops::Bound<u64>,
            end: std::ops::Bound<u64>,
        ) -> Result<bool, redb::BackendError> {
            self.$inner.try_lock_shared_range(start, end)
        }

        fn lock_range(
            &self,
            start: std::ops::Bound<u64>,
            end: std::ops::Bound<u64>,
        ) -> Result<(), redb::BackendError> {
            self.$inner.lock_range(start, end)
        }

        fn lock_shared_range(
            &self,
            start: std::ops::Bound<u64>,
            end: std::ops::Bound<u64>,
        ) -> Result<(), redb::BackendError> {
            self.$inner.lock_shared_range(start, end)
        }

        fn unlock_range(
            &self,
            start: std::ops::Bound<u64>,
            end: std::ops::Bound<u64>,
        ) -> Result<(), redb::BackendError> {
            self.$inner.unlock_range(start, end)
        }

        fn query_lock_range(
            &self,
            start: std::ops::Bound<u64>,
            end: std::ops::Bound<u64>,
        ) -> Result<bool, redb::BackendError> {
            self.$inner.query_lock_range(start, end)
        }
    };
}

pub(super) use forward_range_locks;
