//! Context pressure in plans: views that become too long, the limits of requests, and the answers to requests for
//! summaries with their faults.

use std::{sync::Arc, time::Duration};

use futures::future::pending;
use serde_json::Value;

use super::{
    answers::{answer_or_fault, text_answer},
    generate::step,
    model::{ServedCallGuard, SimulatedProvider},
    plan::{ModelFault, RunPlan},
    seeded_rng::SeededRng,
};
use hermod_actors::{
    model::{CompactionPolicy, Failure, FailureClass, ModelAnswer, ModelProfile, RunSpec},
    port::ModelRequest,
};

/// Percentage of plans that have views that become too long.
const PERCENT_OF_PLANS: u64 = 25;
/// The beginnings of requests for a summary.
const SUMMARY_PREFIXES: [&str; 2] = ["# The conversation\n", "# The notes so far\n"];

/// The limits of requests in a plan whose views become too long, and its compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContextPressure {
    /// The context window in tokens, if it is known.
    window: Option<u64>,
    /// A provider refuses a request with more bytes than this.
    max_request_bytes: Option<usize>,
    /// Whether such a refusal reports the limit.
    reports_limit: bool,
    /// Whether models are asked for summaries.
    summarised: bool,
    /// Whether compaction begins before a run has to wait for it.
    ahead: bool,
    protect_last: u32,
    /// The duration in milliseconds and the fault of each attempt at a summary, in order. All further attempts succeed.
    summaries: Vec<(u64, Option<ModelFault>)>,
}

impl ContextPressure {
    /// The context pressure of a seed, if it has any. Adds steps to the runs then, so that views become too long.
    pub(super) fn of(seed: u64, runs: &mut [RunPlan]) -> Option<Self> {
        // A generator of its own: the draws here leave the draws of the rest of the plan unchanged.
        let mut dice = SeededRng::new(seed.rotate_left(32) ^ u64::from(u32::MAX));
        if !dice.chance(PERCENT_OF_PLANS) {
            return None;
        }
        for run in runs {
            (0..dice.below(5)).for_each(|_| run.steps.push(step(&mut dice, true)));
        }
        let window = dice.pick(&[Some(1_200), Some(2_000), Some(3_000), None]);
        let refuses = dice.pick(&[4_000, 6_000, 10_000]);
        Some(Self {
            window,
            max_request_bytes: (window.is_none() || dice.chance(25)).then_some(refuses),
            reports_limit: dice.chance(50),
            summarised: dice.chance(85),
            ahead: dice.chance(60),
            protect_last: dice.pick(&[0, 4, 20]),
            summaries: (0..dice.below(6)).map(|_| planned_summary(&mut dice)).collect(),
        })
    }

    /// Sets the model profiles and the compaction policy of a run.
    pub(super) fn apply_to(&self, spec: &mut RunSpec) {
        let traits = vec![ModelProfile { window: self.window, ..ModelProfile::default() }; spec.chain.len()];
        spec.compaction = Some(Arc::new(CompactionPolicy {
            chain: if self.summarised { spec.chain.clone() } else { Vec::new() },
            profiles: traits.clone(),
            trigger: 50,
            protect_last: self.protect_last,
            ahead: self.ahead,
        }));
        spec.profiles = traits;
    }

    /// The failure of a request that is too long.
    pub(super) fn refusal(&self, messages: &[Value]) -> Option<Failure> {
        let bytes: usize = messages.iter().map(|message| message.to_string().len()).sum();
        let max_bytes = self.max_request_bytes.filter(|max_bytes| bytes > *max_bytes)?;
        let limit = self.reports_limit.then(|| u64::try_from(max_bytes / 4).unwrap_or(u64::MAX));
        Some(Failure::new(FailureClass::ContextTooLong { limit }, "planned"))
    }
}

fn planned_summary(dice: &mut SeededRng) -> (u64, Option<ModelFault>) {
    let mishap = dice.pick(&[
        None,
        None,
        None,
        Some(ModelFault::RateLimited(Some(1_000))),
        Some(ModelFault::Server),
        Some(ModelFault::Network),
        Some(ModelFault::NotConnected),
        Some(ModelFault::FailedWithUsage(9)),
        Some(ModelFault::Auth),
        Some(ModelFault::Hang),
        Some(ModelFault::Panic),
        Some(ModelFault::Empty),
        Some(ModelFault::UnknownTool),
        Some(ModelFault::TooLong),
        Some(ModelFault::NoUsage),
        Some(ModelFault::WrongUsage),
    ]);
    (dice.pick(&[1, 300, 1_500, 8_000]), mishap)
}

/// Bytes of padding in the result of a call.
pub(super) const fn padding(call: usize) -> usize {
    [0, 300, 700, 1_500][call % 4]
}

/// Answers a request for a summary.
pub(super) async fn answer_summary(
    endpoint: &SimulatedProvider,
    request: ModelRequest,
    messages: &[Value],
) -> Result<ModelAnswer, Failure> {
    let SimulatedProvider { plan, outside, .. } = endpoint;
    let text = messages.get(1).and_then(|message| message["text"].as_str()).unwrap_or_default();
    if messages.len() != 2 || !SUMMARY_PREFIXES.iter().any(|begin| text.starts_with(begin)) {
        outside
            .report_violation("a summary is of the conversation", format!("{}: {messages:?}", request.call));
    }
    let call = ServedCallGuard::start(outside, &request, Vec::new());
    if endpoint.is_endless() {
        return pending().await;
    }
    let nth = outside.count("summary".into());
    let planned = plan.context_pressure.as_ref().and_then(|squeeze| squeeze.summaries.get(nth)).copied();
    let (ms, mishap) = planned.unwrap_or((20, None));
    if mishap.is_some() {
        outside.record_fault("model: no summary");
    }
    tokio::time::sleep(Duration::from_millis(ms)).await;
    if let Some(refused) = plan.context_pressure.as_ref().and_then(|squeeze| squeeze.refusal(messages)) {
        outside.record_fault("model: too long a request");
        call.finish(None);
        return Err(refused);
    }
    if let Some(mishap) = mishap {
        outside.record_fault(mishap.name());
    }
    let whole = || text_answer(&format!("Notes {nth}."), request.max_tokens);
    let answered = match answer_or_fault(mishap, (0, 0), request.max_tokens, whole) {
        Some(answered) => answered,
        None if mishap == Some(ModelFault::Panic) => panic!("planned: the provider panics"),
        None => pending().await,
    };
    call.finish(answered.as_ref().ok().and_then(|answer| answer.usage));
    answered
}
