//! Panics that are planned say nothing; others are noted.

use std::{
    cell::{Cell, RefCell},
    panic::PanicHookInfo,
    sync::Once,
};

thread_local! {
    static SIMULATES: Cell<bool> = const { Cell::new(false) };
    static UNPLANNED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// How the message of a planned panic begins.
const PLANNED: &str = "planned: ";
/// What an actor says that is struck.
const STRUCK: &str = "struck";

/// While it is there, panics of this thread are noted and not printed.
pub(super) struct Quiet(());

impl Quiet {
    pub(super) fn begin() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(
                move |info| {
                    if SIMULATES.get() { note(info) } else { before(info) }
                },
            ));
        });
        SIMULATES.set(true);
        Self(())
    }

    /// Ends it, and gives the panics that nobody has planned.
    pub(super) fn end(self) -> Vec<String> {
        drop(self);
        UNPLANNED.take()
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        SIMULATES.set(false);
    }
}

fn note(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a panic without words");
    if !message.starts_with(PLANNED) && message != STRUCK {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        UNPLANNED.with_borrow_mut(|unplanned| unplanned.push(format!("{message} at {place}")));
    }
}
