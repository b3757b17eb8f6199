//! One life of the process: a tokio runtime on virtual time, which is dropped where the process crashes.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::task::JoinSet;

use super::{
    clients::Clients,
    journal::{LifeJournal, Process},
    model::Endpoint,
    outside::{LifeClock, Outside},
    plan::{Fault, Kind, Pause, Plan},
    tools::OddTool,
};
use crate::{
    Defaults, Runtime, Terminated, World,
    model::{BreakerPolicy, ModelRef, RunSpec},
    policy::todo::TODO,
    port::{Provider, Tool},
    testkit::{MemoryArtifacts, MemoryJournal, world},
};

/// Nothing that a run waits for takes longer, however often it is begun anew.
const PATIENCE: Duration = Duration::from_hours(24 * 14);
/// What tasks have to end in when their runtime has.
const REST: Duration = Duration::from_secs(2);

/// How a life ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// By force, wherever it was.
    Crashed,
    /// The runtime ended by itself.
    Terminated(Terminated),
    /// It was suspended.
    Suspended,
    /// All is done, and it was suspended.
    Done,
    /// It does not go on.
    Stuck,
}

/// Lets one life after the other pass, until all runs have ended; the world and the store are as they leave them.
pub(super) fn lives(plan: &Arc<Plan>, outside: &Arc<Outside>, store: &MemoryJournal) {
    let faults: Arc<[Fault]> = plan.faults.as_slice().into();
    let mut pause = Pause { ms: 0, reboots: false };
    let (mut boot, mut store) = (1, store.clone());
    // Each fault ends at most one life.
    for _ in 0..=plan.faults.len() + 1 {
        boot += u32::from(pause.reboots);
        if pause.reboots {
            outside.goes_wrong("machine starts anew");
        }
        let process = Arc::new(Process::default());
        let journal = LifeJournal {
            inner: store.clone(),
            outside: Arc::clone(outside),
            process: Arc::clone(&process),
            faults: Arc::clone(&faults),
            disk_ms: plan.house.disk_ms,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without drivers can always be made");
        let life = Life { plan, outside, process: &process, journal, boot, reboots: pause.reboots };
        let end = runtime.block_on(async {
            let end = life.live().await;
            outside.ends();
            end
        });
        outside.lock().book.lives.push(format!("{end:?}"));
        pause = process.pause();
        process.die(pause);
        if end != End::Done {
            outside.lock().upset();
        }
        outside.ended(pause.ms);
        drop(runtime);
        match end {
            End::Crashed | End::Suspended => {}
            End::Terminated(reason) => {
                if !process.may_end.load(Ordering::SeqCst) {
                    outside.accuse("a runtime ends of the store or of its root", reason.to_string());
                }
            }
            End::Done => return,
            End::Stuck => {
                let mut open: Vec<_> = outside.lock().book.stand();
                open.extend(outside.lock().book.untold());
                return outside.accuse("there is progress when faults stop", open.join("; "));
            }
        }
        store = store.reopened();
    }
    outside.accuse("there is progress when faults stop", "the lives do not end");
}

struct Life<'a> {
    plan: &'a Arc<Plan>,
    outside: &'a Arc<Outside>,
    process: &'a Arc<Process>,
    journal: LifeJournal,
    boot: u32,
    reboots: bool,
}

impl Life<'_> {
    async fn live(self) -> End {
        self.outside.begins(&self.journal.inner, self.reboots);
        let runtime = match Runtime::start(self.world()).await {
            Ok(runtime) => Arc::new(runtime),
            Err(reason) => return End::Terminated(reason),
        };
        let (mut clients, mut tasks) = (JoinSet::new(), JoinSet::new());
        let driven = Clients {
            plan: Arc::clone(self.plan),
            outside: Arc::clone(self.outside),
            process: Arc::clone(self.process),
            runtime: Arc::clone(&runtime),
            store: self.journal.inner.clone(),
        };
        let end = tokio::select! {
            biased;
            () = self.process.died() => return End::Crashed,
            reason = runtime.terminated() => End::Terminated(reason),
            is_done = driven.drive(&mut clients, &mut tasks) => if is_done { End::Done } else { End::Suspended },
            () = tokio::time::sleep(PATIENCE) => return End::Stuck,
        };
        clients.shutdown().await;
        tasks.shutdown().await;
        drop(driven);
        let Some(runtime) = Arc::into_inner(runtime).filter(|_| !matches!(end, End::Terminated(_))) else {
            return end;
        };
        tokio::select! {
            biased;
            // What is on its way to disk may be what the process dies of.
            () = self.process.died() => return End::Crashed,
            () = runtime.suspend() => {}
        }
        self.rest(end).await
    }

    /// Nothing is left of a runtime that was suspended.
    async fn rest(&self, end: End) -> End {
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        for _ in 0..20 {
            if alive() == 0 {
                return end;
            }
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(REST).await;
        if alive() > 0 && !self.process.is_writing() {
            self.outside.accuse("no actor or task is left", format!("{} when it was {end:?}", alive()));
        }
        end
    }

    fn world(&self) -> World {
        let House { names, spec } = house(self.plan);
        let endpoint = |name: &&str| {
            let endpoint = Endpoint::new(Arc::clone(self.plan), Arc::clone(self.outside));
            let endpoint: Arc<dyn Provider> = Arc::new(endpoint);
            (Arc::from(*name), endpoint, self.plan.house.leases)
        };
        let tool = |kind: &Kind| Arc::new(OddTool::new(*kind, Arc::clone(self.outside))) as Arc<dyn Tool>;
        World {
            journal: Arc::new(self.journal.clone()),
            clock: Arc::new(LifeClock::new(Arc::clone(self.outside))),
            boot: format!("boot-{}", self.boot),
            providers: names.iter().map(endpoint).collect(),
            breakers: BreakerPolicy::default(),
            tools: Kind::ALL.iter().map(tool).collect(),
            tool_calls: self.plan.house.tool_calls,
            submissions: 1_000,
            idle: Duration::from_millis(self.plan.house.idle_ms),
            space: None,
            artifacts: Arc::new(MemoryArtifacts::default()),
            defaults: Defaults::fixed(spec, "You are simulated."),
        }
    }
}

struct House {
    names: &'static [&'static str],
    spec: RunSpec,
}

/// The providers, and what a run is given if the plan does not say otherwise.
fn house(plan: &Plan) -> House {
    let names = if plan.house.links > 1 { &["test", "other"][..] } else { &["test"] };
    let own = Kind::ALL.iter().map(|kind| kind.name());
    let mut tools: Vec<String> = own.chain([TODO]).map(ToOwned::to_owned).collect();
    tools.sort_unstable();
    let link = |name: &&str| ModelRef::new(*name, "model").expect("two names");
    let mut spec = RunSpec { chain: names.iter().map(link).collect(), ..world::spec(tools) };
    if let Some(squeeze) = &plan.squeeze {
        squeeze.applies_to(&mut spec);
    }
    House { names, spec }
}

/// Waits for ever once a process has been told to die: nothing follows on that within it.
pub(super) async fn never() {
    pending::<()>().await;
}
