//! The lanes of the runtime: each bounds how many of its runs are under way. A session waits here for a place of a run
//! that has not begun, and keeps the place while its run is under way. Places are not durable. After a start they are kept for the
//! runs that were under way, until their sessions are open again.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::channel::oneshot;

use crate::{
    lock,
    model::{Lane, LaneLimits, RunId, Timestamp},
    policy::{LaneQueue, WaitKey},
};

type Waiting = LaneQueue<oneshot::Sender<LanePlace>>;

/// The places of all lanes.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<LaneQueues>);

#[derive(Debug, Default)]
struct LaneQueues {
    limits: LaneLimits,
    main: Waiting,
    subagent: Waiting,
    cron: Waiting,
    /// Runs of earlier processes that were under way. Their places are kept until their sessions are open again.
    kept: BTreeSet<(RunId, Lane)>,
}

impl LaneQueues {
    const fn get_mut(&mut self, lane: Lane) -> &mut Waiting {
        match lane {
            Lane::Main => &mut self.main,
            Lane::Subagent => &mut self.subagent,
            Lane::Cron => &mut self.cron,
        }
    }
}

impl Lanes {
    /// The present limits.
    pub(crate) fn limits(&self) -> LaneLimits {
        lock(&self.0).limits
    }

    /// Sets the limits; runs for which there is a place now begin.
    pub(crate) fn set_limits(self: &Arc<Self>, limits: LaneLimits) {
        {
            let mut queues = lock(&self.0);
            queues.limits = limits;
            for lane in Lane::ALL {
                queues.get_mut(lane).set_limit(limits.get(lane));
            }
        }
        Lane::ALL.into_iter().for_each(|lane| self.grant(lane));
    }

    /// The numbers of runs of a lane that have a place, and that wait for one.
    pub(crate) fn counts(&self, lane: Lane) -> (usize, usize) {
        lock(&self.0).get_mut(lane).counts()
    }

    /// A place for a run that has begun, whatever the limit is: the one that is kept for it, if there is one.
    pub(crate) fn occupy(self: &Arc<Self>, run: RunId, lane: Lane) -> LanePlace {
        let mut queues = lock(&self.0);
        if !queues.kept.remove(&(run, lane)) {
            queues.get_mut(lane).occupy();
        }
        self.place(lane)
    }

    /// Keeps places for runs that were under way in an earlier process, so that no other run begins in their place.
    pub(crate) fn keep(&self, runs: impl Iterator<Item = (RunId, Lane)>) {
        let mut queues = lock(&self.0);
        for (run, lane) in runs {
            if queues.kept.insert((run, lane)) {
                queues.get_mut(lane).occupy();
            }
        }
    }

    /// Gives back the place that is kept for this run, because it waits.
    pub(crate) fn forget_kept(self: &Arc<Self>, run: RunId) {
        let kept: Vec<(RunId, Lane)> = {
            let kept = &lock(&self.0).kept;
            Lane::ALL.into_iter().map(|lane| (run, lane)).filter(|of| kept.contains(of)).collect()
        };
        kept.into_iter().for_each(|(run, lane)| drop(self.occupy(run, lane)));
    }

    /// Gives back all places that are kept.
    pub(crate) fn forget_all_kept(self: &Arc<Self>) {
        let kept: Vec<(RunId, Lane)> = lock(&self.0).kept.iter().copied().collect();
        kept.into_iter().for_each(|(run, lane)| drop(self.occupy(run, lane)));
    }

    /// A place, if one is free and no run waits for it.
    pub(crate) fn try_occupy(self: &Arc<Self>, lane: Lane) -> Option<LanePlace> {
        let is_free = lock(&self.0).get_mut(lane).try_occupy();
        is_free.then(|| self.place(lane))
    }

    /// Waits for a place behind the runs that were accepted before.
    pub(crate) async fn acquire(self: &Arc<Self>, lane: Lane, accepted_at: Timestamp) -> LanePlace {
        let (granted, place) = oneshot::channel();
        let key = lock(&self.0).get_mut(lane).push(accepted_at, granted);
        let _wait = LaneWait { lanes: Arc::clone(self), lane, key };
        self.grant(lane);
        match place.await {
            Ok(place) => place,
            // Only this wait removes its sender.
            Err(oneshot::Canceled) => std::future::pending().await,
        }
    }

    fn place(self: &Arc<Self>, lane: Lane) -> LanePlace {
        LanePlace { lanes: Some(Arc::clone(self)), lane }
    }

    /// Gives free places to the runs that wait.
    fn grant(self: &Arc<Self>, lane: Lane) {
        loop {
            let next = lock(&self.0).get_mut(lane).take_next();
            let Some(granted) = next else { return };
            if let Err(mut place) = granted.send(self.place(lane)) {
                // It waits no more. Given back here, because the drop of a place comes back to this function.
                place.lanes = None;
                lock(&self.0).get_mut(lane).release();
            }
        }
    }
}

/// A place in a lane, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct LanePlace {
    lanes: Option<Arc<Lanes>>,
    lane: Lane,
}

impl Drop for LanePlace {
    fn drop(&mut self) {
        if let Some(lanes) = self.lanes.take() {
            lock(&lanes.0).get_mut(self.lane).release();
            lanes.grant(self.lane);
        }
    }
}

/// A wait for a place; it leaves the queue when this is dropped.
struct LaneWait {
    lanes: Arc<Lanes>,
    lane: Lane,
    key: WaitKey,
}

impl Drop for LaneWait {
    fn drop(&mut self) {
        lock(&self.lanes.0).get_mut(self.lane).remove(self.key);
    }
}
