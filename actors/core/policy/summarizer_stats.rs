//! Statistics of the models that write summaries, and the advice that follows from them. It names the order of the
//! models, and when a summary that no run waits for begins. Without statistics the advice is the chain's order and an
//! immediate start. Also how soon a run needs its summary, and the report of an attempt.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    model::{FailureClass, ModelRef},
    policy::{Candidate, FailureScope, failure_scope},
};

/// Most models with statistics; reports of further ones are ignored.
const MAX_SUMMARIZERS: usize = 1_000;
/// An observation counts one `WEIGHT`th of the mean.
const WEIGHT: u64 = 4;
/// Attempts before a summariser may be called poor.
const MIN_ATTEMPTS: u64 = 3;
/// Share of failures, and of the bytes that summaries keep, above which a summariser is poor, in thousandths.
const POOR_PERMILLE: u64 = 500;
/// Milliseconds after its last attempt for which a poor summariser comes after the others.
const POOR_MS: u64 = 600_000;
/// A summary begins when the view reaches this share of its trigger, whatever the statistics say.
const LATEST_FILL_PERCENT: u64 = 85;
/// A summary begins when the remaining time is at most this multiple of the usual duration.
const DURATION_MARGIN: u64 = 3;

/// How soon a run needs the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryUrgency {
    /// The run waits for it.
    Foreground,
    /// The run continues meanwhile.
    Background(ViewGrowth),
}

/// How far a view is from the trigger, where its run has to wait for a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewGrowth {
    /// Size of the view in percent of the trigger.
    pub fill_percent: u64,
    /// Milliseconds until the iteration before the trigger, at the rate since the last compaction; `None` if the rate
    /// is unknown.
    pub slack_ms: Option<u64>,
}

/// The end of an attempt at a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryReport {
    /// The summariser.
    pub model: ModelRef,
    /// Milliseconds that the attempt took.
    pub ms: u64,
    /// The result.
    pub result: SummaryResult,
}

/// The result of an attempt at a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryResult {
    /// A usable summary.
    Usable {
        /// Bytes of the request.
        read: u64,
        /// Bytes of the summary.
        written: u64,
    },
    /// An unusable text, or a failure that tells something about the summariser.
    Failed,
}

impl SummaryResult {
    /// The result of a failed attempt; `None` if the failure says nothing about how well the model summarises.
    pub fn of_failure(class: &FailureClass) -> Option<Self> {
        let scope = failure_scope(class);
        let is_of_model = scope.counts_against_provider() && scope != FailureScope::Account;
        is_of_model.then_some(Self::Failed)
    }
}

/// Statistics of one summariser since the Compressor was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummarizerStatus {
    /// The model, as `provider/model`.
    pub model: ModelRef,
    /// Attempts that tell something about it.
    pub attempts: u64,
    /// Attempts without a usable summary; included in `attempts`.
    pub failed: u64,
    /// Usual milliseconds of an attempt with a usable summary; absent without one.
    pub usual_ms: Option<u64>,
    /// Usual size of a summary in percent of the request that it was made from; absent without one.
    pub kept_percent: Option<u64>,
    /// Whether other summarisers are called first at present.
    pub is_poor: bool,
}

/// Statistics of all summarisers.
#[derive(Debug, Default)]
pub struct SummarizerStats(BTreeMap<ModelRef, SummarizerRecord>);

#[derive(Debug, Default)]
struct SummarizerRecord {
    attempts: u64,
    failed: u64,
    /// Weighted share of failures, in thousandths.
    failed_permille: u64,
    /// Weighted means of the usable summaries: milliseconds of the attempt, and thousandths of the request's bytes that
    /// the summary keeps.
    usual: Option<(u64, u64)>,
    /// Monotonic time of the last report, in milliseconds.
    last_ms: u64,
}

impl SummarizerStats {
    /// Counts the end of an attempt.
    pub fn apply(&mut self, report: &SummaryReport, now_ms: u64) {
        if self.0.len() >= MAX_SUMMARIZERS && !self.0.contains_key(&report.model) {
            return;
        }
        let record = self.0.entry(report.model.clone()).or_default();
        record.attempts += 1;
        record.last_ms = now_ms;
        let failed = match report.result {
            SummaryResult::Usable { read, written } => {
                let kept = written.saturating_mul(1_000) / read.max(1);
                let (ms, mean_kept) = record.usual.unwrap_or((report.ms, kept));
                record.usual = Some((weighted(ms, report.ms), weighted(mean_kept, kept)));
                0
            }
            SummaryResult::Failed => {
                record.failed += 1;
                1_000
            }
        };
        record.failed_permille = weighted(record.failed_permille, failed);
    }

    /// The candidates in the order in which they should be called: poor ones last, else in their own order.
    pub fn in_advised_order(&self, mut candidates: Vec<Candidate>, now_ms: u64) -> Vec<Candidate> {
        candidates.sort_by_key(|link| self.0.get(&link.model).is_some_and(|record| record.is_poor(now_ms)));
        candidates
    }

    /// Whether a summary should begin now. A foreground one always should.
    pub fn should_begin(&self, urgency: SummaryUrgency, candidates: &[Candidate], now_ms: u64) -> bool {
        let SummaryUrgency::Background(ViewGrowth { fill_percent, slack_ms }) = urgency else { return true };
        let is_poor =
            |link: &&Candidate| self.0.get(&link.model).is_some_and(|record| record.is_poor(now_ms));
        let first = candidates.iter().find(|link| !is_poor(link)).or_else(|| candidates.first());
        let usual = first.and_then(|link| self.0.get(&link.model)?.usual);
        let (Some((ms, _)), Some(slack_ms)) = (usual, slack_ms) else { return true };
        fill_percent >= LATEST_FILL_PERCENT || slack_ms <= ms.saturating_mul(DURATION_MARGIN)
    }

    /// The statistics, by model.
    pub fn statuses(&self, now_ms: u64) -> Vec<SummarizerStatus> {
        let status = |(model, record): (&ModelRef, &SummarizerRecord)| SummarizerStatus {
            model: model.clone(),
            attempts: record.attempts,
            failed: record.failed,
            usual_ms: record.usual.map(|(ms, _)| ms),
            kept_percent: record.usual.map(|(_, kept)| kept / 10),
            is_poor: record.is_poor(now_ms),
        };
        self.0.iter().map(status).collect()
    }
}

impl SummarizerRecord {
    /// Whether other summarisers should be called first. A poor one is tried again after `POOR_MS`: it may be better
    /// then.
    fn is_poor(&self, now_ms: u64) -> bool {
        let kept = self.usual.map_or(0, |(_, kept)| kept);
        self.attempts >= MIN_ATTEMPTS
            && now_ms.saturating_sub(self.last_ms) < POOR_MS
            && (self.failed_permille > POOR_PERMILLE || kept > POOR_PERMILLE)
    }
}

/// The mean with one more value.
const fn weighted(mean: u64, value: u64) -> u64 {
    (mean.saturating_mul(WEIGHT - 1).saturating_add(value)) / WEIGHT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::LinkVisit;

    const GOOD: SummaryResult = SummaryResult::Usable { read: 10_000, written: 1_000 };
    const LONG: SummaryResult = SummaryResult::Usable { read: 10_000, written: 6_000 };
    const FAILED: SummaryResult = SummaryResult::Failed;

    fn chain(models: &str) -> Vec<Candidate> {
        let link = |model: &str| Candidate {
            model: model.parse().expect("a model"),
            visit: LinkVisit::First,
            tokens: 0,
        };
        models.split(' ').map(link).collect()
    }

    /// Statistics of `p/a` after these results, each of 10 s; the last one at time 0.
    fn stats(results: &[SummaryResult]) -> SummarizerStats {
        let mut stats = SummarizerStats::default();
        let model: ModelRef = "p/a".parse().expect("a model");
        for result in results {
            stats.apply(&SummaryReport { model: model.clone(), ms: 10_000, result: *result }, 0);
        }
        stats
    }

    #[track_caller]
    fn check_order(results: &[SummaryResult], now_ms: u64, expect: &str) {
        let advised = stats(results).in_advised_order(chain("p/a p/b p/c"), now_ms);
        let advised: Vec<String> = advised.iter().map(|link| link.model.to_string()).collect();
        assert_eq!(advised.join(" "), expect, "{results:?}");
    }

    #[test]
    fn a_poor_summariser_is_called_after_the_others_for_a_while() {
        let (own, last) = ("p/a p/b p/c", "p/b p/c p/a");
        check_order(&[], 0, own);
        check_order(&[FAILED, FAILED], 0, own);
        check_order(&[FAILED, FAILED, FAILED], 0, last);
        check_order(&[FAILED, FAILED, FAILED], POOR_MS, own);
        check_order(&[GOOD, FAILED, GOOD, FAILED, GOOD], 0, own);
        check_order(&[FAILED, FAILED, FAILED, GOOD, GOOD], 0, own);
        check_order(&[LONG, LONG], 0, own);
        check_order(&[LONG, LONG, LONG], 0, last);
        check_order(&[GOOD, GOOD, LONG], 0, own);
    }

    #[track_caller]
    fn check_begin(results: &[SummaryResult], fill_percent: u64, slack_ms: Option<u64>, expect: bool) {
        let urgency = SummaryUrgency::Background(ViewGrowth { fill_percent, slack_ms });
        let begins = stats(results).should_begin(urgency, &chain("p/a p/b"), 0);
        assert_eq!(begins, expect, "{results:?} at {fill_percent} %, {slack_ms:?} ms left");
    }

    #[test]
    fn a_summary_ahead_begins_when_its_usual_duration_demands_it() {
        check_begin(&[], 70, Some(u64::MAX), true);
        check_begin(&[FAILED], 70, Some(u64::MAX), true);
        check_begin(&[GOOD], 70, None, true);
        check_begin(&[GOOD], 70, Some(30_001), false);
        check_begin(&[GOOD], 70, Some(30_000), true);
        check_begin(&[GOOD], 84, Some(30_001), false);
        check_begin(&[GOOD], 85, Some(30_001), true);
        // The next candidate is called instead of a poor one, and it has no statistics.
        check_begin(&[GOOD, FAILED, FAILED, FAILED], 70, Some(30_001), true);
        assert!(stats(&[GOOD]).should_begin(SummaryUrgency::Foreground, &chain("p/a"), 0));
    }

    #[test]
    fn statistics_weigh_the_latest_attempts_most() {
        let [status] = &stats(&[GOOD, LONG, FAILED]).statuses(0)[..] else { panic!("one model") };
        assert_eq!((status.attempts, status.failed), (3, 1));
        assert_eq!((status.usual_ms, status.kept_percent), (Some(10_000), Some(22)));
        assert!(!status.is_poor);
    }

    #[test]
    fn failures_of_the_account_or_this_process_say_nothing_about_a_summariser() {
        let check = |class: FailureClass, expect: Option<SummaryResult>| {
            assert_eq!(SummaryResult::of_failure(&class), expect, "{class:?}");
        };
        check(FailureClass::Cancelled, None);
        check(FailureClass::Lost, None);
        check(FailureClass::Auth, None);
        check(FailureClass::Server, Some(FAILED));
        check(FailureClass::ContentRefused, Some(FAILED));
    }

    #[test]
    fn the_number_of_models_is_bounded() {
        let mut stats = SummarizerStats::default();
        for n in 0..=MAX_SUMMARIZERS {
            let model = ModelRef::new("p", format!("m{n}")).expect("a model");
            stats.apply(&SummaryReport { model, ms: 1, result: GOOD }, 0);
        }
        assert_eq!(stats.statuses(0).len(), MAX_SUMMARIZERS);
    }
}
