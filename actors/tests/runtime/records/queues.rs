//! Modes of queues and what sessions set of them, as records keep them.

use hermod_actors::model::{DropPolicy, QueueMode, QueueOverrides, Queueing};
use proptest::{prelude::*, sample::select};

use super::values::{Made, maybe};

pub(crate) fn queue_overrides() -> Made<QueueOverrides> {
    let drop = maybe(select(DropPolicy::ALL.to_vec()).boxed());
    (
        maybe(select(QueueMode::ALL.to_vec()).boxed()),
        maybe(any::<u32>().boxed()),
        drop,
        maybe(any::<u64>().boxed()),
    )
        .prop_map(|(mode, cap, drop, collect_ms)| QueueOverrides { mode, cap, drop, collect_ms })
        .boxed()
}

pub(crate) fn queueing() -> Made<Queueing> {
    let drop = select(DropPolicy::ALL.to_vec());
    (select(QueueMode::ALL.to_vec()), any::<u32>(), drop, any::<u64>())
        .prop_map(|(mode, cap, drop, collect_ms)| Queueing { mode, cap, drop, collect_ms })
        .boxed()
}
