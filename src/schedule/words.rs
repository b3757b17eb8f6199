//! A schedule as people write it: in a section of the configuration, in the options of a command, or in a request.

use std::{path::Path, sync::Arc, time::Duration};

use hermod_actors::{
    model::{
        AgentName, MAX_PAUSE_AFTER, MAX_SCHEDULE_TEXT_BYTES, Misfire, Overlap, ScheduleDefinition,
        ScheduleName, ScheduleRules, ScheduledTask, SessionId, Timestamp, Timing,
    },
    port::Calendar,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    SystemCalendar,
    text::{TimingWords, parse_time_in, zone_of},
};
use crate::{
    budget_limits::{BudgetLimits, millis, parse_duration},
    clock::rfc3339,
};

/// Most bytes of the key of a session.
const MAX_SESSION_BYTES: usize = 200;
/// The longest time of a rule: a year.
const MAX_RULE: Duration = Duration::from_hours(365 * 24);

/// A wrong part of a schedule: its name, and what is wrong with it.
pub type WrongPart = (&'static str, String);

/// What is written of a schedule; one of `every`, `cron` and `at` says when it is due.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleWords {
    /// The distance of its times, like `15m`; they count from the beginning of 1970 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// A cron expression: five fields, or six with seconds in front.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The only time, of RFC 3339 or without an offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The time zone, like `Europe/Berlin`; `UTC` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether it is the heartbeat of a standing agent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub heartbeat: bool,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The key of the session of all its runs; each has a new session without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The folder in which the tools work, an absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The targets that get the results, and notices of a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_to: Option<Vec<String>>,
    /// Active time after which a run is timed out, like `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Limits of each run, like `iterations=20,usd=0.50`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// What happens to late occurrences: `run_once`, `run_all` or `skip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfire: Option<String>,
    /// How late an occurrence may begin without being a misfire, like `1m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<String>,
    /// What happens to an occurrence during the run of an earlier one: `skip`, `queue` or `cancel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// The longest delay that is added to spread runs, like `30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
    /// The time from which it is not due any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// The number of failed runs in a row that pauses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub pause_after: Option<u32>,
}

impl ScheduleWords {
    /// The names of its parts.
    pub const NAMES: [&str; 19] = [
        "every",
        "cron",
        "at",
        "tz",
        "text",
        "heartbeat",
        "agent",
        "session",
        "model",
        "workspace",
        "deliver_to",
        "timeout",
        "budget",
        "misfire",
        "grace",
        "overlap",
        "jitter",
        "ends_at",
        "pause_after",
    ];

    /// When it is due, in a few words: `every 15m`, `0 6 * * * Europe/Berlin`, `at 2030-01-31T06:00:00.000Z`.
    pub fn when(&self) -> String {
        let Self { every, cron, at, tz, .. } = self;
        match (every, cron, at) {
            (Some(every), _, _) => format!("every {every}"),
            (None, Some(cron), _) => format!("{cron} {}", tz.as_deref().unwrap_or_default()),
            (None, None, Some(at)) => format!("at {at}"),
            (None, None, None) => String::new(),
        }
    }

    /// The definition of a schedule of this name. Whether its agent, its targets and its model are configured is not checked.
    pub fn definition(&self, name: &ScheduleName) -> Result<ScheduleDefinition, WrongPart> {
        let timing = TimingWords {
            every: self.every.as_deref(),
            cron: self.cron.as_deref(),
            at: self.at.as_deref(),
            zone: self.tz.as_deref(),
        };
        let definition =
            ScheduleDefinition { timing: timing.timing()?, task: self.task(name)?, rules: self.rules()? };
        check_timing(&definition.timing)?;
        Ok(definition)
    }

    fn task(&self, name: &ScheduleName) -> Result<ScheduledTask, WrongPart> {
        let text = self.text.as_deref().filter(|text| !text.trim().is_empty());
        let text = text.ok_or_else(|| ("text", "is missing; say what is to be done".to_owned()))?;
        if text.len() > MAX_SCHEDULE_TEXT_BYTES {
            let reason =
                format!("has {} bytes, and at most {MAX_SCHEDULE_TEXT_BYTES} are possible", text.len());
            return Err(("text", reason));
        }
        let agent = self
            .agent
            .as_deref()
            .map(|agent| agent.parse::<AgentName>().map_err(|error| ("agent", format!("`{agent}` {error}"))));
        let standing = || self.heartbeat.then(|| format!("schedule:{name}"));
        let session = self.session.clone().or_else(standing);
        session.as_deref().map_or(Ok(()), check_session).map_err(|reason| ("session", reason))?;
        if self.workspace.as_deref().is_some_and(|folder| !Path::new(folder).is_absolute()) {
            return Err(("workspace", "is no absolute path".to_owned()));
        }
        if let Some(budget) = &self.budget {
            budget.parse::<BudgetLimits>().map_err(|error| ("budget", error))?;
        }
        let timeout = self.timeout.as_deref().map(|text| rule_time("timeout", text)).transpose()?;
        Ok(ScheduledTask {
            text: text.into(),
            heartbeat: self.heartbeat,
            agent: agent.transpose()?,
            session: session.map(Into::into),
            model: self.model.as_deref().map(Into::into),
            workspace: self.workspace.as_deref().map(Into::into),
            deliver_to: self
                .deliver_to
                .as_ref()
                .map(|targets| targets.iter().map(|it| it.as_str().into()).collect()),
            timeout_ms: timeout,
            budget: self.budget.as_deref().map(Into::into),
        })
    }

    fn rules(&self) -> Result<ScheduleRules, WrongPart> {
        let default = ScheduleRules::default();
        let time =
            |name, text: &Option<String>| text.as_deref().map(|text| rule_time(name, text)).transpose();
        let misfire = chosen("misfire", self.misfire.as_deref(), &Misfire::ALL, Misfire::name)?;
        let overlap = chosen("overlap", self.overlap.as_deref(), &Overlap::ALL, Overlap::name)?;
        if self.heartbeat && overlap.is_some_and(|overlap| overlap != Overlap::Skip) {
            let reason = "a heartbeat is skipped while the one before is under way; leave it out";
            return Err(("overlap", reason.to_owned()));
        }
        if self.pause_after.is_some_and(|count| !(1..=MAX_PAUSE_AFTER).contains(&count)) {
            return Err(("pause_after", format!("is not from 1 to {MAX_PAUSE_AFTER}")));
        }
        let zone = zone_of(self.tz.as_deref()).map_err(|error| ("tz", error))?;
        let ends_at = self.ends_at.as_deref().map(|text| parse_time_in(text, &zone));
        Ok(ScheduleRules {
            misfire: misfire.unwrap_or_default(),
            grace_ms: time("grace", &self.grace)?.unwrap_or(default.grace_ms),
            overlap: overlap.unwrap_or_default(),
            jitter_ms: time("jitter", &self.jitter)?.unwrap_or(default.jitter_ms),
            ends_at: ends_at.transpose().map_err(|error| ("ends_at", error))?,
            pause_after: self.pause_after,
        })
    }
}

impl From<&ScheduleDefinition> for ScheduleWords {
    fn from(ScheduleDefinition { timing, task, rules }: &ScheduleDefinition) -> Self {
        let duration = |ms| humantime::format_duration(Duration::from_millis(ms)).to_string();
        let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        let default = ScheduleRules::default();
        let (mut every, mut cron, mut at, mut tz) = (None, None, None, None);
        match timing {
            Timing::Every { interval_ms, .. } => every = Some(duration(*interval_ms)),
            Timing::Cron { expression, zone } => {
                (cron, tz) = (Some(expression.to_string()), Some(zone.to_string()));
            }
            Timing::Once { at: time } => at = Some(rfc3339(*time)),
        }
        Self {
            every,
            cron,
            at,
            tz,
            text: Some(task.text.to_string()),
            heartbeat: task.heartbeat,
            agent: task.agent.as_ref().map(ToString::to_string),
            session: text(&task.session),
            model: text(&task.model),
            workspace: text(&task.workspace),
            deliver_to: task
                .deliver_to
                .as_ref()
                .map(|targets| targets.iter().map(ToString::to_string).collect()),
            timeout: task.timeout_ms.map(duration),
            budget: text(&task.budget),
            misfire: Some(rules.misfire.name().to_owned()),
            grace: Some(duration(rules.grace_ms)),
            overlap: Some(rules.overlap.name().to_owned()),
            jitter: (rules.jitter_ms != default.jitter_ms).then(|| duration(rules.jitter_ms)),
            ends_at: rules.ends_at.map(rfc3339),
            pause_after: rules.pause_after,
        }
    }
}

/// Checks that a timing can be read, and is due at some time. A single time may have passed: a configuration that still has
/// it is valid.
fn check_timing(timing: &Timing) -> Result<(), WrongPart> {
    match (timing, SystemCalendar.next(timing, Timestamp(0))) {
        (Timing::Cron { expression, .. }, Ok(None)) => {
            Err(("cron", format!("`{expression}` is never due: there is no such date")))
        }
        (Timing::Cron { .. }, Err(error)) => Err(("cron", error)),
        (Timing::Every { .. }, Err(error)) => Err(("every", error)),
        (Timing::Once { .. }, Err(error)) => Err(("at", error)),
        (_, Ok(_)) => Ok(()),
    }
}

/// A time of a rule in milliseconds, from 0 on.
fn rule_time(name: &'static str, text: &str) -> Result<u64, WrongPart> {
    let is_zero = text.trim().trim_end_matches(char::is_alphabetic) == "0" && name != "timeout";
    match parse_duration(text) {
        Ok(time) if time <= MAX_RULE => Ok(millis(time)),
        Ok(_) => Err((name, "is longer than 365days".to_owned())),
        Err(_) if is_zero => Ok(0),
        Err(error) => Err((name, error)),
    }
}

/// The rule of this name.
fn chosen<T: Copy>(
    part: &'static str,
    name: Option<&str>,
    all: &[T],
    name_of: fn(T) -> &'static str,
) -> Result<Option<T>, WrongPart> {
    let Some(name) = name else { return Ok(None) };
    let found = all.iter().copied().find(|rule| name_of(*rule) == name);
    let names = || all.iter().map(|rule| name_of(*rule)).collect::<Vec<_>>().join(", ");
    found.map(Some).ok_or_else(|| (part, format!("`{name}` is no such rule; there are: {}", names())))
}

/// A key of a session. An id would bind the schedule to a session that may be removed.
fn check_session(key: &str) -> Result<(), String> {
    if key.trim().is_empty() || key.trim() != key {
        return Err(format!("{key:?} is empty, or has spaces at its ends"));
    }
    if key.len() > MAX_SESSION_BYTES || key.chars().any(char::is_control) {
        return Err(format!("has more than {MAX_SESSION_BYTES} bytes, or control characters"));
    }
    if key.parse::<SessionId>().is_ok() {
        return Err(format!("{key:?} is the id of a session; give it a key of its own"));
    }
    Ok(())
}
