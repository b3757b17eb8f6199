//! Mutants: deliberate defects of this crate, each of which leaves out one step that a promise depends on. Tests show that
//! they detect it. The product enables none: there `mutant_enabled` is a constant.

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
    static ENABLED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether the mutant is enabled in this thread.
#[cfg(feature = "testkit")]
pub(crate) fn mutant_enabled(mutation: Mutant) -> bool {
    ENABLED.get() == Some(mutation)
}

/// The product has no mutants.
#[cfg(not(feature = "testkit"))]
pub(crate) const fn mutant_enabled(_: Mutant) -> bool {
    false
}

#[cfg(not(feature = "testkit"))]
const _: () = assert!(!mutant_enabled(Mutant::NoFence), "a mutant is enabled in the product");

#[cfg(feature = "testkit")]
impl Mutant {
    /// All mutants.
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

    /// Runs `what` with the mutant enabled in this thread, on which all of it must run.
    pub fn run_with<T>(self, what: impl FnOnce() -> T) -> T {
        struct RestoreMutant(Option<Mutant>);
        impl Drop for RestoreMutant {
            fn drop(&mut self) {
                ENABLED.set(self.0);
            }
        }
        let _before = RestoreMutant(ENABLED.replace(Some(self)));
        what()
    }
}
