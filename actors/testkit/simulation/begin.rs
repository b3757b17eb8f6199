//! What runs of a plan wait for before they begin: places in lanes, and hooks that take time and refuse.

use std::time::Duration;

use futures::future::BoxFuture;
use hermod_actors::{
    HookTally,
    model::{HookAnswer, HookPoint, HookVerdict, LaneLimits},
    port::{DecisionHooks, HookQuestion},
};
use serde_json::json;

use super::seeded_rng::SeededRng;

/// What the runs of a plan wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BeginPlan {
    /// The limits of lanes.
    pub(super) lanes: LaneLimits,
    /// Whether hooks are asked.
    pub(super) are_hooks_asked: bool,
    seed: u64,
}

impl BeginPlan {
    /// Whether any run may have to wait.
    pub(super) fn has_rules(&self) -> bool {
        self.lanes != LaneLimits::default() || self.are_hooks_asked
    }

    /// The plan of a seed.
    pub(super) fn of(seed: u64) -> Self {
        // A generator of its own: the draws here leave the draws of the rest of the plan unchanged.
        let mut dice = SeededRng::new(seed.rotate_left(24) ^ u64::from(u16::MAX));
        let mut limit = |percent| dice.chance(percent).then(|| u32::from(dice.chance(50)) + 1);
        let lanes = LaneLimits { main: limit(20), subagent: limit(20), cron: None };
        Self { lanes, are_hooks_asked: dice.chance(20), seed }
    }
}

impl DecisionHooks for BeginPlan {
    fn is_asked(&self, point: HookPoint, _: Option<&str>) -> bool {
        self.are_hooks_asked && point == HookPoint::BeforeRun
    }

    fn ask(&self, question: HookQuestion) -> BoxFuture<'static, HookAnswer> {
        let run = question.id.call.run.bits();
        // The ids of runs have their time in the upper bits.
        let mut dice = SeededRng::new(self.seed ^ u64::try_from(run & u128::from(u64::MAX)).unwrap_or(0));
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(dice.pick(&[0, 1, 50, 2_000]))).await;
            let verdict = match dice.below(10) {
                0 => HookVerdict::Refuse("not this one".to_owned()),
                1..=3 => HookVerdict::Replace(json!({ "context": "from a hook" })),
                _ => HookVerdict::Allow,
            };
            let mut tally = HookTally::new(HookPoint::BeforeRun);
            tally.take(&"begin".into(), Ok(verdict));
            tally.into_answer()
        })
    }
}
