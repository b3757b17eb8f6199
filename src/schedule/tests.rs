//! Next times over changes of clocks, at the ends of months, and of expressions that never fit.

use hermod_actors::{
    model::{Timestamp, Timing},
    port::Calendar,
};
use proptest::prelude::*;

use super::{
    ScheduleWords, SystemCalendar,
    text::{TimingWords, parse_time_in},
};

fn cron(expression: &str, zone: &str) -> Timing {
    Timing::Cron { expression: expression.into(), zone: zone.into() }
}

fn time(text: &str) -> Timestamp {
    parse_time_in(text, "UTC").unwrap()
}

/// Checks the times after `after`, one after another. Each is written with the offset of its zone.
#[track_caller]
fn check(expression: &str, zone: &str, after: &str, expect: &[&str]) {
    let timing = cron(expression, zone);
    let mut now = time(after);
    for expected in expect {
        let next = SystemCalendar.next(&timing, now).unwrap();
        assert_eq!(next, Some(time(expected)), "{expression} in {zone} after {now:?}: not {expected}");
        now = time(expected);
    }
}

#[test]
fn times_of_a_day_and_of_a_week() {
    check("0 6 * * *", "UTC", "2026-01-01T06:00Z", &["2026-01-02T06:00Z", "2026-01-03T06:00Z"]);
    check("0 6 * * *", "UTC", "2026-01-01T05:59:59.999Z", &["2026-01-01T06:00Z"]);
    check("0 6 * * *", "UTC", "2026-01-01T06:00:00.001Z", &["2026-01-02T06:00Z"]);
    check("0 6 * * mon-fri", "UTC", "2026-01-02T06:00Z", &["2026-01-05T06:00Z"]);
    check("30 8 * * *", "Europe/Berlin", "2026-01-01T00:00Z", &["2026-01-01T08:30+01:00"]);
    check("*/20 * * * * *", "UTC", "2026-01-01T00:00:10Z", &["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z"]);
    check("@daily", "UTC", "2026-01-01T12:00Z", &["2026-01-02T00:00Z"]);
    check("@HOURLY", "UTC", "2026-01-01T12:30Z", &["2026-01-01T13:00Z"]);
    check("0 0 * * 7", "UTC", "2026-01-01T00:00Z", &["2026-01-04T00:00Z"]);
}

#[test]
fn days_of_a_month() {
    check(
        "0 0 L * *",
        "UTC",
        "2026-02-01T00:00Z",
        &["2026-02-28T00:00Z", "2026-03-31T00:00Z", "2026-04-30T00:00Z"],
    );
    check("0 0 31 * *", "UTC", "2026-01-31T00:00Z", &["2026-03-31T00:00Z", "2026-05-31T00:00Z"]);
    check("0 0 29 2 *", "UTC", "2026-01-01T00:00Z", &["2028-02-29T00:00Z", "2032-02-29T00:00Z"]);
    check("0 0 29 2 *", "UTC", "2096-03-01T00:00Z", &["2104-02-29T00:00Z"]);
    check("0 9 * * mon#1", "UTC", "2026-01-01T00:00Z", &["2026-01-05T09:00Z", "2026-02-02T09:00Z"]);
    check("0 9 * * fri#L", "UTC", "2026-01-01T00:00Z", &["2026-01-30T09:00Z"]);
    // A day of the month or a day of the week.
    check(
        "0 0 13 * fri",
        "UTC",
        "2026-01-01T12:00Z",
        &["2026-01-02T00:00Z", "2026-01-09T00:00Z", "2026-01-13T00:00Z"],
    );
}

#[test]
fn a_fixed_time_that_is_skipped_is_due_at_the_change() {
    let berlin = ["2026-03-28T02:30+01:00", "2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"];
    check("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00Z", &berlin);
    // Several together, and with one that is there.
    check(
        "0,30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00Z",
        &["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"],
    );
    check(
        "0 2,3 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00Z",
        &["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"],
    );
    let new_york = ["2026-03-08T03:00-04:00", "2026-03-09T02:15-04:00"];
    check("15 2 * * *", "America/New_York", "2026-03-08T00:00Z", &new_york);
    // Half an hour: from 02:00 to 02:30.
    let lord_howe = ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"];
    check("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00Z", &lord_howe);
    // A whole day was skipped.
    check(
        "0 12 30 12 *",
        "Pacific/Apia",
        "2011-12-29T00:00Z",
        &["2011-12-30T10:00Z", "2012-12-30T12:00+14:00"],
    );
}

#[test]
fn a_fixed_time_that_comes_twice_is_due_the_first_time() {
    let berlin = ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"];
    check("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00+02:00", &berlin);
    check("30 2 * * *", "Europe/Berlin", "2026-10-25T02:10+01:00", &berlin[1..]);
    check("0 3 * * *", "Europe/Berlin", "2026-10-25T02:59+01:00", &["2026-10-25T03:00+01:00"]);
    check("0 2,3 * * *", "Europe/Berlin", "2026-10-25T02:00+02:00", &["2026-10-25T03:00+01:00"]);
    let new_york = ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"];
    check("30 1 * * *", "America/New_York", "2026-11-01T00:00-04:00", &new_york);
    let lord_howe = ["2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"];
    check("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00Z", &lord_howe);
}

#[test]
fn what_repeats_all_day_follows_the_time_that_passes() {
    let spring = ["2026-03-29T01:45+01:00", "2026-03-29T03:00+02:00", "2026-03-29T03:15+02:00"];
    check("*/15 * * * *", "Europe/Berlin", "2026-03-29T01:30+01:00", &spring);
    let autumn = [
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T02:30+01:00",
        "2026-10-25T03:00+01:00",
    ];
    check("*/30 * * * *", "Europe/Berlin", "2026-10-25T02:00+02:00", &autumn);
    check(
        "@hourly",
        "Europe/Berlin",
        "2026-10-25T01:00+02:00",
        &["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00"],
    );
    let lord_howe = ["2026-10-04T01:30+10:30", "2026-10-04T02:30+11:00", "2026-10-04T03:30+11:00"];
    check("30 * * * *", "Australia/Lord_Howe", "2026-10-04T00:30+10:30", &lord_howe);
    check("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", &["2026-03-30T02:00+02:00"]);
    check(
        "* * 29 2 *",
        "Europe/Berlin",
        "2026-03-01T00:00Z",
        &["2028-02-29T00:00+01:00", "2028-02-29T00:01+01:00"],
    );
}

#[test]
fn an_expression_that_never_fits_has_no_next_time() {
    for expression in ["0 0 30 2 *", "* * 30 2 *", "0 0 31 4,6,9,11 *", "* * * 31 feb *"] {
        for zone in ["UTC", "Europe/Berlin"] {
            assert_eq!(
                SystemCalendar.next(&cron(expression, zone), time("2026-01-01T00:00Z")),
                Ok(None),
                "{expression}"
            );
        }
    }
}

#[test]
fn what_is_no_expression_is_refused() {
    let check = |expression: &str, zone: &str, part: &str| {
        let error = SystemCalendar.next(&cron(expression, zone), Timestamp(0)).unwrap_err();
        assert!(error.contains(part), "{expression}: {error}");
    };
    check("", "UTC", "it has 0 fields");
    check("* * * *", "UTC", "it has 4 fields");
    check("0 0 0 1 1 * 2027", "UTC", "it has 7 fields");
    check("61 * * * *", "UTC", "`61 * * * *` is no cron expression");
    check("0 0 * * bad", "UTC", "is no cron expression");
    check("@reboot", "UTC", "it has 1 fields");
    check("0 0 * * ü", "UTC", "not ASCII");
    check(&"*".repeat(10_000), "UTC", "longer than 200");
    check("0 0 * * *", "Mars/Olympus", "there is no time zone `Mars/Olympus`");
    let once = Timing::Once { at: Timestamp(5) };
    assert_eq!(SystemCalendar.next(&once, Timestamp(4)), Ok(Some(Timestamp(5))));
    assert_eq!(SystemCalendar.next(&once, Timestamp(5)), Ok(None));
}

#[test]
fn an_interval_counts_from_its_anchor() {
    let check = |interval_ms, anchor, after, expect| {
        let timing = Timing::Every { interval_ms, anchor: Timestamp(anchor) };
        assert_eq!(
            SystemCalendar.next(&timing, Timestamp(after)),
            Ok(expect),
            "{interval_ms} {anchor} {after}"
        );
    };
    check(2_000, 0, 0, Some(Timestamp(2_000)));
    check(2_000, 0, 1_999, Some(Timestamp(2_000)));
    check(2_000, 0, 2_000, Some(Timestamp(4_000)));
    check(2_000, 500, -10_000, Some(Timestamp(2_500)));
    check(1_000, 0, i64::MAX, None);
    let short = Timing::Every { interval_ms: 999, anchor: Timestamp(0) };
    assert!(SystemCalendar.next(&short, Timestamp(0)).unwrap_err().contains("the shortest is 1000 ms"));
}

#[test]
fn timings_are_read() {
    let check = |words: TimingWords<'_>, expect: Result<Timing, (&str, &str)>| match (words.timing(), expect)
    {
        (Ok(timing), Ok(expect)) => assert_eq!(timing, expect),
        (Err((field, error)), Err((expect, part))) => {
            assert_eq!(field, expect, "{error}");
            assert!(error.contains(part), "{error}");
        }
        (found, expect) => panic!("expected {expect:?}, got {found:?}"),
    };
    let words = TimingWords::default();
    let once = |text: &str| Ok(Timing::Once { at: time(text) });
    check(
        TimingWords { every: Some("90m"), ..words },
        Ok(Timing::Every { interval_ms: 5_400_000, anchor: Timestamp(0) }),
    );
    let named = TimingWords { cron: Some(" @daily "), zone: Some("europe/berlin"), ..words };
    check(named, Ok(cron("@daily", "Europe/Berlin")));
    let local = TimingWords { at: Some("2030-07-01T06:00"), zone: Some("Europe/Berlin"), ..words };
    check(local, once("2030-07-01T04:00Z"));
    check(TimingWords { at: Some("2030-07-01T06:00:00-01:00"), ..words }, once("2030-07-01T07:00Z"));
    check(words, Err(("every", "say when it is due")));
    check(TimingWords { every: Some("1s"), cron: Some("@daily"), ..words }, Err(("cron", "leave one of")));
    check(
        TimingWords { at: Some("2030-07-01T06:00"), cron: Some("@daily"), ..words },
        Err(("at", "leave one of")),
    );
    check(TimingWords { every: Some("500ms"), ..words }, Err(("every", "from 1s to 365days")));
    check(TimingWords { every: Some("soon"), ..words }, Err(("every", "write it like")));
    check(TimingWords { every: Some("1h"), zone: Some("UTC"), ..words }, Err(("tz", "leave it out")));
    check(
        TimingWords { cron: Some("@daily"), zone: Some("Nowhere"), ..words },
        Err(("tz", "there is no time zone")),
    );
    check(TimingWords { at: Some("tomorrow"), ..words }, Err(("at", "is no time")));
}

/// A schedule with a time and a text, changed.
fn words(change: impl FnOnce(&mut ScheduleWords)) -> ScheduleWords {
    let (every, text) = (Some("15m".to_owned()), Some("Look".to_owned()));
    let mut words = ScheduleWords { every, text, ..ScheduleWords::default() };
    change(&mut words);
    words
}

#[test]
fn what_is_written_is_written_again() {
    let check = |words: ScheduleWords| {
        let definition = words.definition(&"night".parse().unwrap()).unwrap();
        let again = ScheduleWords::from(&definition);
        assert_eq!(again.definition(&"other".parse().unwrap()).unwrap(), definition, "{again:?}");
        (definition, again.when())
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(check(words(|_| ())).1, "every 15m");
    let standing = check(words(|it| it.heartbeat = true)).0;
    assert_eq!(standing.task.session.as_deref(), Some("schedule:night"));
    check(words(|it| (it.every, it.at) = (None, some("2030-07-01T06:00"))));
    let (_, when) = check(words(|it| {
        (it.every, it.cron, it.tz) = (None, some("30 2 * * *"), some("Europe/Berlin"));
        (it.agent, it.session, it.model) = (some("ops"), some("night"), some("a/b"));
        (it.workspace, it.deliver_to) = (some("/srv"), Some(vec!["ops".to_owned()]));
        (it.timeout, it.budget) = (some("10m"), some("iterations=20,usd=0.5"));
        (it.misfire, it.overlap, it.grace, it.jitter) =
            (some("run_all"), some("queue"), some("0s"), some("30s"));
        (it.ends_at, it.pause_after) = (some("2030-01-01T00:00"), Some(3));
    }));
    assert_eq!(when, "30 2 * * * Europe/Berlin");
}

#[test]
fn a_wrong_part_is_named() {
    let check = |change: fn(&mut ScheduleWords), field: &str, part: &str| {
        let (name, reason) = words(change).definition(&"night".parse().unwrap()).unwrap_err();
        assert_eq!(name, field, "{reason}");
        assert!(reason.contains(part), "{reason}");
    };
    check(|it| it.text = Some(" ".into()), "text", "say what is to be done");
    check(|it| it.text = Some("x".repeat(70_000)), "text", "at most 65536");
    check(|it| it.every = None, "every", "say when it is due");
    check(|it| (it.every, it.cron) = (None, Some("0 0 30 2 *".into())), "cron", "is never due");
    check(|it| (it.every, it.cron) = (None, Some("0 0".into())), "cron", "it has 2 fields");
    check(|it| it.agent = Some("A b".into()), "agent", "`A b`");
    check(|it| it.session = Some("01JZZZZZZZZZZZZZZZZZZZZZZZ".into()), "session", "the id of a session");
    check(|it| it.workspace = Some("x".into()), "workspace", "no absolute path");
    check(|it| it.budget = Some("x=1".into()), "budget", "cannot be limited");
    check(|it| it.timeout = Some("0s".into()), "timeout", "longer than 0");
    check(|it| it.misfire = Some("later".into()), "misfire", "there are: run_once, run_all, skip");
    check(|it| it.overlap = Some("later".into()), "overlap", "there are: skip, queue, cancel");
    check(
        |it| (it.heartbeat, it.overlap) = (true, Some("queue".into())),
        "overlap",
        "a heartbeat is skipped",
    );
    check(|it| it.grace = Some("2years".into()), "grace", "longer than 365days");
    check(|it| it.ends_at = Some("never".into()), "ends_at", "is no time");
    check(|it| it.pause_after = Some(0), "pause_after", "from 1 to 100");
}

const EXPRESSIONS: [&str; 10] = [
    "*/15 * * * *",
    "30 2 * * *",
    "0 1-3 * * *",
    "*/7 2 * * *",
    "0 0 L * *",
    "5,35 1,2 * * sun",
    "* * * * * *",
    "17 30 2 * * *",
    "0 12 29 2 *",
    "0 0 1 1 *",
];
const ZONES: [&str; 5] = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"];

proptest! {
    /// A next time is after the time that it was asked for, and no time between has an earlier one.
    #[test]
    fn next_times_only_grow(
        expression in proptest::sample::select(&EXPRESSIONS[..]),
        zone in proptest::sample::select(&ZONES[..]),
        after in 0_i64..4_102_444_800_000,
        part in 0.0..1.0_f64,
    ) {
        let timing = cron(expression, zone);
        let next = SystemCalendar.next(&timing, Timestamp(after)).unwrap().unwrap();
        prop_assert!(next.0 > after);
        prop_assert_eq!(next.0 % 1_000, 0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "any time between will do")]
        let between = after + ((next.0 - after - 1) as f64 * part) as i64;
        prop_assert_eq!(SystemCalendar.next(&timing, Timestamp(between)).unwrap(), Some(next));
    }

    #[test]
    fn any_text_is_an_expression_or_an_error(text in "[ -~]{0,40}", zone in "[A-Za-z/]{0,12}") {
        // None of these panics.
        let _ = SystemCalendar.next(&cron(&text, "UTC"), Timestamp(0));
        prop_assert!(zone == "UTC" || SystemCalendar.next(&cron("@daily", &zone), Timestamp(0)) != Ok(None));
    }
}
