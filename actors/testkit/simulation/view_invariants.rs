//! Invariants of the views in model requests: well formed, append-only, and shorter only after a recorded compaction.

use serde_json::Value;

use super::external_world::ExternalWorld;
use hermod_actors::model::SessionId;

/// Prefixes of messages that ask to continue a text. They and the partial text before them follow the view.
const CONTINUE_PREFIXES: [&str; 2] = [
    "[From the runtime, not from the user: your answer was cut off",
    "[From the runtime, not from the user: you were thinking",
];
/// Prefixes of notes appended to the last message of the view. They are no part of it.
const TRANSIENT_PREFIXES: [&str; 5] = [
    "\n\n[From the runtime, not from the user: this conversation fills",
    "\n\n[From the runtime, not from the user: your calls have returned",
    "\n\n[From the runtime, not from the user: you were thinking",
    "\n\n[From the runtime, not from the user: little is left of this run's budget",
    "\n\n[From the runtime, not from the user: the budget of this run",
];

/// Text in place of an elided old result.
const ELIDED_TEXT: &str = " bytes of an old result were left out to save room";
/// Text appended to a message in place of all older messages.
const OMITTED_TEXT: &str =
    "\n\n[From the runtime, not from the user: the older part of this conversation was left out";

/// Checks one request of a session. Returns the numbers of the steering messages in its view.
pub(super) fn check(outside: &ExternalWorld, session: SessionId, messages: &[Value]) -> Vec<usize> {
    let mut inner = outside.lock();
    let letters = letters(messages);
    if !is_well_formed(&letters) {
        inner.observations.report_violation("the view alternates", format!("{letters} in {session}"));
    }
    let view = stripped(messages);
    let times = inner.observations.compactions(session);
    let (before, earlier) = inner.views.insert(session, (view.clone(), times)).unwrap_or_default();
    if earlier != times {
        if let Err(wrong) = check_shortened(&before, &view) {
            inner.observations.report_violation(
                "a shorter view is the end of the longer one",
                format!("{wrong} in {session}"),
            );
        }
    } else if !view.starts_with(&before) {
        let at = view.iter().zip(&before).take_while(|(one, other)| one == other).count();
        let what = format!("in {session} at {at}: {:?} was shown as {:?}", before.get(at), view.get(at));
        inner.observations.report_violation("the view keeps its past", what);
    }
    let mut numbers = Vec::new();
    for message in &view {
        for text in [&message["text"], &message["content"]].into_iter().filter_map(Value::as_str) {
            numbers.extend(text.split("steer-").skip(1).filter_map(number));
        }
    }
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() < numbers.len() {
        inner
            .observations
            .report_violation("a message is shown once", format!("one of {numbers:?} twice in {session}"));
    }
    numbers
}

/// Checks that a view can be the compaction of a longer one. It keeps the last steps without a gap and verbatim, except
/// for elided results, and a text stands for missing steps.
fn check_shortened(before: &[Value], view: &[Value]) -> Result<(), String> {
    let steps = |messages: &[Value]| -> Vec<Vec<Value>> {
        let step = |message: &Value| message["role"] == "tool" || is_call(message);
        let steps = messages.iter().filter(|message| step(message));
        steps.fold(Vec::new(), |mut steps, message| {
            if is_call(message) {
                steps.push(Vec::new());
            }
            steps.last_mut().unwrap_or(&mut Vec::new()).push(message.clone());
            steps
        })
    };
    let (before, now) = (steps(before), steps(view));
    let left = now.iter().take_while(|step| before.iter().any(|old| old[0] == step[0])).count();
    let missing = before.len().checked_sub(left).ok_or("a call is there twice")?;
    for (old, new) in before[missing..].iter().zip(&now) {
        let is_same =
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same_or_elided(old, new));
        if !is_same {
            return Err(format!("{old:?} was shown as {new:?}"));
        }
    }
    let says_so = |message: &Value| message["text"].as_str().is_some_and(|text| text.contains(OMITTED_TEXT));
    if missing > 0 && !view.first().is_some_and(says_so) {
        return Err(format!("nothing stands for the {missing} steps that are missing"));
    }
    Ok(())
}

fn is_call(message: &Value) -> bool {
    message["calls"].as_array().is_some_and(|calls| !calls.is_empty())
}

/// Whether a message is unchanged, or the elided form of a result.
fn is_same_or_elided(old: &Value, new: &Value) -> bool {
    let is_elided = new["content"].as_str().is_some_and(|content| content.contains(ELIDED_TEXT));
    old == new || (is_elided && (&old["role"], &old["call"]) == (&new["role"], &new["call"]))
}

fn number(text: &str) -> Option<usize> {
    let (digits, _) = text.split_once('.')?;
    digits.parse().ok()
}

/// The view: the messages without the system prompt and without what follows the view.
fn stripped(messages: &[Value]) -> Vec<Value> {
    let mut view = messages.get(1..).unwrap_or_default().to_vec();
    let continues = |message: &Value| {
        message["text"]
            .as_str()
            .is_some_and(|text| CONTINUE_PREFIXES.iter().any(|begin| text.starts_with(begin)))
    };
    if view.last().is_some_and(continues) {
        view.truncate(view.len().saturating_sub(2));
    }
    if let Some(last) = view.last_mut() {
        for field in ["text", "content"] {
            let Some(text) = last[field].as_str() else { continue };
            let end = TRANSIENT_PREFIXES.iter().filter_map(|prefix| text.find(prefix)).min();
            if let Some(end) = end {
                last[field] = text[..end].into();
            }
        }
    }
    view
}

/// One letter for each message: u(ser), a(nswer), c(alls), t(ool).
fn letters(messages: &[Value]) -> String {
    let letter = |message: &Value| match message["role"].as_str() {
        Some("user") => 'u',
        Some("tool") => 't',
        Some("assistant") if is_call(message) => 'c',
        Some("assistant") => 'a',
        Some(_) | None => '?',
    };
    messages.iter().skip(1).map(letter).collect()
}

/// Whether the letters match `(u (c t+)* a)*`, followed by the open round `u (c t+)*`.
fn is_well_formed(letters: &str) -> bool {
    let mut rounds = letters.split('u');
    let begins = rounds.next() == Some("");
    let rounds: Vec<&str> = rounds.collect();
    let Some((last, closed)) = rounds.split_last() else { return false };
    begins && are_steps(last) && closed.iter().all(|round| round.strip_suffix('a').is_some_and(are_steps))
}

fn are_steps(round: &str) -> bool {
    let steps = round.split('c').skip(1);
    let mut results =
        steps.map(|results| !results.is_empty() && results.bytes().all(|letter| letter == b't'));
    results.all(|is_whole| is_whole) && (round.is_empty() || round.starts_with('c'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_grammar_tells_good_from_bad() {
        for good in ["u", "uct", "ucttctauctctt", "uau", "uauctt"] {
            assert!(is_well_formed(good), "{good}");
        }
        for bad in ["", "a", "t", "ua", "uu", "uaa", "uc", "ut", "ucct", "ucau", "ucat", "uata", "cu", "u?"] {
            assert!(!is_well_formed(bad), "{bad}");
        }
    }

    #[test]
    fn a_shorter_view_is_the_end_of_the_longer_one() {
        let user = |text: &str| json!({"role": "user", "text": text});
        let call = |n: u32| json!({"role": "assistant", "calls": [{"id": n.to_string()}]});
        let result =
            |n: u32, content: &str| json!({"role": "tool", "call": n.to_string(), "content": content});
        let step = |n: u32| [call(n), result(n, "done")];
        let (long, cut) = (user("run-1"), user(&format!("run-1{OMITTED_TEXT}]")));
        let before = [vec![long.clone()], step(1).into(), step(2).into(), step(3).into()].concat();
        let elided = result(1, &format!("[9{ELIDED_TEXT}]"));
        for (view, is_right) in [
            (before.clone(), true),
            (
                [vec![long.clone()], vec![call(1), elided.clone()], step(2).into(), step(3).into()].concat(),
                true,
            ),
            ([vec![cut.clone()], step(3).into(), step(4).into()].concat(), true),
            (vec![cut.clone()], true),
            ([vec![cut.clone()], step(2).into()].concat(), false),
            ([vec![cut.clone()], step(1).into(), step(3).into()].concat(), false),
            ([vec![long], step(3).into()].concat(), false),
            ([vec![cut.clone()], vec![call(3), result(3, "lost")]].concat(), false),
            ([vec![cut], vec![call(3), elided]].concat(), false),
        ] {
            assert_eq!(check_shortened(&before, &view).is_ok(), is_right, "{view:?}");
        }
    }

    #[test]
    fn what_stands_behind_a_view_is_no_part_of_it() {
        let message = |role: &str, text: &str| json!({"role": role, "text": text});
        let view = [message("system", "s"), message("user", "run-1")];
        let nudged = [view[0].clone(), message("user", &format!("run-1{} empty]", TRANSIENT_PREFIXES[0]))];
        let partial = [
            &view[..],
            &[message("assistant", "a part"), message("user", &format!("{}]", CONTINUE_PREFIXES[0]))],
        ]
        .concat();
        for messages in [&view[..], &nudged, &partial] {
            assert_eq!(stripped(messages), view[1..]);
        }
    }
}
