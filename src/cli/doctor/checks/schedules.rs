//! The check of schedules: whether each is due at some time, and what was left out of late.

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::{
    model::{ScheduleDefinition, Timestamp},
    port::Calendar,
};

use super::store::client;
use crate::{
    cli::doctor::check::{Examination, Finding},
    clock::{self, rfc3339},
    control::{ControlRequest, ControlResponse},
    host::{HostError, StoreClient, unexpected_response},
    schedule::SystemCalendar,
    view::{OccurrenceView, ScheduleView},
};

/// The time in which what was missed is of interest, in milliseconds: a day.
const RECENT_MS: u64 = 24 * 60 * 60 * 1_000;
/// How long an occurrence may be due before that is strange, in milliseconds.
const MAX_DELAY_MS: u64 = 5 * 60 * 1_000;
/// Rows of the history that are read.
const MAX_ROWS: usize = 1_000;

/// Whether schedules are due, and begin when they are.
pub(in crate::cli::doctor) fn schedules(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let found = match client(examination) {
            None => return vec![Finding::skipped("schedules", "there is no store")],
            Some(Ok(client)) => read(&client).await,
            Some(Err(error)) => Err(error),
        };
        match found {
            Err(error) => vec![Finding::fail("schedules", error.to_string(), "see the check of the store")],
            Ok((schedules, _)) if schedules.is_empty() => {
                vec![Finding::skipped("schedules", "there are none")]
            }
            Ok((schedules, history)) => {
                schedules.iter().map(|schedule| check(schedule, &history, clock::now())).collect()
            }
        }
    }
    .boxed()
}

async fn read(client: &StoreClient) -> Result<(Vec<ScheduleView>, Vec<OccurrenceView>), HostError> {
    let ControlResponse::Schedules(schedules) = client.request(&ControlRequest::SchedulesList {}).await?
    else {
        return Err(unexpected_response().into());
    };
    let since = Some(Timestamp(clock::now().0.saturating_sub_unsigned(RECENT_MS)));
    let request = ControlRequest::SchedulesHistory { name: None, since, max: MAX_ROWS };
    let ControlResponse::Occurrences(history) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    Ok((schedules, history))
}

fn check(schedule: &ScheduleView, history: &[OccurrenceView], now: Timestamp) -> Finding {
    let name = schedule.name.as_str();
    if let Some(paused) = &schedule.paused {
        let value = format!("it is paused since {}: {}", rfc3339(paused.since), paused.reason);
        return Finding::warn(name, value, format!("`hermod schedules resume {name}` lets it go on"));
    }
    let definition = schedule.definition.definition(&schedule.name);
    let timing = definition.map(|ScheduleDefinition { timing, .. }| timing);
    let next = match &timing {
        Ok(timing) => SystemCalendar.next(timing, now),
        Err((part, reason)) => Err(format!("{part}: {reason}")),
    };
    if let Err(error) = next {
        return Finding::fail(
            name,
            error,
            format!("make it anew: `hermod schedules add {name} --replace …`"),
        );
    }
    if let Some(next) = schedule.next.filter(|next| now.ms_since(*next) > MAX_DELAY_MS) {
        let value = format!("it was due at {}, and has not begun", rfc3339(next));
        return Finding::warn(name, value, "start `hermod serve`, or see its log if it runs");
    }
    let missed: u64 = history
        .iter()
        .filter(|row| row.schedule == schedule.name && row.state == "missed")
        .map(OccurrenceView::count)
        .sum();
    if missed > 0 {
        let value = format!("it was missed {missed} times in the last day");
        return Finding::warn(name, value, format!("`hermod schedules history {name}` says why"));
    }
    let next =
        schedule.next.map_or_else(|| "not due any more".to_owned(), |next| format!("next {}", rfc3339(next)));
    Finding::ok(name, next)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::doctor::check::CheckResult;

    const NOW: &str = "2026-01-02T00:00:00.000Z";

    fn schedule(change: serde_json::Value) -> ScheduleView {
        let mut view = json!({
            "name": "night", "source": "command", "created_at": NOW, "next": "2026-01-02T06:00:00.000Z",
            "definition": { "cron": "0 6 * * *", "tz": "UTC", "text": "Look" },
        });
        let fields = change.as_object().unwrap().clone();
        view.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn what_is_wrong_is_found() {
        let missed: OccurrenceView = serde_json::from_value(json!({
            "schedule": "night", "at": NOW, "state": "missed", "reason": "late", "recorded_at": NOW,
            "further": { "count": 4, "until": NOW },
        }))
        .unwrap();
        let now = missed.at;
        let check = |change, history: &[OccurrenceView], result, part: &str| {
            let finding = check(&schedule(change), history, now);
            assert_eq!(finding.result, result, "{finding:?}");
            assert!(finding.value.contains(part), "{finding:?}");
        };
        check(json!({}), &[], CheckResult::Ok, "next 2026-01-02T06:00");
        check(json!({ "next": null }), &[], CheckResult::Ok, "not due any more");
        check(json!({}), &[missed], CheckResult::Warn, "missed 5 times");
        check(json!({ "next": "2026-01-01T06:00:00.000Z" }), &[], CheckResult::Warn, "has not begun");
        check(
            json!({ "paused": { "since": NOW, "reason": "3 failed" } }),
            &[],
            CheckResult::Warn,
            "3 failed",
        );
        let lost = json!({ "cron": "0 6 * * *", "tz": "Mars", "text": "Look" });
        check(json!({ "definition": lost }), &[], CheckResult::Fail, "there is no time zone `Mars`");
    }
}
