use std::time::Duration;

use hermod_actors::model::{RunId, Seq, Timestamp};
use serde::{Deserialize, Serialize};

/// So many deaths of the process within the window put the next start on probation.
const DEATHS_FOR_PROBATION: usize = 3;
const WINDOW_MS: u64 = 60_000;
/// Who dies more slowly than this does not come to that many deaths within the window.
pub const MAX_DEATH_INTERVAL_MS: u64 = WINDOW_MS / 3;
/// A process that has lived for so long is not killed so fast that nothing could get on: only later deaths condemn.
pub const MIN_UPTIME_MS: u64 = 2_000;
/// So many of them, all at the same step, are enough.
const LATE_DEATHS_TO_FAIL: u32 = 3;
/// So many earlier deaths with a run weigh as much as one late one: the process rests before the run goes on. If it dies of
/// the run then, that counts, and if it dies while it rests, it dies of something else.
const EARLY_DEATHS_FOR_BACKOFF: u32 = 6;
/// It rests so many times as long as it ever lived in these deaths, and so outlasts kills that come at a rhythm.
const BACKOFF_FACTOR: u64 = 2;
/// The longest rest. Who dies three times within the window by kills at a rhythm does not live for so long.
const MAX_BACKOFF_MS: u64 = WINDOW_MS;
/// What this program writes; of another version nothing is taken over.
const VERSION: u32 = 2;

/// What is known of the processes before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashHistory {
    version: u32,
    /// Who holds the store, or held it when it died.
    process: Option<ProcessEntry>,
    /// The last deaths, as they were noticed.
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

/// What a process was at, as far as a death may have to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProcessActivity {
    /// All kinds of things.
    Anything,
    /// Nothing: it waits before it tries a run.
    #[serde(rename = "resting")]
    BackingOff,
    /// It tries a run.
    Trying(Trial),
}

/// A run that is let go on by itself, to see whether the process dies of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The run.
    pub run: RunId,
    /// The last step that it had made: see [`is_step`](super::is_step); 0 if it had made none.
    pub step: Seq,
    /// Whether nothing else was under way.
    #[serde(rename = "alone")]
    pub is_alone: bool,
    /// Whether the process has lived for [`MIN_UPTIME_MS`].
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
    /// The longest that the process held the store before it died so, and until that was noticed; at most [`MAX_BACKOFF_MS`].
    lived_ms: u64,
}

/// How the unfinished runs go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeMode {
    /// All at once.
    AllAtOnce,
    /// One at a time; the process has died so often within a minute.
    Probation(usize),
}

impl Default for CrashHistory {
    fn default() -> Self {
        Self { version: VERSION, process: None, deaths: Vec::new(), suspects: Vec::new() }
    }
}

impl CrashHistory {
    /// Reads what an earlier process has left; nothing, if this program does not understand it.
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok().filter(|past: &Self| past.version == VERSION)
    }

    /// Whom the last process tried when it died.
    pub fn last_trial(&self) -> Option<Trial> {
        match self.process?.activity {
            ProcessActivity::Trying(trial) => Some(trial),
            ProcessActivity::Anything | ProcessActivity::BackingOff => None,
        }
    }

    /// A process takes the store over: if the one before has not ended well, that was a death. `step` is where the run that
    /// it tried stands now; `None` if that has ended.
    pub fn take_over(&mut self, (pid, now): (u32, Timestamp), step: Option<Seq>) {
        let before =
            self.process.replace(ProcessEntry { pid, since: now, activity: ProcessActivity::Anything });
        if let Some(before) = before {
            self.deaths.push(now);
            match before.activity {
                ProcessActivity::Anything => {}
                // Something else kills processes here, and may have killed them before.
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
        let known = self.suspects.iter().position(|blame| blame.run == trial.run);
        let before = known.map(|at| self.suspects.remove(at)).filter(|blame| blame.step == trial.step);
        if step != Some(trial.step) {
            return;
        }
        let before =
            before.unwrap_or(Suspect { run: trial.run, step: trial.step, early: 0, late: 0, lived_ms: 0 });
        // In company, a death only says whom to try first.
        let (early, late, lived_ms) = match (trial.is_alone, trial.has_min_uptime) {
            (false, _) => (0, 0, 0),
            (true, false) => (1, 0, lived_ms),
            (true, true) => (0, 1, lived_ms),
        };
        let (early, late) = (before.early.saturating_add(early), before.late.saturating_add(late));
        self.suspects.push(Suspect { early, late, lived_ms: lived_ms.max(before.lived_ms), ..before });
    }

    /// How the unfinished runs are to go on.
    pub fn resume_mode(&self) -> ResumeMode {
        if self.deaths.len() < DEATHS_FOR_PROBATION {
            ResumeMode::AllAtOnce
        } else {
            ResumeMode::Probation(self.deaths.len())
        }
    }

    /// The runs of which the process has died too often, and how often: each alone, at the same step.
    pub fn crash_looping(&self) -> Vec<(RunId, u32)> {
        let condemned = self.suspects.iter().filter(|blame| blame.late >= LATE_DEATHS_TO_FAIL);
        condemned.map(|blame| (blame.run, blame.early.saturating_add(blame.late))).collect()
    }

    /// The greater, the earlier a run is tried: so the next death finds it alone.
    pub fn suspicion_rank(&self, run: RunId) -> u32 {
        let weight = |blame: &Suspect| {
            blame.early.saturating_add(blame.late.saturating_mul(EARLY_DEATHS_FOR_BACKOFF)).saturating_add(1)
        };
        self.suspects.iter().find(|blame| blame.run == run).map_or(0, weight)
    }

    /// For how long the process is to rest before it lets this run go on, where it stands now: so that only who outlives
    /// the rest and dies of the run thereafter comes to the deaths that condemn.
    pub fn backoff_before(&self, trial: &Trial) -> Option<Duration> {
        let is_it = |blame: &&Suspect| blame.run == trial.run && blame.step == trial.step;
        let blame = self.suspects.iter().find(is_it)?;
        let rest_ms = blame.lived_ms.saturating_mul(BACKOFF_FACTOR).clamp(MIN_UPTIME_MS, MAX_BACKOFF_MS);
        (blame.late > 0 || blame.early >= EARLY_DEATHS_FOR_BACKOFF).then_some(Duration::from_millis(rest_ms))
    }

    /// Whom this process tries from now on, if anybody.
    pub fn set_trial(&mut self, trial: Option<Trial>) {
        self.set_activity(trial.map_or(ProcessActivity::Anything, ProcessActivity::Trying));
    }

    /// This process does nothing from now on.
    pub fn start_backoff(&mut self) {
        self.set_activity(ProcessActivity::BackingOff);
    }

    fn set_activity(&mut self, activity: ProcessActivity) {
        if let Some(process) = &mut self.process {
            process.activity = activity;
        }
    }

    /// Nothing counts against the run any more: it got on, has ended, or has done no harm for long.
    pub fn clear(&mut self, run: RunId) {
        self.suspects.retain(|blame| blame.run != run);
    }

    /// The process ends well. Whether there is something to be kept for the next one.
    pub fn end(&mut self, now: Timestamp) -> bool {
        self.process = None;
        self.forget_old(now);
        !(self.deaths.is_empty() && self.suspects.is_empty())
    }
}

/// At least as long as the process lived; if the clock was set back meanwhile, as long as may be.
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

    /// Processes that take over, try, and die; the last one takes over and is asked.
    fn died(deaths: &[(i64, Option<Trial>, Option<Seq>)], now: i64) -> CrashHistory {
        let mut past = CrashHistory::default();
        let mut step = None;
        for (at, trial, then) in deaths {
            past.take_over((1, Timestamp(*at)), step);
            past.set_trial(*trial);
            step = *then;
        }
        past.take_over((1, Timestamp(now)), step);
        past
    }

    #[test]
    fn three_deaths_within_a_minute_put_the_next_start_on_probation() {
        let check = |starts: &[i64], now: i64, expect: ResumeMode| {
            let deaths: Vec<_> = starts.iter().map(|at| (*at, None, None)).collect();
            assert_eq!(died(&deaths, now).resume_mode(), expect, "{starts:?} {now}");
        };
        check(&[], 0, ResumeMode::AllAtOnce);
        check(&[0, 1], 2, ResumeMode::AllAtOnce);
        check(&[0, 1, 2], 3, ResumeMode::Probation(3));
        check(&[0, 1, 30_000], 61_002, ResumeMode::AllAtOnce);
        check(&[0, 20_000, 40_000], 80_000, ResumeMode::Probation(3));
        check(&[0, 20_000, 40_001], 80_001, ResumeMode::AllAtOnce);
        // A clock that was set back makes no deaths of the future.
        check(&[50_000, 50_001], 0, ResumeMode::AllAtOnce);
    }

    #[test]
    fn a_process_that_ends_well_has_not_died() {
        let mut past = died(&[(0, None, None), (1, None, None)], 2);
        assert!(past.end(Timestamp(3)), "two deaths are remembered");
        past.take_over((1, Timestamp(4)), None);
        assert_eq!(past.resume_mode(), ResumeMode::AllAtOnce);
        assert!(!past.end(Timestamp(70_000)), "and forgotten");
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
        // It came further before it died, or ended.
        check(&[late, late, (long(A, 5), Some(6))], &[]);
        check(&[late, late, (long(A, 6), Some(6))], &[]);
        check(&[late, late, (long(A, 5), None)], &[]);
        // Who was not alone is not to blame; another's death says nothing.
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
        let mut past = died(&[(0, Some(long(A, 5)), Some(5)); 2], 1);
        past.start_backoff();
        assert_eq!(past.last_trial(), None);
        past.take_over((1, Timestamp(2)), None);
        assert_eq!((past.suspicion_rank(A), past.backoff_before(&trial(A, 5))), (0, None));
    }

    /// Starts again and again with one run, which makes no step, until that is condemned: at which start, if at any of so
    /// many. `dies` says how long the process of a start lives that rests for so long before the run goes on.
    fn condemned_at(starts: usize, dies: impl Fn(usize, Option<u64>) -> u64) -> Option<usize> {
        let (mut past, mut now) = (CrashHistory::default(), 0);
        for start in 0..starts {
            past.take_over((1, Timestamp(now)), Some(5));
            if !past.crash_looping().is_empty() {
                return Some(start);
            }
            let rest = match past.resume_mode() {
                ResumeMode::AllAtOnce => None,
                ResumeMode::Probation(_) => past.backoff_before(&trial(A, 5)),
            };
            let rest = rest.map(|rest| u64::try_from(rest.as_millis()).unwrap());
            let lived = dies(start, rest);
            match (past.resume_mode(), lived.checked_sub(rest.unwrap_or(0))) {
                (ResumeMode::AllAtOnce, _) => {}
                (ResumeMode::Probation(_), None) => past.start_backoff(),
                (ResumeMode::Probation(_), Some(tried)) => {
                    past.set_trial(Some(Trial {
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
        let past = died(&[(0, Some(in_company(A, 5)), Some(5)), (1, Some(trial(B, 2)), Some(2))], 2);
        assert_eq!((past.suspicion_rank(A), past.suspicion_rank(B)), (1, 2));
        assert_eq!(past.suspicion_rank(RunId::from_bits(3)), 0);
        let mut past = past;
        past.clear(B);
        assert_eq!(past.suspicion_rank(B), 0);
    }

    #[test]
    fn what_is_kept_is_read_again_and_nothing_else() {
        let past = died(&[(0, Some(long(A, 5)), Some(5))], 2);
        let json = serde_json::to_vec(&past).unwrap();
        assert_eq!(CrashHistory::parse(&json), Some(past));
        for other in ["", "{", "{}", r#"{"version":1,"process":null,"deaths":[],"blamed":[]}"#] {
            assert_eq!(CrashHistory::parse(other.as_bytes()), None, "{other}");
        }
    }
}
