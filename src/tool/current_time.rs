//! The tool `current_time`: the time in UTC, and the weekday.

use std::time::{Duration, UNIX_EPOCH};

use hermod_actors::model::{CallEnd, EffectClass, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::{ToolContext, TypedTool};

const DAY_MS: u64 = 86_400_000;
/// The epoch began on a Thursday.
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Reports the current time.
#[derive(Debug)]
pub(super) struct CurrentTime;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {}

impl TypedTool for CurrentTime {
    const NAME: &'static str = "current_time";
    const DESCRIPTION: &'static str = "Says the time: {utc, weekday}, as RFC 3339 in UTC.";
    const EFFECT: EffectClass = EffectClass::Pure;
    // A model that waits for a time asks again, also within a second.
    const POLLS: bool = true;
    type Arguments = Arguments;

    async fn run(_: Arguments, context: ToolContext) -> CallEnd {
        CallEnd::ok(format_time(context.now))
    }
}

fn format_time(now: Timestamp) -> String {
    let ms = now.ms_since(Timestamp::default());
    let utc = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)).to_string();
    let weekday = WEEKDAYS[usize::try_from(ms / DAY_MS % 7).unwrap_or_default()];
    serde_json::json!({ "utc": utc, "weekday": weekday }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weekday_is_that_of_the_day() {
        let check = |ms: i64, utc: &str, weekday: &str| {
            assert_eq!(format_time(Timestamp(ms)), format!(r#"{{"utc":"{utc}","weekday":"{weekday}"}}"#));
        };
        check(0, "1970-01-01T00:00:00Z", "Thursday");
        check(86_399_999, "1970-01-01T23:59:59Z", "Thursday");
        check(1_767_225_600_000, "2026-01-01T00:00:00Z", "Thursday");
        check(951_782_400_000, "2000-02-29T00:00:00Z", "Tuesday");
        check(1_700_000_000_123, "2023-11-14T22:13:20Z", "Tuesday");
    }
}
