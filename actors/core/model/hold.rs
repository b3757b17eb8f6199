//! What an accepted run waits for before it begins, besides the earlier runs of its session: the end of its quiet time,
//! a place in its lane, and the hooks that decide about it. Also the record with which it begins.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{HookDecision, HookRuling, RunId, Timestamp};

/// A class of runs. Each may have a limit of how many of its runs are under way at once.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Lane {
    /// Submitted runs.
    #[default]
    Main,
    /// Delegated runs.
    Subagent,
    /// Runs that begin at a time, without a person.
    Cron,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Self; 3] = [Self::Main, Self::Subagent, Self::Cron];

    /// The name, as in records and in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Most runs of each lane that may be under way at once; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneLimits {
    /// Of [`Lane::Main`].
    pub main: Option<u32>,
    /// Of [`Lane::Subagent`].
    pub subagent: Option<u32>,
    /// Of [`Lane::Cron`].
    pub cron: Option<u32>,
}

impl LaneLimits {
    /// The limit of a lane.
    pub const fn get(&self, lane: Lane) -> Option<u32> {
        match lane {
            Lane::Main => self.main,
            Lane::Subagent => self.subagent,
            Lane::Cron => self.cron,
        }
    }
}

/// What runs wait for that are accepted from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BeginRules {
    /// Runs of a lane with a limit wait for a place in it.
    pub lanes: LaneLimits,
    /// Hooks are asked before a run begins.
    pub are_hooks_asked: bool,
}

impl BeginRules {
    /// The hold of a run in this lane; `None` if it waits for nothing.
    pub fn hold(&self, lane: Lane, until: Option<Timestamp>) -> Option<Hold> {
        let lane = self.lanes.get(lane).map(|_| lane);
        Some(Hold { until, lane, hooks: self.are_hooks_asked }).filter(|hold| *hold != Hold::default())
    }
}

/// What an accepted run waits for before it may begin, besides the earlier runs of its session. `run.begun` ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Hold {
    /// The end of the time in which it collects messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The lane in which it needs a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// Whether hooks have to allow it.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub hooks: bool,
}

impl Hold {
    /// Whether the time in which the run collects messages is over.
    pub fn has_collected(&self, at: Timestamp) -> bool {
        self.until.is_none_or(|until| until <= at)
    }

    /// Whether the run needs more than time: a place, or the verdict of hooks.
    pub const fn needs_permission(&self) -> bool {
        self.lane.is_some() || self.hooks
    }
}

/// Fields of [`Body::RunBegun`](super::Body::RunBegun).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBegun {
    /// The run.
    pub run: RunId,
    /// What hooks have decided about it, if any was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Arc<HookedRun>>,
}

/// The decisions of the hooks that were asked about a run, and what they have changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HookedRun {
    /// The decisions, in the order in which the hooks were asked.
    pub decisions: Arc<[HookDecision]>,
    /// The text that replaces the task and the collected messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Arc<str>>,
    /// What the model reads behind the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Arc<str>>,
}

impl HookedRun {
    /// The sentence that names the refusing hook and its reason, if one refuses.
    pub fn refusal_text(&self) -> Option<String> {
        let refusal = self.decisions.iter().find(|decision| decision.ruling == HookRuling::Refused);
        refusal.map(HookDecision::refusal_text)
    }
}
