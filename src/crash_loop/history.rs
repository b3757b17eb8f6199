//! Crash-loop detection: counts deaths of the process, and finds the run that causes them. Decides on probation,
//! backoffs and runs to force-fail. A death is an end without a clean shutdown: a crash or a kill. Pure: no clock, no
//! I/O.

use std::time::Duration;

use hermod_actors::model::{RunId, Seq, Timestamp};
use serde::{Deserialize, Serialize};

/// Deaths within the window that put the next start on probation.
const DEATHS_FOR_PROBATION: usize = 3;
const WINDOW_MS: u64 = 60_000;
/// Milliseconds after which a trial is over, and its run no suspect any more. It is a third of the window, because a crash
/// loop has three deaths in one window.
pub const MAX_DEATH_INTERVAL_MS: u64 = WINDOW_MS / 3;
/// A death sooner than this after the run was resumed, without a backoff before it, is early: the run had no time for
/// progress. Only late deaths force-fail a run. In milliseconds.
pub const MIN_UPTIME_MS: u64 = 2_000;
/// Late deaths at the same step that force-fail a run.
const LATE_DEATHS_TO_FAIL: u32 = 3;
/// After this many early deaths at one step the process backs off before it resumes the run. One late death has the same
/// effect.
/// A death after the backoff counts against the run; a death during it has another cause.
const EARLY_DEATHS_FOR_BACKOFF: u32 = 6;
/// The backoff as a multiple of the longest uptime of these deaths, so that it outlasts kills at a regular interval.
const BACKOFF_FACTOR: u64 = 2;
/// The longest backoff. A process that is killed three times within the window, at a regular interval, has a shorter
/// uptime. So a longer backoff would detect no more such kills.
const MAX_BACKOFF_MS: u64 = WINDOW_MS;
/// Version of the file's format; a file of another version is ignored.
const VERSION: u32 = 2;

/// The deaths of earlier processes, and what this process does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashHistory {
    version: u32,
    /// The process that has the store open, or had it open when it died.
    process: Option<ProcessEntry>,
    /// Times at which the last deaths were noticed.
    deaths: Vec<Timestamp>,
    #[serde(rename = "blamed")]
    suspects: Vec<Suspect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct ProcessEntry {
    pid: u32,
    since: Timestamp,
    #[serde(rename = "doing")]
    activity: ProcessActivity,
}

/// Activity of a process, as far as it tells the cause of a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProcessActivity {
    /// Not restricted to one run.
    Anything,
    /// Nothing: the process waits before a trial.
    #[serde(rename = "resting")]
    BackingOff,
    /// The process tries a run.
    Trying(Trial),
}

/// A run that is resumed, alone if possible, to find out whether the process dies of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The run.
    pub run: RunId,
    /// The number of the record with the run's last progress (see `Body::is_progress`); 0 if there was none.
    pub step: Seq,
    /// Whether no other run was active.
    #[serde(rename = "alone")]
    pub is_alone: bool,
    /// Whether the trial has lasted [`MIN_UPTIME_MS`], or began after a backoff.
    #[serde(rename = "long")]
    pub has_min_uptime: bool,
}

/// Deaths of the process that count against a run, all at the same step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Suspect {
    run: RunId,
    step: Seq,
    early: u32,
    late: u32,
    /// The longest time from opening the store to noticing the death, over these deaths; at most [`MAX_BACKOFF_MS`].
    lived_ms: u64,
}

impl Default for CrashHistory {
    fn default() -> Self {
        Self { version: VERSION, process: None, deaths: Vec::new(), suspects: Vec::new() }
    }
}

impl CrashHistory {
    /// Parses the history of an earlier process; `None` if the format is not this version's.
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok().filter(|history: &Self| history.version == VERSION)
    }

    /// The trial that was under way when the last process died.
    pub fn last_trial(&self) -> Option<Trial> {
        match self.process?.activity {
            ProcessActivity::Trying(trial) => Some(trial),
            ProcessActivity::Anything | ProcessActivity::BackingOff => None,
        }
    }

    /// This process takes the store over; if the previous one did not end cleanly, that counts as a death.
    /// `step` is the current step of the run in [`last_trial`](Self::last_trial); `None` if the run has ended.
    pub fn replace_process(&mut self, pid: u32, now: Timestamp, step: Option<Seq>) {
        let before =
            self.process.replace(ProcessEntry { pid, since: now, activity: ProcessActivity::Anything });
        if let Some(before) = before {
            self.deaths.push(now);
            match before.activity {
                ProcessActivity::Anything => {}
                // Processes die here of another cause, which may have caused the earlier deaths too.
                ProcessActivity::BackingOff => self.suspects.clear(),
                ProcessActivity::Trying(trial) => {
                    self.record_death(trial, step, uptime_ms(before.since, now));
                }
            }
        }
        self.forget_old(now);
    }

    fn forget_old(&mut self, now: Timestamp) {
        self.deaths.retain(|death| *death <= now && now.ms_since(*death) <= WINDOW_MS);
    }

    fn record_death(&mut self, trial: Trial, step: Option<Seq>, lived_ms: u64) {
        let known = self.suspects.iter().position(|suspect| suspect.run == trial.run);
        let before = known.map(|at| self.suspects.remove(at)).filter(|suspect| suspect.step == trial.step);
        if step != Some(trial.step) {
            return;
        }
        let before =
            before.unwrap_or(Suspect { run: trial.run, step: trial.step, early: 0, late: 0, lived_ms: 0 });
        // A death with several active runs only makes the run one of the first to be tried.
        let (early, late, lived_ms) = match (trial.is_alone, trial.has_min_uptime) {
            (false, _) => (0, 0, 0),
            (true, false) => (1, 0, lived_ms),
            (true, true) => (0, 1, lived_ms),
        };
        let (early, late) = (before.early.saturating_add(early), before.late.saturating_add(late));
        self.suspects.push(Suspect { early, late, lived_ms: lived_ms.max(before.lived_ms), ..before });
    }

    /// The number of the last deaths, if they put this start on probation: it resumes one run at a time.
    pub fn probation(&self) -> Option<usize> {
        Some(self.deaths.len()).filter(|deaths| *deaths >= DEATHS_FOR_PROBATION)
    }

    /// The runs to force-fail, each with the number of its deaths. At each of them no other run was active, and the run was
    /// at the same step.
    pub fn crash_looping(&self) -> Vec<(RunId, u32)> {
        let crash_looping = self.suspects.iter().filter(|suspect| suspect.late >= LATE_DEATHS_TO_FAIL);
        crash_looping.map(|suspect| (suspect.run, suspect.early.saturating_add(suspect.late))).collect()
    }

    /// Runs with a higher rank are tried earlier, so that the next death happens while the suspect is alone.
    pub fn suspicion_rank(&self, run: RunId) -> u32 {
        let weight = |suspect: &Suspect| {
            suspect
                .early
                .saturating_add(suspect.late.saturating_mul(EARLY_DEATHS_FOR_BACKOFF))
                .saturating_add(1)
        };
        self.suspects.iter().find(|suspect| suspect.run == run).map_or(0, weight)
    }

    /// The backoff before this run is resumed at its current step; `None` if there is none.
    /// A process that dies of another cause mostly dies during the backoff, so that only the run's own deaths reach the
    /// limit.
    pub fn backoff_before(&self, trial: &Trial) -> Option<Duration> {
        let is_same = |suspect: &&Suspect| suspect.run == trial.run && suspect.step == trial.step;
        let suspect = self.suspects.iter().find(is_same)?;
        let backoff_ms = suspect.lived_ms.saturating_mul(BACKOFF_FACTOR).clamp(MIN_UPTIME_MS, MAX_BACKOFF_MS);
        (suspect.late > 0 || suspect.early >= EARLY_DEATHS_FOR_BACKOFF)
            .then_some(Duration::from_millis(backoff_ms))
    }

    /// The run that this process tries from now on; `None` ends the trial.
    pub fn set_trial(&mut self, trial: Option<Trial>) {
        self.set_activity(trial.map_or(ProcessActivity::Anything, ProcessActivity::Trying));
    }

    /// This process backs off from now on.
    pub fn start_backoff(&mut self) {
        self.set_activity(ProcessActivity::BackingOff);
    }

    fn set_activity(&mut self, activity: ProcessActivity) {
        if let Some(process) = &mut self.process {
            process.activity = activity;
        }
    }

    /// Removes all suspicion from the run: it made progress, has ended, or has run without a death for long.
    pub fn clear(&mut self, run: RunId) {
        self.suspects.retain(|suspect| suspect.run != run);
    }

    /// The process ends cleanly. Returns whether the history holds anything for the next process.
    pub fn end(&mut self, now: Timestamp) -> bool {
        self.process = None;
        self.forget_old(now);
        !(self.deaths.is_empty() && self.suspects.is_empty())
    }
}

/// Upper bound of the process's uptime, at most [`MAX_BACKOFF_MS`]; that maximum if the clock was set back.
fn uptime_ms(since: Timestamp, now: Timestamp) -> u64 {
    if now < since { MAX_BACKOFF_MS } else { now.ms_since(since).min(MAX_BACKOFF_MS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RunId = RunId::from_bits(1);
    const B: RunId = RunId::from_bits(2);

    fn trial(run: RunId, step: Seq) -> Trial {
        Trial { run, step, is_alone: true, has_min_uptime: false }
    }

    fn long(run: RunId, step: Seq) -> Trial {
        Trial { has_min_uptime: true, ..trial(run, step) }
    }

    fn in_company(run: RunId, step: Seq) -> Trial {
        Trial { is_alone: false, ..long(run, step) }
    }

    /// Each process takes over, tries, and dies; returns the history after the last one has taken over.
    fn died(deaths: &[(i64, Option<Trial>, Option<Seq>)], now: i64) -> CrashHistory {
        let mut history = CrashHistory::default();
        let mut step = None;
        for (at, trial, then) in deaths {
            history.replace_process(1, Timestamp(*at), step);
            history.set_trial(*trial);
            step = *then;
        }
        history.replace_process(1, Timestamp(now), step);
        history
    }

    #[test]
    fn three_deaths_within_a_minute_put_the_next_start_on_probation() {
        let check = |starts: &[i64], now: i64, expect: Option<usize>| {
            let deaths: Vec<_> = starts.iter().map(|at| (*at, None, None)).collect();
            assert_eq!(died(&deaths, now).probation(), expect, "{starts:?} {now}");
        };
        check(&[], 0, None);
        check(&[0, 1], 2, None);
        check(&[0, 1, 2], 3, Some(3));
        check(&[0, 1, 30_000], 61_002, None);
        check(&[0, 20_000, 40_000], 80_000, Some(3));
        check(&[0, 20_000, 40_001], 80_001, None);
        // After the clock was set back, deaths with a later time do not count.
        check(&[50_000, 50_001], 0, None);
    }

    #[test]
    fn a_process_that_ends_well_has_not_died() {
        let mut history = died(&[(0, None, None), (1, None, None)], 2);
        assert!(history.end(Timestamp(3)), "two deaths are remembered");
        history.replace_process(1, Timestamp(4), None);
        assert_eq!(history.probation(), None);
        assert!(!history.end(Timestamp(70_000)), "and forgotten");
    }

    #[test]
    fn a_run_is_condemned_by_deaths_alone_with_it_at_one_step() {
        let check = |trials: &[(Trial, Option<Seq>)], expect: &[(RunId, u32)]| {
            let deaths: Vec<_> =
                (0..).zip(trials).map(|(at, (trial, then))| (at, Some(*trial), *then)).collect();
            assert_eq!(died(&deaths, 1_000).crash_looping(), expect, "{trials:?}");
        };
        let (late, early) = ((long(A, 5), Some(5)), (trial(A, 5), Some(5)));
        check(&[late; 2], &[]);
        check(&[late; 3], &[(A, 3)]);
        check(&[early; 50], &[]);
        check(&[early, late, early, early, late, late], &[(A, 6)]);
        // The run made progress before the death, or ended.
        check(&[late, late, (long(A, 5), Some(6))], &[]);
        check(&[late, late, (long(A, 6), Some(6))], &[]);
        check(&[late, late, (long(A, 5), None)], &[]);
        // Deaths with several active runs do not count, and deaths of another run do not interfere.
        check(&[(in_company(A, 5), Some(5)); 30], &[]);
        check(&[late, (long(B, 2), Some(2)), late, late, (trial(B, 2), Some(2))], &[(A, 3)]);
    }

    #[test]
    fn before_a_death_can_count_the_process_rests_for_longer_than_it_lived() {
        let check = |deaths: &[(i64, Trial)], now: i64, trial: Trial, expect: Option<u64>| {
            let tried: Vec<_> = deaths.iter().map(|(at, trial)| (*at, Some(*trial), Some(5))).collect();
            let rest = died(&tried, now).backoff_before(&trial);
            assert_eq!(rest, expect.map(Duration::from_millis), "{deaths:?} {now} {trial:?}");
        };
        let early = |count: usize| vec![(0, trial(A, 5)); count];
        check(&early(5), 0, trial(A, 5), None);
        check(&early(6), 0, trial(A, 5), Some(MIN_UPTIME_MS));
        check(&early(6), 1_500, trial(A, 5), Some(3_000));
        check(&early(6), 0, trial(A, 7), None);
        check(&early(6), 0, trial(B, 5), None);
        check(&[(0, long(A, 5))], 4_000, trial(A, 5), Some(8_000));
        check(&[(0, long(A, 5)), (9_000, long(A, 5))], 13_000, trial(A, 5), Some(18_000));
        check(&[(0, long(A, 5))], 40_000, trial(A, 5), Some(60_000));
        check(&[(0, in_company(A, 5))], 4_000, trial(A, 5), None);
        // The clock was set back.
        check(&[(9_000, long(A, 5))], 8_000, trial(A, 5), Some(60_000));
    }

    #[test]
    fn a_process_that_dies_while_it_rests_dies_of_no_run() {
        let mut history = died(&[(0, Some(long(A, 5)), Some(5)); 2], 1);
        history.start_backoff();
        assert_eq!(history.last_trial(), None);
        history.replace_process(1, Timestamp(2), None);
        assert_eq!((history.suspicion_rank(A), history.backoff_before(&trial(A, 5))), (0, None));
    }

    /// Starts again and again with one run without progress.
    /// Returns the number of the start that force-fails it, if one of `starts` does.
    /// `dies` returns the uptime of a process in milliseconds, from the number of its start and its backoff.
    fn condemned_at(starts: usize, dies: impl Fn(usize, Option<u64>) -> u64) -> Option<usize> {
        let (mut history, mut now) = (CrashHistory::default(), 0);
        for start in 0..starts {
            history.replace_process(1, Timestamp(now), Some(5));
            if !history.crash_looping().is_empty() {
                return Some(start);
            }
            let rest = history.probation().and_then(|_| history.backoff_before(&trial(A, 5)));
            let rest = rest.map(|rest| u64::try_from(rest.as_millis()).unwrap());
            let lived = dies(start, rest);
            match (history.probation(), lived.checked_sub(rest.unwrap_or(0))) {
                (None, _) => {}
                (Some(_), None) => history.start_backoff(),
                (Some(_), Some(tried)) => {
                    history.set_trial(Some(Trial {
                        has_min_uptime: rest.is_some() || tried >= MIN_UPTIME_MS,
                        ..trial(A, 5)
                    }));
                }
            }
            now += i64::try_from(lived).unwrap();
        }
        None
    }

    #[test]
    fn kills_at_a_rhythm_condemn_nobody() {
        let check = |what: &str, lives: &[u64]| {
            let at = condemned_at(300, |start, _| lives[start % lives.len()]);
            assert_eq!(at, None, "{what} {lives:?}");
        };
        for period in (50..70_000).step_by(50) {
            check("every", &[period]);
            check("about every", &[period, period * 9 / 8, period * 3 / 2, period * 5 / 4]);
        }
        for period in (50..MAX_BACKOFF_MS / 5).step_by(50) {
            check("in turn every", &[period, period, 2 * period]);
            check("in turn every", &[period, 4 * period]);
        }
    }

    #[test]
    fn who_really_kills_its_process_is_condemned() {
        for after in (0..MAX_DEATH_INTERVAL_MS).step_by(50) {
            let at = condemned_at(40, |_, rest| rest.unwrap_or(0) + after);
            assert!(at.is_some(), "{after}");
        }
    }

    #[test]
    fn who_is_suspected_is_tried_first() {
        let history = died(&[(0, Some(in_company(A, 5)), Some(5)), (1, Some(trial(B, 2)), Some(2))], 2);
        assert_eq!((history.suspicion_rank(A), history.suspicion_rank(B)), (1, 2));
        assert_eq!(history.suspicion_rank(RunId::from_bits(3)), 0);
        let mut history = history;
        history.clear(B);
        assert_eq!(history.suspicion_rank(B), 0);
    }

    #[test]
    fn what_is_kept_is_read_again_and_nothing_else() {
        let history = died(&[(0, Some(long(A, 5)), Some(5))], 2);
        let json = serde_json::to_vec(&history).unwrap();
        assert_eq!(CrashHistory::parse(&json), Some(history));
        for other in ["", "{", "{}", r#"{"version":1,"process":null,"deaths":[],"blamed":[]}"#] {
            assert_eq!(CrashHistory::parse(other.as_bytes()), None, "{other}");
        }
    }
}
