//! Memory flushes in plans: whether runs have them, the answers to their calls with their faults, the memory files of the
//! simulation, and their invariant.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    asides::{PlannedAttempts, answer_aside},
    external_world::ExternalWorld,
    invariants::{FinalState, Violations},
    model::SimulatedProvider,
    seeded_rng::SeededRng,
};
use hermod_actors::{
    MEMORY_TOOL,
    model::{
        AgentName, AsideJob, AuxiliaryChain, Body, CallId, Failure, MemoryEntry, MemoryTarget, ModelAnswer,
        Record, RunId, RunSpec,
    },
    port::{MemoryWriter, ModelRequest},
};

/// Percentage of plans whose runs are flushed.
const PERCENT_OF_PLANS: u64 = 60;
/// Duration of a slow write.
const SLOW: Duration = Duration::from_secs(7);

/// The flushes of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlushPlan {
    attempts: PlannedAttempts,
    /// What happens to each write, in order. All further writes succeed.
    writes: Vec<WriteFault>,
}

/// What happens to a write of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteFault {
    Nothing,
    Slow,
    Refused,
    Panics,
    /// It never ends, before or after the entries are in the file.
    Hangs(bool),
}

impl FlushPlan {
    /// The flushes of a seed, if it has any.
    pub(super) fn of(seed: u64) -> Option<Self> {
        // A generator of its own: the draws here leave the draws of the rest of the plan unchanged.
        let mut dice = SeededRng::new(seed.rotate_left(24) ^ u64::from(u32::MAX));
        if !dice.chance(PERCENT_OF_PLANS) {
            return None;
        }
        let attempts = PlannedAttempts::draw(&mut dice, 4);
        let write = |dice: &mut SeededRng| {
            dice.pick(&[
                WriteFault::Nothing,
                WriteFault::Nothing,
                WriteFault::Slow,
                WriteFault::Refused,
                WriteFault::Panics,
                WriteFault::Hangs(false),
                WriteFault::Hangs(true),
            ])
        };
        Some(Self { attempts, writes: (0..dice.below(4)).map(|_| write(&mut dice)).collect() })
    }

    /// Has the runs of this spec flushed.
    pub(super) fn apply_to(spec: &mut RunSpec) {
        let (chain, profiles) = (spec.chain.clone(), spec.profiles.clone());
        spec.memory = Some(Arc::new(AuxiliaryChain { chain, profiles }));
        spec.tools.push(MEMORY_TOOL.into());
        spec.tools.sort_unstable();
    }
}

/// Answers a request of a flush.
pub(super) async fn answer_flush(
    endpoint: &SimulatedProvider,
    request: ModelRequest,
    messages: &[Value],
) -> Result<ModelAnswer, Failure> {
    let SimulatedProvider { plan, outside, .. } = endpoint;
    let text = messages.get(1).and_then(|message| message["text"].as_str()).unwrap_or_default();
    if messages.len() != 2 || !text.starts_with("# The part of the conversation that goes\n") {
        outside.report_violation("a flush is of the conversation", format!("{}: {messages:?}", request.call));
    }
    let nth = outside.count("flush".into());
    let planned = plan.flushes.as_ref().and_then(|flushes| flushes.attempts.get(nth));
    let refused = plan.context_pressure.as_ref().and_then(|squeeze| squeeze.refusal(messages));
    let text = match nth % 4 {
        0 => format!("Facts:\n- memory: fact {nth}\nuser: name {}", nth % 3),
        1 => "nothing".to_owned(),
        2 => "what?".to_owned(),
        _ => "memory: fact 0".to_owned(),
    };
    answer_aside(endpoint, &request, planned, text, refused).await
}

/// The memory files of the simulation, which outlive its processes.
#[derive(Debug)]
pub(super) struct SimulatedMemory {
    pub(super) plan: Option<FlushPlan>,
    pub(super) outside: Arc<ExternalWorld>,
}

impl MemoryWriter for SimulatedMemory {
    fn add(&self, _: &AgentName, entries: Vec<MemoryEntry>) -> BoxFuture<'static, Vec<Result<bool, String>>> {
        let outside = Arc::clone(&self.outside);
        let nth = outside.count("memory".into());
        let fault = self.plan.as_ref().and_then(|plan| plan.writes.get(nth)).copied();
        Box::pin(async move {
            match fault {
                Some(WriteFault::Refused) => {
                    return entries.iter().map(|_| Err("planned: no room".to_owned())).collect();
                }
                Some(WriteFault::Panics) => panic!("planned: the write panics"),
                Some(WriteFault::Hangs(false)) => return pending().await,
                Some(WriteFault::Slow) => tokio::time::sleep(SLOW).await,
                Some(WriteFault::Nothing | WriteFault::Hangs(true)) | None => {}
            }
            let results = entries.into_iter().map(|entry| Ok(add(&outside, entry))).collect();
            if fault == Some(WriteFault::Hangs(true)) {
                return pending().await;
            }
            results
        })
    }
}

fn add(outside: &ExternalWorld, entry: MemoryEntry) -> bool {
    let mut state = outside.lock();
    let is_new = !state.memory.contains(&entry);
    if is_new {
        state.memory.push(entry);
    }
    is_new
}

/// What the records of a session say about its flushes.
#[derive(Default)]
struct Flushes {
    /// The attempts of each flush.
    attempts: BTreeMap<CallId, u32>,
    /// The flushes that have no further attempt.
    over: BTreeSet<CallId>,
    /// The flush whose entries are to be written.
    pending: Option<(CallId, Vec<MemoryEntry>)>,
    /// The summaries that have begun, by their run and number.
    summaries: BTreeSet<(RunId, u32)>,
    found: Violations,
}

/// Each compaction has one flush at most, before its summary begins. The entries of an answer are in the memory files once
/// its write is recorded, except for those that are refused. None is there twice.
pub(super) fn written_once(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    let memory = &past.inner.memory;
    for (n, entry) in memory.iter().enumerate() {
        if memory[..n].contains(entry) {
            found.push(format!("{entry:?} is there twice"));
        }
    }
    for records in past.journals.values() {
        let mut flushes = Flushes::default();
        let mut open = BTreeSet::new();
        for record in records {
            match &record.body {
                Body::RunAccepted(accepted) => drop(open.insert(accepted.run)),
                Body::RunReopened(reopened) => drop(open.insert(reopened.run)),
                Body::RunEnded(ended) => drop(open.remove(&ended.run)),
                _ => {}
            }
            flushes.take(record, memory);
        }
        // A process that has ended may have left the write to the next opening of the session.
        if let Some((call, _)) = flushes.pending.filter(|(call, _)| open.contains(&call.run)) {
            flushes.found.push(format!("{call} is never written"));
        }
        found.extend(flushes.found);
    }
    found
}

impl Flushes {
    fn take(&mut self, record: &Record, memory: &[MemoryEntry]) {
        let is_flush = |call: CallId| call.job() == Some(AsideJob::Memory);
        match &record.body {
            Body::SummaryStarted(started) => {
                let call = started.started.call;
                if let Some(pending) = &self.pending {
                    self.found.push(format!("{call} begins before {pending:?} is written"));
                }
                self.summaries.insert((call.run, call.iteration));
            }
            Body::AsideStarted(started) if is_flush(started.call) => {
                let call = started.call;
                let attempts = self.attempts.entry(call).or_default();
                *attempts += 1;
                let is_late = self.summaries.contains(&(call.run, call.iteration));
                if *attempts > 2 || self.over.contains(&call) || is_late {
                    self.found.push(format!("{started:?} is one too many, after a summary: {is_late}"));
                }
            }
            Body::AsideFailed(failed) if is_flush(failed.call) && failed.retry_at.is_none() => {
                self.over.insert(failed.call);
            }
            Body::AsideAnswered(answered) if is_flush(answered.call) && answered.unusable.is_none() => {
                self.over.insert(answered.call);
                let entries: Vec<_> = answered.text.lines().filter_map(entry).collect();
                self.pending = (!entries.is_empty()).then_some((answered.call, entries));
            }
            Body::MemorySaved(saved) => match self.pending.take() {
                Some((call, entries)) if call == saved.call => {
                    let refused: Vec<u32> = saved.save.refused.iter().map(|refusal| refusal.n).collect();
                    let missing = (1..).zip(&entries).filter(|(n, _)| !refused.contains(n));
                    let missing = missing.filter(|(_, entry)| !memory.contains(entry));
                    self.found.extend(missing.map(|(_, entry)| format!("{entry:?} of {call} is missing")));
                }
                pending => self.found.push(format!("{saved:?} of {pending:?}")),
            },
            _ => {}
        }
    }
}

/// The entry of a line of a recorded answer; the word `nothing` is none.
fn entry(line: &str) -> Option<MemoryEntry> {
    let (name, text) = line.split_once(": ")?;
    let target = MemoryTarget::ALL.into_iter().find(|target| target.name() == name)?;
    Some(MemoryEntry { target, text: text.into() })
}
