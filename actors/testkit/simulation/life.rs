//! Process lives: each is a tokio runtime on virtual time, dropped when the process crashes.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::task::JoinSet;

use super::{
    clients::Clients,
    descriptions::DescriptionPlan,
    external_world::{ExternalWorld, LifeClock},
    flushes::{FlushPlan, SimulatedMemory},
    journal::{LifeJournal, ProcessState},
    model::SimulatedProvider,
    plan::{Downtime, PlannedFault, SimulationPlan, ToolKind},
    policy::SimulatedPolicy,
    titles::TitlePlan,
    tools::SimulatedTool,
    verification::SimulatedVerifier,
};
use crate::{MemoryArtifacts, MemoryJournal, world};
use hermod_actors::{
    Defaults, Runtime, RuntimeDependencies, RuntimeEnd, TODO,
    model::{BreakerPolicy, ModelRef, RunSpec},
    port::{ModelProvider, NoRedaction, NoScaling, Tool},
};

/// Upper bound of a life in virtual time: nothing that a run waits for takes longer, retries included.
const LIFE_TIMEOUT: Duration = Duration::from_hours(24 * 14);
/// Time for tasks to end after their runtime has ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// How a life ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LifeEnd {
    /// The process crashed.
    Crashed,
    /// The runtime ended by itself.
    Terminated(RuntimeEnd),
    /// The runtime was suspended with work left.
    Suspended,
    /// All work is done, and the runtime was suspended.
    Done,
    /// No progress within `LIFE_TIMEOUT`.
    Stuck,
}

/// Runs lives one after the other until all runs have ended. The external world and the store persist between them.
pub(super) fn run_lives(plan: &Arc<SimulationPlan>, outside: &Arc<ExternalWorld>, store: &MemoryJournal) {
    let faults: Arc<[PlannedFault]> = plan.faults.as_slice().into();
    let mut pause = Downtime { ms: 0, reboots: false };
    let (mut boot, mut store) = (1, store.clone());
    // Each fault ends at most one life.
    for _ in 0..=plan.faults.len() + 1 {
        boot += u32::from(pause.reboots);
        if pause.reboots {
            outside.record_fault("machine starts anew");
        }
        let process = Arc::new(ProcessState::default());
        let journal = LifeJournal {
            inner: store.clone(),
            outside: Arc::clone(outside),
            process: Arc::clone(&process),
            faults: Arc::clone(&faults),
            disk_ms: plan.process.disk_ms,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without drivers can always be made");
        let life = ProcessLife { plan, outside, process: &process, journal, boot, reboots: pause.reboots };
        let end = runtime.block_on(async {
            let end = life.run().await;
            outside.end_process();
            end
        });
        outside.lock().observations.lives.push(format!("{end:?}"));
        pause = process.downtime();
        process.kill(pause);
        if end != LifeEnd::Done {
            outside.lock().record_forced_end();
        }
        outside.finish_downtime(pause.ms);
        drop(runtime);
        match end {
            LifeEnd::Crashed | LifeEnd::Suspended => {}
            LifeEnd::Terminated(reason) => {
                if !process.may_end.load(Ordering::SeqCst) {
                    outside
                        .report_violation("a runtime ends of the store or of its root", reason.to_string());
                }
            }
            LifeEnd::Done => return,
            LifeEnd::Stuck => {
                let mut open: Vec<_> = outside.lock().observations.open_positions();
                open.extend(outside.lock().observations.missing_results());
                return outside.report_violation("there is progress when faults stop", open.join("; "));
            }
        }
        store = store.reopened();
    }
    outside.report_violation("there is progress when faults stop", "the lives do not end");
}

struct ProcessLife<'a> {
    plan: &'a Arc<SimulationPlan>,
    outside: &'a Arc<ExternalWorld>,
    process: &'a Arc<ProcessState>,
    journal: LifeJournal,
    boot: u32,
    reboots: bool,
}

impl ProcessLife<'_> {
    async fn run(self) -> LifeEnd {
        self.outside.start_process(&self.journal.inner, self.reboots);
        let runtime = match Runtime::start(self.world()).await {
            Ok(runtime) => Arc::new(runtime),
            Err(reason) => return LifeEnd::Terminated(reason),
        };
        runtime.set_store_limits(self.plan.store_limits);
        runtime.set_lane_limits(self.plan.begin.lanes);
        runtime.set_verifier(Arc::new(SimulatedVerifier::new(self.plan.seed())));
        let (plan, outside) = (self.plan.flushes.clone(), Arc::clone(self.outside));
        runtime.set_memory(Arc::new(SimulatedMemory { plan, outside }));
        let (mut clients, mut tasks) = (JoinSet::new(), JoinSet::new());
        let driver = Clients {
            plan: Arc::clone(self.plan),
            outside: Arc::clone(self.outside),
            process: Arc::clone(self.process),
            runtime: Arc::clone(&runtime),
            store: self.journal.inner.clone(),
        };
        let end = tokio::select! {
            biased;
            () = self.process.wait_for_end() => return LifeEnd::Crashed,
            reason = runtime.wait_for_end() => LifeEnd::Terminated(reason),
            is_done = driver.drive(&mut clients, &mut tasks) => if is_done { LifeEnd::Done } else { LifeEnd::Suspended },
            () = tokio::time::sleep(LIFE_TIMEOUT) => return LifeEnd::Stuck,
        };
        clients.shutdown().await;
        tasks.shutdown().await;
        drop(driver);
        let Some(runtime) = Arc::into_inner(runtime).filter(|_| !matches!(end, LifeEnd::Terminated(_)))
        else {
            return end;
        };
        tokio::select! {
            biased;
            // A commit under way may have the fault that crashes the process.
            () = self.process.wait_for_end() => return LifeEnd::Crashed,
            () = runtime.suspend() => {}
        }
        self.check_nothing_left(end).await
    }

    /// Checks that a suspended runtime leaves no task alive.
    async fn check_nothing_left(&self, end: LifeEnd) -> LifeEnd {
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        for _ in 0..20 {
            if alive() == 0 {
                return end;
            }
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
        if alive() > 0 && !self.process.is_writing() {
            self.outside
                .report_violation("no actor or task is left", format!("{} when it was {end:?}", alive()));
        }
        end
    }

    fn world(&self) -> RuntimeDependencies {
        let LifeConfig { names, spec } = life_config(self.plan);
        let endpoint = |name: &&str| {
            let endpoint = SimulatedProvider::new(Arc::clone(self.plan), Arc::clone(self.outside));
            let endpoint: Arc<dyn ModelProvider> = Arc::new(endpoint);
            (Arc::from(*name), endpoint, self.plan.process.leases)
        };
        let tool =
            |kind: &ToolKind| Arc::new(SimulatedTool::new(*kind, Arc::clone(self.outside))) as Arc<dyn Tool>;
        RuntimeDependencies {
            journal: Arc::new(self.journal.clone()),
            clock: Arc::new(LifeClock::new(Arc::clone(self.outside))),
            boot: format!("boot-{}", self.boot),
            providers: names.iter().map(endpoint).collect(),
            breakers: BreakerPolicy::default(),
            tools: ToolKind::ALL.iter().map(tool).collect(),
            policy: Arc::new(SimulatedPolicy::new(self.plan)),
            hooks: Arc::new(self.plan.begin),
            tool_calls: self.plan.process.tool_calls,
            summaries: self.plan.process.tool_calls,
            submissions: 1_000,
            idle: Duration::from_millis(self.plan.process.idle_ms),
            space: None,
            artifacts: Arc::new(MemoryArtifacts::default()),
            pictures: Arc::new(NoScaling),
            redactor: Arc::new(NoRedaction),
            defaults: Defaults::fixed(spec, "You are simulated."),
        }
    }
}

struct LifeConfig {
    names: &'static [&'static str],
    spec: RunSpec,
}

/// The providers' names, and the default spec of a run.
fn life_config(plan: &SimulationPlan) -> LifeConfig {
    let names = if plan.process.links > 1 { &["test", "other"][..] } else { &["test"] };
    let kinds = ToolKind::ALL.iter().map(|kind| kind.name());
    let mut tools: Vec<String> = kinds.chain([TODO]).map(ToOwned::to_owned).collect();
    tools.sort_unstable();
    let link = |name: &&str| ModelRef::new(*name, "model").expect("two names");
    let mut spec = RunSpec { chain: names.iter().map(link).collect(), ..world::spec(tools) };
    if let Some(pressure) = &plan.context_pressure {
        pressure.apply_to(&mut spec);
    }
    if plan.descriptions.is_some() {
        DescriptionPlan::apply_to(&mut spec);
    }
    if plan.flushes.is_some() {
        FlushPlan::apply_to(&mut spec);
    }
    if plan.titles.is_some() {
        TitlePlan::apply_to(&mut spec);
    }
    LifeConfig { names, spec }
}

/// Never returns. Awaited after the process was killed: nothing may follow within it.
pub(super) async fn never() {
    pending::<()>().await;
}
