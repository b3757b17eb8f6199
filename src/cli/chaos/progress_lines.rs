//! Parses the progress lines that a process under test writes to standard error. A line appears only when its record is
//! durable.

use hermod_actors::model::{AttemptId, Body, Kind};

/// The meaning of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgressLine<'l> {
    /// This run is durable, and the following lines are about it.
    Accepted(&'l str),
    /// The following lines are about this run.
    Resumed(&'l str),
    /// A step of a run is durable. The run is given by the end of its id if several runs are in progress; `None` is the
    /// run of the last `Accepted` or `Resumed` line.
    Step(Option<&'l str>, ReportedStep),
}

/// A record, as far as its line identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReportedStep {
    pub(super) kind: Kind,
    pub(super) iteration: u32,
    /// 0 for the model call, else the number of the tool call.
    pub(super) n: u32,
    /// `None` if the line has no attempt.
    pub(super) attempt: Option<u32>,
}

impl ReportedStep {
    /// True if the record has the kind, call and attempt of this step.
    pub(super) fn matches(&self, body: &Body) -> bool {
        let Some(AttemptId { call, attempt }) = body.step() else { return false };
        body.kind() == self.kind
            && (call.iteration, call.n) == (self.iteration, self.n)
            && self.attempt.is_none_or(|reported| reported == attempt)
    }
}

/// Parses a line; `None` if it reports no record.
pub(super) fn parse(line: &str) -> Option<ProgressLine<'_>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["accepted", "run", run, ..] => Some(ProgressLine::Accepted(run)),
        ["goes", "on", "run", run, ..] => Some(ProgressLine::Resumed(run)),
        [subject @ ("model" | "tool"), rest @ ..] => {
            Some(ProgressLine::Step(None, parse_step(subject, rest)?))
        }
        [run, subject @ ("model" | "tool"), rest @ ..] => {
            let run = run.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            Some(ProgressLine::Step(Some(run), parse_step(subject, rest)?))
        }
        _ => None,
    }
}

fn parse_step(subject: &str, words: &[&str]) -> Option<ReportedStep> {
    match (subject, words) {
        ("model", [iteration, word, rest @ ..]) => {
            let (kind, attempt) = match *word {
                "asks" => (Kind::ModelStarted, Some(parse_attempt(rest))),
                "attempt" => (Kind::ModelFailed, Some(rest.first()?.parse().ok()?)),
                "waits" => (Kind::ModelWaiting, None),
                word if word.starts_with("answered") => (Kind::ModelAnswered, None),
                _ => return None,
            };
            Some(ReportedStep { kind, iteration: iteration.parse().ok()?, n: 0, attempt })
        }
        ("tool", [call, _name, word, rest @ ..]) => {
            let (iteration, n) = call.split_once('.')?;
            let (kind, attempt) = match word.trim_end_matches([':', ',']) {
                "ok" | "error" | "stopped" | "not" | "in" => (Kind::CallEnded, None),
                "lost" => (Kind::CallLost, None),
                word if word.starts_with('{') => (Kind::CallStarted, Some(parse_attempt(rest))),
                _ => return None,
            };
            Some(ReportedStep { kind, iteration: iteration.parse().ok()?, n: n.parse().ok()?, attempt })
        }
        _ => None,
    }
}

/// The attempt at the end of a start's line; 1 without one.
fn parse_attempt(words: &[&str]) -> u32 {
    match words {
        [.., "(attempt", number] => number.trim_end_matches(')').parse().unwrap_or(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a run's id, the kind, iteration and number, and the attempt.
    type Expect<'l> = (Option<&'l str>, Kind, [u32; 2], Option<u32>);

    #[track_caller]
    fn check(line: &str, expect: Option<Expect<'_>>) {
        let expect = expect.map(|(run, kind, [iteration, n], attempt)| {
            ProgressLine::Step(run, ReportedStep { kind, iteration, n, attempt })
        });
        assert_eq!(parse(line), expect, "{line}");
    }

    #[test]
    fn lines_of_progress_name_their_records() {
        check("model 3   asks rehearsal-1/chaos", Some((None, Kind::ModelStarted, [3, 0], Some(1))));
        check("model 3   asks r/chaos (attempt 2)", Some((None, Kind::ModelStarted, [3, 0], Some(2))));
        check("model 3   answered in 39 ms, 1 tool call", Some((None, Kind::ModelAnswered, [3, 0], None)));
        check("model 3   answered; nothing said", Some((None, Kind::ModelAnswered, [3, 0], None)));
        let failed = "model 3   attempt 2 failed: interrupted: x; asked again in 0 ms";
        check(failed, Some((None, Kind::ModelFailed, [3, 0], Some(2))));
        check("model 3   waits 2 s: x", Some((None, Kind::ModelWaiting, [3, 0], None)));
        let started = "tool 4.2  shell {\"command\":\"echo 4.2 >> lines\"}";
        check(started, Some((None, Kind::CallStarted, [4, 2], Some(1))));
        check("tool 4.2  shell {} (attempt 3)", Some((None, Kind::CallStarted, [4, 2], Some(3))));
        for ended in
            ["ok in 16 ms", "error in 2 s: x", "in doubt: who knows", "not started: x", "stopped in 1 s"]
        {
            check(&format!("tool 4.2  shell {ended}"), Some((None, Kind::CallEnded, [4, 2], None)));
        }
        check("tool 4.2  shell lost, is started again", Some((None, Kind::CallLost, [4, 2], None)));
    }

    #[test]
    fn a_line_may_name_its_run_before() {
        check("3C86  model 3   answered in 1 ms", Some((Some("3C86"), Kind::ModelAnswered, [3, 0], None)));
        check("[3C86] tool 1.1  shell ok in 1 ms", Some((Some("3C86"), Kind::CallEnded, [1, 1], None)));
        assert_eq!(parse("accepted  run 01A session 01B"), Some(ProgressLine::Accepted("01A")));
        assert_eq!(parse("goes on   run 01A session 01B"), Some(ProgressLine::Resumed("01A")));
    }

    #[test]
    fn other_lines_say_nothing() {
        check("", None);
        check("session   taken up again where it was", None);
        check("ended     completed: iterations 2, tokens 3442, 115 ms", None);
        check("model x   answered", None);
        check("tool 1  shell ok", None);
        check("rehearsal this is a rehearsal: the model is scripted, its tool calls are real", None);
    }
}
