//! Panic hook of a simulation: planned panics are ignored, others are recorded. Neither is printed.

use std::{
    cell::{Cell, RefCell},
    panic::PanicHookInfo,
    sync::Once,
};

thread_local! {
    static SIMULATES: Cell<bool> = const { Cell::new(false) };
    static UNPLANNED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Prefix of a planned panic's message.
const PLANNED_PREFIX: &str = "planned: ";
/// Panic message of an actor with an injected fault.
const INJECTED_MESSAGE: &str = "struck";

/// Until it is dropped, unplanned panics of this thread are recorded, and no panic of it is printed.
pub(super) struct PanicCapture(());

impl PanicCapture {
    pub(super) fn start() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(
                move |info| {
                    if SIMULATES.get() { record(info) } else { before(info) }
                },
            ));
        });
        SIMULATES.set(true);
        Self(())
    }

    /// Ends the capture and returns the unplanned panics.
    pub(super) fn finish(self) -> Vec<String> {
        drop(self);
        UNPLANNED.take()
    }
}

impl Drop for PanicCapture {
    fn drop(&mut self) {
        SIMULATES.set(false);
    }
}

fn record(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a panic without words");
    if !message.starts_with(PLANNED_PREFIX) && message != INJECTED_MESSAGE {
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        UNPLANNED.with_borrow_mut(|unplanned| unplanned.push(format!("{message} at {location}")));
    }
}
