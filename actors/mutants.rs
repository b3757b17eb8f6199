//! The wrong twins of this crate: each leaves out one thing that a promise hangs on, so that tests can show that they find
//! it. Nothing is ever planted in the product: there `planted` is a constant.

/// A promise that can be broken on purpose, in the thread of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Persistence vouches for an append before its commit.
    AcknowledgeEarly,
    /// A call in doubt that must not be repeated silently is repeated.
    RepeatInDoubt,
    /// What an earlier incarnation, or an earlier process, still sends is written.
    NoFence,
    /// A run's terminal record is left out, while its row says that it has ended.
    NoEnd,
    /// The row of a run stays open, while its terminal record is written.
    NoEndRow,
    /// What waits in an inbox is gone once it was shown, taken in or not.
    ForgetInbox,
    /// What was taken out of an inbox stays in it.
    RepeatInbox,
    /// A call starts without a reservation; only its end is debited.
    DebitLate,
    /// What a late answer has cost is dropped, and its reservation given back.
    DropLateUsage,
    /// A session is revived beside the tasks of its last incarnation.
    ReviveEarly,
    /// After a revival effects begin before the revival is durable.
    DueEarly,
}

#[cfg(feature = "testkit")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this is planted in the present thread.
#[cfg(feature = "testkit")]
pub(crate) fn mutant_enabled(mutation: Mutant) -> bool {
    PLANTED.get() == Some(mutation)
}

/// Nothing is.
#[cfg(not(feature = "testkit"))]
pub(crate) const fn planted(_: Mutant) -> bool {
    false
}

#[cfg(not(feature = "testkit"))]
const _: () = assert!(!planted(Mutation::NoFence), "planted in the product");

#[cfg(feature = "testkit")]
impl Mutant {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::AcknowledgeEarly,
        Self::RepeatInDoubt,
        Self::NoFence,
        Self::NoEnd,
        Self::NoEndRow,
        Self::ForgetInbox,
        Self::RepeatInbox,
        Self::DebitLate,
        Self::DropLateUsage,
        Self::ReviveEarly,
        Self::DueEarly,
    ];

    /// Does something with this planted in the present thread, on which all of it must run.
    pub fn run_with<T>(self, what: impl FnOnce() -> T) -> T {
        struct RestoreMutant(Option<Mutant>);
        impl Drop for RestoreMutant {
            fn drop(&mut self) {
                PLANTED.set(self.0);
            }
        }
        let _before = RestoreMutant(PLANTED.replace(Some(self)));
        what()
    }
}
