//! The part of a scrape about messages to sessions, messages to targets, and hooks.

use hermod_actors::model::Timestamp;

use super::{
    exposition::Exposition, message_counts::CountedMessages, outbox_counts::OutboxCounts, scrape::seconds,
};
use crate::{
    hooks::ConfiguredHooks,
    view::{HookStateView, HookView},
};

pub(super) fn add_messages(to: &mut Exposition, messages: &CountedMessages) {
    to.counter("hermod_messages_accepted", "Accepted messages to sessions, by mode.")
        .by("mode", messages.accepted.clone());
    to.counter(
        "hermod_messages_ended",
        "Messages of this process that were answered, dropped because too many waited, or whose run failed.",
    )
    .by("fate", messages.ended.clone());
    to.gauge("hermod_messages_queued", "Messages of this process that no model has read.")
        .is(messages.queued());
}

pub(super) fn add_deliveries(to: &mut Exposition, outbox: &OutboxCounts, now: Timestamp) {
    let targets = outbox.targets();
    to.gauge("hermod_deliveries_pending", "Messages that wait for their target.")
        .by("target", targets.iter().map(|(name, counts)| (name, counts.pending())));
    to.gauge("hermod_deliveries_dead", "Messages that were given up, and wait for a person.")
        .by("target", targets.iter().map(|(name, counts)| (name, counts.dead)));
    let age = |at: Option<Timestamp>| at.map_or(0.0, |at| seconds(at, now));
    to.gauge("hermod_delivery_oldest_age_seconds", "Age of the oldest message that waits for its target.")
        .by("target", targets.iter().map(|(name, counts)| (name, age(counts.oldest()))));
    to.counter("hermod_delivery_attempts", "Ended attempts to deliver a message.")
        .by("target", targets.iter().map(|(name, counts)| (name, counts.attempts)));
    let ended = to.counter("hermod_deliveries_ended", "Messages that were delivered or given up.");
    targets.iter().fold(ended, |series, (target, counts)| {
        series
            .sample([("target", target), ("state", "delivered")], counts.delivered)
            .sample([("target", target), ("state", "dead")], counts.given_up)
    });
}

pub(super) fn add_hooks(to: &mut Exposition, hooks: &ConfiguredHooks) {
    let views: Vec<HookView> = hooks.hooks().iter().map(|hook| hook.view()).collect();
    let of = |value: fn(&HookView) -> u64| views.iter().map(move |view| (&view.name, value(view)));
    to.counter("hermod_hook_calls", "Calls of hooks that have ended, since the last reload.")
        .by("hook", of(|view| view.calls));
    to.counter("hermod_hook_failures", "Calls of hooks without a verdict, or of observers that failed.")
        .by("hook", of(|view| view.failures));
    to.counter("hermod_hook_refusals", "Verdicts of hooks that refuse.").by("hook", of(|view| view.refusals));
    to.gauge(
        "hermod_hook_events_skipped",
        "Events that were given up, and of which a hook was not told later.",
    )
    .by("hook", of(|view| view.skipped));
    to.gauge("hermod_hook_disabled", "1 while a hook is not called, because it has failed too often.")
        .by("hook", of(|view| u64::from(view.state == Some(HookStateView::Disabled))));
}
