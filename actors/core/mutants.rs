//! Deliberate defects of the core, the actors and the journal in memory. Each breaks one guarantee, so that tests can
//! show that they detect it. Without the feature `mutants` no defect exists: the check is a constant.

/// A deliberate defect, enabled in the thread of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Persistence marks an append as durable before its commit.
    AcknowledgeEarly,
    /// A call in doubt that must not be repeated silently is repeated.
    RepeatInDoubt,
    /// Writes of an earlier incarnation or process are accepted.
    NoFence,
    /// A run's terminal record is left out, while its row is marked as ended.
    NoEnd,
    /// The row of a run stays open, while its terminal record is written.
    NoEndRow,
    /// A row of an inbox is deleted once it was read, consumed or not.
    ForgetInbox,
    /// A consumed row of an inbox is not deleted.
    RepeatInbox,
    /// A model or tool call starts without a reservation; only its end is debited.
    DebitLate,
    /// The usage of a late model answer is dropped, and its reservation is returned.
    DropLateUsage,
    /// A session is revived beside the tasks of its last incarnation.
    ReviveEarly,
    /// After a revival, actions start before the revival is durable.
    DueEarly,
    /// A call that needs a person's approval starts without it.
    StartUnapproved,
    /// Repeated tool calls are not noticed.
    IgnoreLoops,
    /// A run completes although its expectations were not checked.
    SkipVerification,
    /// An occurrence of a schedule that has a run gets another one.
    RepeatOccurrence,
    /// The next time of a schedule advances before the run of its occurrence is accepted.
    AdvanceEarly,
    /// The jitter of an occurrence is drawn anew by each look at it.
    RandomJitter,
}

#[cfg(feature = "mutants")]
thread_local! {
    static ENABLED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this mutant is enabled in the current thread.
#[cfg(feature = "mutants")]
pub fn mutant_enabled(mutation: Mutant) -> bool {
    ENABLED.get() == Some(mutation)
}

/// Always false: the product has no mutants.
#[cfg(not(feature = "mutants"))]
pub const fn mutant_enabled(_: Mutant) -> bool {
    false
}

#[cfg(not(feature = "mutants"))]
const _: () = assert!(!mutant_enabled(Mutant::NoFence), "a mutant is enabled in the product");

#[cfg(feature = "mutants")]
impl Mutant {
    /// All mutants but those of schedules.
    pub const ALL: [Self; 14] = [
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
        Self::StartUnapproved,
        Self::IgnoreLoops,
        Self::SkipVerification,
    ];

    /// The mutants of schedules, which the simulation of schedules finds.
    pub const OF_SCHEDULES: [Self; 3] = [Self::RepeatOccurrence, Self::AdvanceEarly, Self::RandomJitter];

    /// Runs `what` with this mutant enabled in the current thread; all of `what` must run on that thread.
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
