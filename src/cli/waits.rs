//! Formats the waits of a run for people: a line for `hermod runs show`, and a short form for `hermod tree`.

use hermod_actors::model::{ByteSize, CallId, RunId, RunWait, Timestamp, WaitKind};

use super::format::{age, seconds};
use crate::clock::rfc3339;

/// A line of `hermod runs show`.
pub(crate) fn format_wait(wait: &RunWait, run: RunId, now: Timestamp) -> String {
    let (since, took) = (rfc3339(wait.since), seconds(now.ms_since(wait.since)));
    if let WaitKind::Limit { limit_ms, outcome } = &wait.kind {
        let until = wait.until.map_or_else(|| "-".to_owned(), rfc3339);
        let limit = seconds(*limit_ms);
        return format!("time limit  {limit} of active time since {since}, ends as {outcome} at {until}\n");
    }
    let text = format_subject(&wait.kind);
    let end = if wait.kind == WaitKind::NoProcess {
        format!("; no process runs it: `hermod runs resume {run}`")
    } else if let WaitKind::Retry { failure, .. } | WaitKind::Reset { failure, .. } = &wait.kind {
        let until = wait.until.map_or_else(String::new, |until| format!(", until {}", rfc3339(until)));
        failure.iter().fold(until, |until, failure| format!("{until}; {failure}"))
    } else if let Some(until) = wait.until {
        format!(", gives up at {}", rfc3339(until))
    } else {
        format!(", no end of its own: {}", wait.kind.describe_end())
    };
    format!("waiting     for {text} since {since} ({took}){end}\n")
}

/// The current work or wait of a run and its duration, for `hermod tree`; `None` without any.
pub(crate) fn format_short(waits: &[RunWait], now: Timestamp) -> Option<String> {
    let mut waits: Vec<_> =
        waits.iter().filter(|wait| !matches!(wait.kind, WaitKind::Limit { .. })).collect();
    // Several calls may delegate; their subagents are counted together.
    let subagent_count = waits.iter().map(|wait| subagents_left(&wait.kind)).sum();
    let mut is_first = true;
    waits.retain(|wait| subagents_left(&wait.kind) == 0 || std::mem::take(&mut is_first));
    // A wait for a person comes first: starting a process would not help such a run.
    let person = waits.iter().find(|wait| matches!(wait.kind, WaitKind::Person { .. }));
    let first = person.or(waits.first())?;
    let until = || first.until.map_or_else(String::new, |until| format!(" until {}", rfc3339(until)));
    let text = match &first.kind {
        WaitKind::NoProcess => "no process runs it".to_owned(),
        WaitKind::Queue { behind } => format!("behind {behind}"),
        WaitKind::Collect => "for further messages".to_owned(),
        WaitKind::Lane { lane } => format!("for a place in the lane `{}`", lane.name()),
        WaitKind::Hooks => "for hooks".to_owned(),
        WaitKind::Model { model, attempt: 1 } => format!("asks {model}"),
        WaitKind::Model { model, attempt } => format!("asks {model}, attempt {attempt},"),
        WaitKind::Retry { attempt, .. } => format!("tries again, attempt {attempt},"),
        WaitKind::Reset { .. } => format!("waits for a reset{}", until()),
        WaitKind::Lease { .. } => "waits for leave to ask".to_owned(),
        WaitKind::Permit { tool, .. } => format!("waits for leave to run {tool}"),
        WaitKind::Conflict { tool, .. } => format!("keeps {tool} in order"),
        WaitKind::Tool { tool, .. } => format!("runs {tool}"),
        WaitKind::Children { .. } => format!("waits for {}", subagents(subagent_count)),
        WaitKind::Person { .. } => "asks a person".to_owned(),
        WaitKind::Memory => "writes what it remembers".to_owned(),
        WaitKind::Verify => "checks what it is expected to leave".to_owned(),
        WaitKind::Stop => "stops".to_owned(),
        WaitKind::Disk { full: Some(_) } => "waits for room on the disk".to_owned(),
        WaitKind::Disk { full: None } | WaitKind::Limit { .. } => "waits for the disk".to_owned(),
    };
    let more = waits.len() - 1;
    let more = if more > 0 { format!(", {more} more") } else { String::new() };
    Some(format!("{text} {}{more}", age(now.ms_since(first.since))))
}

const fn subagents_left(kind: &WaitKind) -> u32 {
    if let WaitKind::Children { left, .. } = kind { *left } else { 0 }
}

fn subagents(left: u32) -> String {
    format!("{left} subagent{}", if left == 1 { "" } else { "s" })
}

fn format_subject(kind: &WaitKind) -> String {
    match kind {
        WaitKind::NoProcess => "a process".to_owned(),
        WaitKind::Queue { behind } => format!("run {behind}, which goes first,"),
        WaitKind::Collect => "further messages".to_owned(),
        WaitKind::Lane { lane } => format!("a place in the lane `{}`", lane.name()),
        WaitKind::Hooks => "hooks that decide whether it begins".to_owned(),
        WaitKind::Model { model, attempt } => format!("the answer of {model}, attempt {attempt},"),
        WaitKind::Retry { attempt, .. } => format!("attempt {attempt} at the model"),
        WaitKind::Reset { .. } => "a time that the provider has named,".to_owned(),
        WaitKind::Lease { attempt } => format!("leave to ask a model, attempt {attempt},"),
        WaitKind::Permit { call, tool } => format!("leave to run {tool}, call {},", call_number(*call)),
        WaitKind::Conflict { call, tool, behind } => {
            format!("call {}, behind which {tool}, call {}, goes,", call_number(*behind), call_number(*call))
        }
        WaitKind::Tool { call, tool, .. } => format!("{tool}, call {},", call_number(*call)),
        WaitKind::Person { call } => format!("a person (`hermod approvals allow {call}` or `deny {call}`)"),
        WaitKind::Children { call, left } => format!("{}, call {},", subagents(*left), call_number(*call)),
        WaitKind::Memory => "the write of what it remembers,".to_owned(),
        WaitKind::Verify => "the check of what it is expected to leave".to_owned(),
        WaitKind::Stop => "its calls to end".to_owned(),
        WaitKind::Disk { full: None } => "the disk".to_owned(),
        WaitKind::Disk { full: Some(full) } => {
            format!("the disk, which is full ({} for {}),", ByteSize(full.needed_bytes), full.path)
        }
        WaitKind::Limit { .. } => "its time to be over".to_owned(),
    }
}

/// A call's number within its run, as in the progress lines.
fn call_number(call: CallId) -> String {
    format!("{}.{}", call.iteration, call.n)
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{DiskFull, Failure, FailureClass, Outcome};

    use super::*;

    #[track_caller]
    fn check(what: WaitKind, until: Option<i64>, expect: &str, in_tree: &str) {
        let run = RunId::from_bits(1);
        let wait = RunWait { kind: what, since: Timestamp(1_000), until: until.map(Timestamp) };
        let now = Timestamp(13_000);
        let expect = expect.replace("SINCE", "since 1970-01-01T00:00:01.000Z");
        assert_eq!(format_wait(&wait, run, now), format!("{expect}\n"));
        assert_eq!(format_short(&[wait], now).unwrap_or_default(), in_tree);
    }

    const RUN: RunId = RunId::from_bits(2);
    const CALL: CallId = CallId { run: RUN, iteration: 3, n: 2 };

    #[test]
    fn a_wait_is_told_with_its_beginning_and_its_end() {
        let failure = Some(Failure::new(FailureClass::Overloaded, "no room"));
        check(
            WaitKind::Model { model: "p/m".parse().unwrap(), attempt: 2 },
            Some(60_000),
            "waiting     for the answer of p/m, attempt 2, SINCE (12.0 s), gives up at 1970-01-01T00:01:00.000Z",
            "asks p/m, attempt 2, 12s",
        );
        check(
            WaitKind::Retry { attempt: 2, failure: failure.clone() },
            Some(60_000),
            "waiting     for attempt 2 at the model SINCE (12.0 s), until 1970-01-01T00:01:00.000Z; overloaded: no room",
            "tries again, attempt 2, 12s",
        );
        check(
            WaitKind::Reset { attempt: 2, failure },
            Some(60_000),
            "waiting     for a time that the provider has named, SINCE (12.0 s), until 1970-01-01T00:01:00.000Z; \
             overloaded: no room",
            "waits for a reset until 1970-01-01T00:01:00.000Z 12s",
        );
        check(
            WaitKind::Tool { call: CALL, tool: "shell".into(), attempt: 1 },
            Some(60_000),
            "waiting     for shell, call 3.2, SINCE (12.0 s), gives up at 1970-01-01T00:01:00.000Z",
            "runs shell 12s",
        );
        check(
            WaitKind::Stop,
            Some(4_000),
            "waiting     for its calls to end SINCE (12.0 s), gives up at 1970-01-01T00:00:04.000Z",
            "stops 12s",
        );
        check(
            WaitKind::Limit { limit_ms: 600_000, outcome: Outcome::TimedOut },
            Some(601_000),
            "time limit  600.0 s of active time SINCE, ends as timed_out at 1970-01-01T00:10:01.000Z",
            "",
        );
    }

    #[test]
    fn a_wait_without_an_end_says_why() {
        let tool = || "shell".to_owned();
        let process = "waiting     for a process SINCE (12.0 s); no process runs it: `hermod runs resume \
                       00000000000000000000000001`";
        check(WaitKind::NoProcess, None, process, "no process runs it 12s");
        check(
            WaitKind::Queue { behind: RUN },
            None,
            "waiting     for run 00000000000000000000000002, which goes first, SINCE (12.0 s), no end of its own: that \
             run has limits of its own",
            &format!("behind {RUN} 12s"),
        );
        check(
            WaitKind::Lease { attempt: 1 },
            None,
            "waiting     for leave to ask a model, attempt 1, SINCE (12.0 s), no end of its own: the calls that have it \
             have deadlines",
            "waits for leave to ask 12s",
        );
        check(
            WaitKind::Permit { call: CALL, tool: tool() },
            None,
            "waiting     for leave to run shell, call 3.2, SINCE (12.0 s), no end of its own: the calls before it have \
             limits",
            "waits for leave to run shell 12s",
        );
        check(
            WaitKind::Conflict { call: CALL, tool: tool(), behind: CallId { n: 1, ..CALL } },
            None,
            "waiting     for call 3.1, behind which shell, call 3.2, goes, SINCE (12.0 s), no end of its own: the calls \
             before it have limits",
            "keeps shell in order 12s",
        );
        check(
            WaitKind::Children { call: CALL, left: 2 },
            None,
            "waiting     for 2 subagents, call 3.2, SINCE (12.0 s), no end of its own: they have limits of their own",
            "waits for 2 subagents 12s",
        );
        check(
            WaitKind::Disk { full: None },
            None,
            "waiting     for the disk SINCE (12.0 s), no end of its own: a write is answered, or the process ends",
            "waits for the disk 12s",
        );
        let full = Some(DiskFull { path: "/s/hermod.redb".into(), needed_bytes: 8_192 });
        check(
            WaitKind::Disk { full },
            None,
            "waiting     for the disk, which is full (8.0 KiB for /s/hermod.redb), SINCE (12.0 s), no end of its own: \
             make room there, and it goes on",
            "waits for room on the disk 12s",
        );
    }

    #[test]
    fn a_tree_has_room_for_one() {
        let wait = |what| RunWait { kind: what, since: Timestamp(0), until: None };
        let limit = WaitKind::Limit { limit_ms: 1, outcome: Outcome::TimedOut };
        let waits = [wait(WaitKind::Stop), wait(WaitKind::Disk { full: None }), wait(limit)];
        assert_eq!(format_short(&waits, Timestamp(185_500)).as_deref(), Some("stops 3m05s, 1 more"));
        assert_eq!(format_short(&[], Timestamp(0)), None);
        let children = |n, left| wait(WaitKind::Children { call: CallId { n, ..CALL }, left });
        let waits = [children(1, 2), children(2, 1), wait(WaitKind::Disk { full: None })];
        let expect = "waits for 3 subagents 5s, 1 more";
        assert_eq!(format_short(&waits, Timestamp(5_000)).as_deref(), Some(expect));
        let waits = [wait(WaitKind::NoProcess), wait(WaitKind::Person { call: CALL })];
        assert_eq!(
            format_short(&waits, Timestamp(7_260_500)).as_deref(),
            Some("asks a person 2h01m, 1 more")
        );
    }
}
