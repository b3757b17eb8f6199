use hermod_actors::model::{RunId, Seq, Timestamp};
use serde::{Deserialize, Serialize};

/// So many deaths of the process within the window put the next start on probation.
const DEATHS: usize = 3;
const WINDOW_MS: u64 = 60_000;
/// Who dies more slowly than this does not come to that many deaths within the window.
pub const SLOWEST_MS: u64 = WINDOW_MS / 3;
/// A run that was alone for so long could have done its step: a death behind that weighs more.
pub const LONG_MS: u64 = 2_000;
const LATE: u32 = 4;
/// A death before that may be anybody's kill that came before a healthy run could move: one says little.
const EARLY: u32 = 1;
/// Three late deaths, or twelve early ones, all at the same step.
const ENOUGH: u32 = 3 * LATE;
/// What this program writes; of another version nothing is taken over.
const VERSION: u32 = 1;

/// What is known of the processes before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    version: u32,
    /// Who holds the store, or held it when it died.
    process: Option<Process>,
    /// The last deaths, as they were noticed.
    deaths: Vec<Timestamp>,
    blamed: Vec<Blame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    pid: u32,
    since: Timestamp,
    trial: Option<Trial>,
}

/// A run that is let go on by itself, to see whether the process dies of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The run.
    pub run: RunId,
    /// The last step that it had made: see [`is_step`](super::is_step); 0 if it had made none.
    pub step: Seq,
    /// Whether nothing else was under way.
    pub alone: bool,
    /// Whether it has been tried for [`LONG_MS`].
    pub long: bool,
}

/// Deaths of the process that count against a run, all at the same step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Blame {
    run: RunId,
    step: Seq,
    deaths: u32,
    weight: u32,
}

/// How the unfinished runs go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// All at once.
    Ordinary,
    /// One at a time; the process has died so often within a minute.
    Probation(usize),
}

impl Default for Past {
    fn default() -> Self {
        Self { version: VERSION, process: None, deaths: Vec::new(), blamed: Vec::new() }
    }
}

impl Past {
    /// Reads what an earlier process has left; nothing, if this program does not understand it.
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok().filter(|past: &Self| past.version == VERSION)
    }

    /// Whom the last process tried when it died.
    pub fn tried(&self) -> Option<Trial> {
        self.process?.trial
    }

    /// A process takes the store over: if the one before has not ended well, that was a death. `step` is where the run that
    /// it tried stands now; `None` if that has ended.
    pub fn take_over(&mut self, (pid, now): (u32, Timestamp), step: Option<Seq>) {
        let before = self.process.replace(Process { pid, since: now, trial: None });
        if let Some(before) = before {
            self.deaths.push(now);
            if let Some(trial) = before.trial {
                self.blame(trial, step);
            }
        }
        self.forget_old(now);
    }

    fn forget_old(&mut self, now: Timestamp) {
        self.deaths.retain(|death| *death <= now && now.ms_since(*death) <= WINDOW_MS);
    }

    fn blame(&mut self, trial: Trial, step: Option<Seq>) {
        let known = self.blamed.iter().position(|blame| blame.run == trial.run);
        let before = known.map(|at| self.blamed.remove(at)).filter(|blame| blame.step == trial.step);
        if step != Some(trial.step) {
            return;
        }
        let Blame { deaths, weight, .. } =
            before.unwrap_or(Blame { run: trial.run, step: trial.step, deaths: 0, weight: 0 });
        // In company, a death only says whom to try first.
        let (death, more) = match (trial.alone, trial.long) {
            (false, _) => (0, 0),
            (true, false) => (1, EARLY),
            (true, true) => (1, LATE),
        };
        let (deaths, weight) = (deaths.saturating_add(death), weight.saturating_add(more));
        self.blamed.push(Blame { run: trial.run, step: trial.step, deaths, weight });
    }

    /// How the unfinished runs are to go on.
    pub fn start(&self) -> Start {
        if self.deaths.len() < DEATHS { Start::Ordinary } else { Start::Probation(self.deaths.len()) }
    }

    /// The runs of which the process has died too often, and how often: each alone, at the same step.
    pub fn condemned(&self) -> Vec<(RunId, u32)> {
        let condemned = self.blamed.iter().filter(|blame| blame.weight >= ENOUGH);
        condemned.map(|blame| (blame.run, blame.deaths)).collect()
    }

    /// The greater, the earlier a run is tried: so the next death finds it alone.
    pub fn suspicion(&self, run: RunId) -> u32 {
        self.blamed.iter().find(|blame| blame.run == run).map_or(0, |blame| blame.weight.saturating_add(1))
    }

    /// Whom this process tries from now on, if anybody.
    pub fn try_out(&mut self, trial: Option<Trial>) {
        if let Some(process) = &mut self.process {
            process.trial = trial;
        }
    }

    /// Nothing counts against the run any more: it got on, has ended, or has done no harm for long.
    pub fn clear(&mut self, run: RunId) {
        self.blamed.retain(|blame| blame.run != run);
    }

    /// The process ends well. Whether there is something to be kept for the next one.
    pub fn end(&mut self, now: Timestamp) -> bool {
        self.process = None;
        self.forget_old(now);
        !(self.deaths.is_empty() && self.blamed.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RunId = RunId::from_bits(1);
    const B: RunId = RunId::from_bits(2);

    fn trial(run: RunId, step: Seq) -> Trial {
        Trial { run, step, alone: true, long: false }
    }

    fn long(run: RunId, step: Seq) -> Trial {
        Trial { long: true, ..trial(run, step) }
    }

    fn in_company(run: RunId, step: Seq) -> Trial {
        Trial { alone: false, ..long(run, step) }
    }

    /// Processes that take over, try, and die; the last one takes over and is asked.
    fn died(deaths: &[(i64, Option<Trial>, Option<Seq>)], now: i64) -> Past {
        let mut past = Past::default();
        let mut step = None;
        for (at, trial, then) in deaths {
            past.take_over((1, Timestamp(*at)), step);
            past.try_out(*trial);
            step = *then;
        }
        past.take_over((1, Timestamp(now)), step);
        past
    }

    #[test]
    fn three_deaths_within_a_minute_put_the_next_start_on_probation() {
        let check = |starts: &[i64], now: i64, expect: Start| {
            let deaths: Vec<_> = starts.iter().map(|at| (*at, None, None)).collect();
            assert_eq!(died(&deaths, now).start(), expect, "{starts:?} {now}");
        };
        check(&[], 0, Start::Ordinary);
        check(&[0, 1], 2, Start::Ordinary);
        check(&[0, 1, 2], 3, Start::Probation(3));
        check(&[0, 1, 30_000], 61_002, Start::Ordinary);
        check(&[0, 20_000, 40_000], 80_000, Start::Probation(3));
        check(&[0, 20_000, 40_001], 80_001, Start::Ordinary);
        // A clock that was set back makes no deaths of the future.
        check(&[50_000, 50_001], 0, Start::Ordinary);
    }

    #[test]
    fn a_process_that_ends_well_has_not_died() {
        let mut past = died(&[(0, None, None), (1, None, None)], 2);
        assert!(past.end(Timestamp(3)), "two deaths are remembered");
        past.take_over((1, Timestamp(4)), None);
        assert_eq!(past.start(), Start::Ordinary);
        assert!(!past.end(Timestamp(70_000)), "and forgotten");
    }

    #[test]
    fn a_run_is_condemned_by_deaths_alone_with_it_at_one_step() {
        let check = |trials: &[(Trial, Option<Seq>)], expect: &[(RunId, u32)]| {
            let deaths: Vec<_> =
                (0..).zip(trials).map(|(at, (trial, then))| (at, Some(*trial), *then)).collect();
            assert_eq!(died(&deaths, 1_000).condemned(), expect, "{trials:?}");
        };
        let (late, early) = ((long(A, 5), Some(5)), (trial(A, 5), Some(5)));
        check(&[late; 2], &[]);
        check(&[late; 3], &[(A, 3)]);
        check(&[early; 11], &[]);
        check(&[early; 12], &[(A, 12)]);
        check(&[early, late, early, early, late, early], &[(A, 6)]);
        // It came further before it died, or ended.
        check(&[late, late, (long(A, 5), Some(6))], &[]);
        check(&[late, late, (long(A, 6), Some(6))], &[]);
        check(&[late, late, (long(A, 5), None)], &[]);
        // Who was not alone is not to blame; another's death says nothing.
        check(&[(in_company(A, 5), Some(5)); 30], &[]);
        check(&[late, (long(B, 2), Some(2)), late, late, (trial(B, 2), Some(2))], &[(A, 3)]);
    }

    #[test]
    fn who_is_suspected_is_tried_first() {
        let past = died(&[(0, Some(in_company(A, 5)), Some(5)), (1, Some(trial(B, 2)), Some(2))], 2);
        assert_eq!((past.suspicion(A), past.suspicion(B)), (1, 2));
        assert_eq!(past.suspicion(RunId::from_bits(3)), 0);
        let mut past = past;
        past.clear(B);
        assert_eq!(past.suspicion(B), 0);
    }

    #[test]
    fn what_is_kept_is_read_again_and_nothing_else() {
        let past = died(&[(0, Some(long(A, 5)), Some(5))], 2);
        let json = serde_json::to_vec(&past).unwrap();
        assert_eq!(Past::parse(&json), Some(past));
        for other in ["", "{", "{}", r#"{"version":2,"process":null,"deaths":[],"blamed":[]}"#] {
            assert_eq!(Past::parse(other.as_bytes()), None, "{other}");
        }
    }
}
