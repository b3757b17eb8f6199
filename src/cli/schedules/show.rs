//! Schedules and histories as people see them.

use hermod_actors::{
    SanitizedText,
    model::{Outcome, ScheduleSource, Timestamp},
};

use crate::{
    cli::{
        format::truncated_line,
        table::{self, or_dash},
    },
    clock::rfc3339,
    schedule::in_zone,
    view::{OccurrenceView, ScheduleView},
};

/// Characters of a text in a table.
const MAX_CHARS: usize = 60;

/// All schedules as a table.
pub(super) fn table(schedules: &[ScheduleView]) -> String {
    let cells = |schedule: &ScheduleView| {
        let last = schedule.last.as_ref().map(|last| format!("{} {}", rfc3339(last.at), fate(last)));
        [
            schedule.name.to_string(),
            next(schedule),
            schedule.definition.when(),
            or_dash(last),
            schedule.definition.agent.clone().unwrap_or_else(|| "default".to_owned()),
            source(schedule.source).to_owned(),
            truncated_line(schedule.definition.text.as_deref().unwrap_or_default(), MAX_CHARS),
        ]
    };
    let head = ["NAME", "NEXT", "WHEN", "LAST", "AGENT", "FROM", "TEXT"];
    table::render(head, &schedules.iter().map(cells).collect::<Vec<_>>())
}

/// One schedule, a part in each line.
pub(super) fn page(schedule: &ScheduleView) -> String {
    let words = &schedule.definition;
    let last = schedule.last.as_ref().map(|last| format!("{} {}", rfc3339(last.at), fate(last)));
    let targets = words.deliver_to.as_ref().map(|targets| targets.join(", "));
    let heartbeat = words.heartbeat.then(|| "yes: no answer needed".to_owned());
    let parts = [
        ("schedule", Some(schedule.name.to_string())),
        ("from", Some(source(schedule.source).to_owned())),
        ("when", Some(words.when())),
        ("next", Some(next(schedule))),
        ("last", last),
        ("agent", words.agent.clone()),
        ("session", words.session.clone()),
        ("model", words.model.clone()),
        ("folder", words.workspace.clone()),
        ("targets", targets),
        ("heartbeat", heartbeat),
        ("timeout", words.timeout.clone()),
        ("budget", words.budget.clone()),
        (
            "misfire",
            words.misfire.as_ref().map(|rule| format!("{rule}, {} grace", or_dash(words.grace.as_ref()))),
        ),
        ("overlap", words.overlap.clone()),
        ("jitter", words.jitter.clone()),
        ("ends", words.ends_at.clone()),
        ("pauses", words.pause_after.map(|count| format!("after {count} failed runs in a row"))),
    ];
    let lines = parts.into_iter().filter_map(|(name, value)| Some(format!("{name:<10}{}\n", shown(&value?))));
    let text = SanitizedText::sanitize(words.text.as_deref().unwrap_or_default()).to_string();
    lines.collect::<String>() + "\n" + &text
}

/// Occurrences as a table, the newest first.
pub(super) fn history(occurrences: &[OccurrenceView]) -> String {
    let cells = |occurrence: &OccurrenceView| {
        let reason = occurrence.reason.as_ref().map(|reason| truncated_line(reason, 2 * MAX_CHARS));
        let further = occurrence
            .further
            .as_ref()
            .map(|further| format!("; and {} more until {}", further.count, rfc3339(further.until)));
        [
            occurrence.schedule.to_string(),
            rfc3339(occurrence.at),
            occurrence.state.clone(),
            or_dash(occurrence.outcome.map(Outcome::name)),
            or_dash(occurrence.run),
            or_dash(reason) + &further.unwrap_or_default(),
        ]
    };
    let head = ["SCHEDULE", "AT", "STATE", "OUTCOME", "RUN", "REASON"];
    table::render(head, &occurrences.iter().map(cells).collect::<Vec<_>>())
}

/// The next time, in the zone of the schedule; or why there is none.
fn next(schedule: &ScheduleView) -> String {
    match (&schedule.paused, schedule.next) {
        (Some(paused), _) => format!("paused: {}", truncated_line(&paused.reason, MAX_CHARS)),
        (None, Some(next)) => time(next, schedule.definition.tz.as_deref()),
        (None, None) => "ended".to_owned(),
    }
}

fn time(at: Timestamp, zone: Option<&str>) -> String {
    zone.and_then(|zone| in_zone(at, zone)).unwrap_or_else(|| rfc3339(at))
}

/// What became of an occurrence, in a word or two.
fn fate(occurrence: &OccurrenceView) -> String {
    match occurrence.outcome {
        Some(outcome) => outcome.name().to_owned(),
        None if occurrence.run.is_some() => "under way".to_owned(),
        None => occurrence.state.clone(),
    }
}

const fn source(source: ScheduleSource) -> &'static str {
    match source {
        ScheduleSource::Config => "config",
        ScheduleSource::Command => "command",
    }
}

fn shown(value: &str) -> String {
    SanitizedText::strict(value).into_owned()
}
