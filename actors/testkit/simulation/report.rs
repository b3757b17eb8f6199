//! Runs a plan and reports its violations.

use std::{collections::BTreeSet, fmt, ops::Range, sync::Arc};

use super::{
    external_world::ExternalWorld,
    invariants::{self, check_invariants, kinds},
    life::run_lives,
    observations::Violation,
    panic_capture::PanicCapture,
    plan::SimulationPlan,
};
use crate::MemoryJournal;
use hermod_actors::doubles::START_MS;
use hermod_actors::model::{Hash, Kind, SessionId, Timestamp, encode};

/// The result of a simulated plan.
#[derive(Debug)]
pub struct SimulationReport {
    /// The plan.
    pub plan: SimulationPlan,
    /// The violated invariants; empty if all hold.
    pub violations: Vec<Violation>,
    /// The kinds of the records of each session, with their times.
    pub journals: Vec<(SessionId, Vec<(Timestamp, Kind)>)>,
    /// How each life ended.
    pub lives: Vec<String>,
    /// Names of the faults that occurred, of [`FAULT_NAMES`](super::FAULT_NAMES).
    pub fault_names: BTreeSet<&'static str>,
    /// The number of accepted runs.
    pub runs: usize,
    /// A hash of every byte in the store's journals.
    pub digest: Hash,
}

/// Runs a plan, on this thread alone.
pub fn simulate(plan: &SimulationPlan) -> SimulationReport {
    let quiet = PanicCapture::start();
    let (outside, store) = (ExternalWorld::new(plan.seed()), MemoryJournal::new());
    run_lives(&Arc::new(plan.clone()), &outside, &store);
    check_invariants(plan, &outside, &store);
    for panic in quiet.finish() {
        outside.report_violation("nobody panics unasked", panic);
    }
    let journals = invariants::journals(&store).unwrap_or_default();
    let bytes: Vec<u8> = journals.values().flatten().flat_map(|record| encode(record)).collect();
    let mut inner = outside.lock();
    SimulationReport {
        plan: plan.clone(),
        violations: std::mem::take(&mut inner.observations.violations),
        runs: journals.values().flatten().filter(|record| record.body.kind() == Kind::RunAccepted).count(),
        journals: journals.iter().map(|(session, records)| (*session, kinds(records))).collect(),
        lives: std::mem::take(&mut inner.observations.lives),
        fault_names: std::mem::take(&mut inner.observations.fault_names),
        digest: Hash::of(&bytes),
    }
}

/// The first of these seeds with a violation, and its report. Runs on this thread alone.
pub fn first_violation(seeds: Range<u64>) -> Option<(u64, SimulationReport)> {
    seeds
        .map(|seed| (seed, simulate(&SimulationPlan::of(seed))))
        .find(|(_, report)| !report.violations.is_empty())
}

impl fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        writeln!(f, "lives: {}; journals: {}", self.lives.join(", "), self.digest)?;
        for (session, kinds) in &self.journals {
            let entry = |(at, kind): &(Timestamp, Kind)| format!("{}@{}", kind.name(), at.0 - START_MS);
            let entries: Vec<String> = kinds.iter().map(entry).collect();
            writeln!(f, "journal of {session}: {}", entries.join(" "))?;
        }
        for Violation { invariant, what } in &self.violations {
            writeln!(f, "VIOLATED: {invariant}: {what}")?;
        }
        write!(f, "again: HERMOD_SEED={} cargo test --test runtime simulation::", self.plan.replay())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::begin::BeginPlan,
        super::plan::{
            CallPlan, FaultTrigger, ModelFault, PlannedEvent, PlannedFault, PlannedStep, ProcessConfig,
            RunPlan, ToolBehaviour, ToolKind as Tool,
        },
        *,
    };
    use hermod_actors::model::{Amounts, InDoubtAction, LimitIncrease, Limits, StoreLimits};

    const IDLE: u64 = 1_000;

    fn look() -> PlannedStep {
        let call = CallPlan { tool: Tool::Look, ms: 0, behaviour: ToolBehaviour::Well, is_twin: false };
        PlannedStep { ms: 1, calls: vec![call], ..PlannedStep::default() }
    }

    /// A run submitted at 0 ms, with a small `max_tokens` and no other limits.
    fn run(n: usize, steps: usize) -> RunPlan {
        RunPlan {
            n,
            session: n,
            at_ms: 0,
            is_keyed: true,
            limits: Limits { max_tokens: 300, ..Limits::default() },
            in_doubt: InDoubtAction::Tell,
            approval_timeout_ms: 100,
            encoder_panics: false,
            delegation: None,
            raises: None,
            steps: vec![look(); steps],
            last: PlannedStep { ms: 1, ..PlannedStep::default() },
            loops: false,
        }
    }

    fn plan(runs: Vec<RunPlan>, faults: Vec<PlannedFault>) -> SimulationPlan {
        let house = ProcessConfig {
            disk_ms: 0,
            links: 1,
            leases: 1,
            tool_calls: 1,
            is_watched: false,
            idle_ms: IDLE,
        };
        SimulationPlan {
            seed: 0,
            process: house,
            runs,
            tasks: Vec::new(),
            faults,
            context_pressure: None,
            store_limits: StoreLimits::default(),
            titles: None,
            flushes: None,
            descriptions: None,
            begin: BeginPlan::default(),
            is_whole: false,
        }
    }

    /// Checks how the last life ends, how many legs run 0 starts, and which invariants are violated.
    #[track_caller]
    fn check(plan: &SimulationPlan, (life, legs): (&str, usize), violated: &[&str]) {
        let SimulationReport { violations, lives, journals, .. } = simulate(plan);
        let is_leg = |(_, kind): &&(Timestamp, Kind)| matches!(kind, Kind::RunAccepted | Kind::RunReopened);
        let first = journals.first().map_or(0, |(_, records)| records.iter().filter(is_leg).count());
        let mut found: Vec<_> = violations.iter().map(|violation| violation.invariant).collect();
        found.dedup();
        assert_eq!((lives.last().map(String::as_str), first, &found[..]), (Some(life), legs, violated));
    }

    #[test]
    fn what_is_raised_at_rest_goes_on_though_its_session_was_put_to_rest() {
        let budget = Amounts { iterations: Some(1), ..Amounts::default() };
        let first = RunPlan { limits: Limits { budget, ..run(0, 2).limits }, ..run(0, 2) };
        let second = RunPlan { at_ms: IDLE * 20, ..run(1, 0) };
        let by =
            LimitIncrease { budget: Amounts { iterations: Some(9), ..Amounts::default() }, wall_ms: None };
        let raise = PlannedFault {
            n: 0,
            trigger: FaultTrigger::At(IDLE * 10, PlannedEvent::RaiseWithoutResume(0, by)),
        };
        check(&plan(vec![first, second], vec![raise]), ("Done", 2), &[]);
    }

    #[test]
    fn a_model_that_is_wrong_again_and_again_comes_to_an_end() {
        let mishaps = vec![ModelFault::Malformed, ModelFault::UnknownTool];
        let stubborn =
            RunPlan { last: PlannedStep { ms: 1, faults: mishaps, ..PlannedStep::default() }, ..run(0, 0) };
        check(&plan(vec![stubborn], Vec::new()), ("Done", 1), &[]);
    }

    #[test]
    fn a_plan_that_goes_round_in_circles_is_told() {
        let endless = run(0, 2_000);
        check(&plan(vec![endless], Vec::new()), ("Done", 1), &["there is progress when faults stop"]);
    }
}
