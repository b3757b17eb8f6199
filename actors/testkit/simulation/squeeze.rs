//! Views that become too long: what fits, who makes them shorter, and what goes wrong with that.

use std::{sync::Arc, time::Duration};

use futures::future::pending;
use serde_json::Value;

use super::{
    answers::{came_to, plain},
    dice::Dice,
    generate::step,
    model::{Call, Endpoint},
    plan::{Mishap, RunPlan},
};
use crate::{
    model::{Answer, Compression, Failure, FailureClass, ModelTraits, RunSpec},
    port::ModelRequest,
};

/// So many plans of a hundred have views that become too long.
const SHARE: u64 = 25;
/// What a request for a summary begins with.
const BEGINS: [&str; 2] = ["# The conversation\n", "# The notes so far\n"];

/// How little fits into a view, and what comes of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Squeeze {
    /// The tokens that fit, if that is known.
    window: Option<u64>,
    /// Over so many bytes a provider refuses a request.
    refuses: Option<usize>,
    /// Whether it says then what fits.
    tells: bool,
    /// Whether models are asked for summaries.
    summarised: bool,
    /// Whether before a run has to wait for it.
    ahead: bool,
    protect_last: u32,
    /// What comes of the attempts at summaries, in the order in which they are made, and after how many milliseconds; those
    /// that follow go well.
    summaries: Vec<(u64, Option<Mishap>)>,
}

impl Squeeze {
    /// What a seed makes of views; runs are longer where they become too long.
    pub(super) fn of(seed: u64, runs: &mut [RunPlan]) -> Option<Self> {
        // Dice of its own: without it a plan is what it is in any case.
        let mut dice = Dice::new(seed.rotate_left(32) ^ u64::from(u32::MAX));
        if !dice.chance(SHARE) {
            return None;
        }
        for run in runs {
            (0..dice.below(5)).for_each(|_| run.steps.push(step(&mut dice, true)));
        }
        let window = dice.pick(&[Some(1_200), Some(2_000), Some(3_000), None]);
        let refuses = dice.pick(&[4_000, 6_000, 10_000]);
        Some(Self {
            window,
            refuses: (window.is_none() || dice.chance(25)).then_some(refuses),
            tells: dice.chance(50),
            summarised: dice.chance(85),
            ahead: dice.chance(60),
            protect_last: dice.pick(&[0, 4, 20]),
            summaries: (0..dice.below(6)).map(|_| summary(&mut dice)).collect(),
        })
    }

    /// What runs are told of it.
    pub(super) fn applies_to(&self, spec: &mut RunSpec) {
        let traits = vec![ModelTraits { window: self.window, ..ModelTraits::default() }; spec.chain.len()];
        spec.compression = Some(Arc::new(Compression {
            chain: if self.summarised { spec.chain.clone() } else { Vec::new() },
            traits: traits.clone(),
            trigger: 50,
            protect_last: self.protect_last,
            ahead: self.ahead,
        }));
        spec.traits = traits;
    }

    /// Why a request is refused, if it is too long.
    pub(super) fn refuses(&self, messages: &[Value]) -> Option<Failure> {
        let bytes: usize = messages.iter().map(|message| message.to_string().len()).sum();
        let most = self.refuses.filter(|most| bytes > *most)?;
        let limit = self.tells.then(|| u64::try_from(most / 4).unwrap_or(u64::MAX));
        Some(Failure::new(FailureClass::ContextTooLong { limit }, "planned"))
    }
}

fn summary(dice: &mut Dice) -> (u64, Option<Mishap>) {
    let mishap = dice.pick(&[
        None,
        None,
        None,
        Some(Mishap::RateLimited(Some(1_000))),
        Some(Mishap::Server),
        Some(Mishap::Network),
        Some(Mishap::Unreached),
        Some(Mishap::Reported(9)),
        Some(Mishap::Auth),
        Some(Mishap::Hang),
        Some(Mishap::Panic),
        Some(Mishap::Empty),
        Some(Mishap::UnknownTool),
        Some(Mishap::Babbles),
        Some(Mishap::NoUsage),
        Some(Mishap::WrongUsage),
    ]);
    (dice.pick(&[1, 300, 1_500, 8_000]), mishap)
}

/// The bytes that a call's result has beyond what it says.
pub(super) const fn padding(call: usize) -> usize {
    [0, 300, 700, 1_500][call % 4]
}

/// Answers a request for a summary.
pub(super) async fn summarises(
    endpoint: &Endpoint,
    request: ModelRequest,
    messages: &[Value],
) -> Result<Answer, Failure> {
    let Endpoint { plan, outside, .. } = endpoint;
    let text = messages.get(1).and_then(|message| message["text"].as_str()).unwrap_or_default();
    if messages.len() != 2 || !BEGINS.iter().any(|begin| text.starts_with(begin)) {
        outside.accuse("a summary is of the conversation", format!("{}: {messages:?}", request.call));
    }
    let call = Call::begin(outside, &request, Vec::new());
    if endpoint.is_endless() {
        return pending().await;
    }
    let nth = outside.count("summary".into());
    let planned = plan.squeeze.as_ref().and_then(|squeeze| squeeze.summaries.get(nth)).copied();
    let (ms, mishap) = planned.unwrap_or((20, None));
    if mishap.is_some() {
        outside.goes_wrong("model: no summary");
    }
    tokio::time::sleep(Duration::from_millis(ms)).await;
    if let Some(refused) = plan.squeeze.as_ref().and_then(|squeeze| squeeze.refuses(messages)) {
        outside.goes_wrong("model: too long a request");
        call.ends(None);
        return Err(refused);
    }
    if let Some(mishap) = mishap {
        outside.goes_wrong(mishap.name());
    }
    let whole = || plain(&format!("Notes {nth}."), request.max_tokens);
    let answered = match came_to(mishap, (0, 0), request.max_tokens, whole) {
        Some(answered) => answered,
        None if mishap == Some(Mishap::Panic) => panic!("planned: the provider panics"),
        None => pending().await,
    };
    call.ends(answered.as_ref().ok().and_then(|answer| answer.usage));
    answered
}
