//! Fuzz test of the core: random sequences of inputs, as a shell could give them. `watch/` checks its rules after every
//! record. At the end the world answers everything well, and every run must end.
//!
//! `HERMOD_SEQUENCES` sets how many sequences run, or which (`2000..50000`). `HERMOD_SEQUENCE` runs one alone and
//! prints its steps.

mod asked;
mod calls;
mod chance;
#[allow(clippy::wildcard_enum_match_arm)] // it looks for two of the kinds of records
mod disk;
mod family;
mod money;
mod nature;
#[allow(clippy::wildcard_enum_match_arm)] // it looks for three of the kinds of records
mod outbox;
mod outside;
mod shrink;
mod stubs;
mod tally;
mod tasks;
mod view;
mod walk;
mod watch;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

pub(super) use self::{chance::Chance, view::Grammar};
use self::{shrink::shrink, tally::Tally, walk::Sequence};
use crate::{
    model::{AssistantMessage, BeginRules, Body, ImportedHistory, Kind, Message, ToolCall},
    turn::{RenderCursor, history::History, repair},
};

/// Returns an error from the function unless the condition holds.
macro_rules! hold {
    ($so:expr, $($why:tt)+) => {
        if !$so {
            return Err(format!($($why)+));
        }
    };
}
use hold;

/// Number of sequences by default: a few seconds in a debug build.
const SEQUENCES: u64 = 2_000;
const TOGETHER: u64 = 64;

fn number(name: &str, number: &str) -> u64 {
    number.parse().unwrap_or_else(|_| panic!("{name}: `{number}` is not a number"))
}

/// The sequences that run.
fn sequences() -> Range<u64> {
    const NAME: &str = "HERMOD_SEQUENCES";
    let Ok(text) = env::var(NAME) else { return 0..SEQUENCES };
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    number(NAME, from)..number(NAME, to)
}

/// The first sequence that has broken each rule, with its error. The key is the beginning of the error.
type Broken = BTreeMap<String, (Sequence, String)>;

/// Runs sequences until none is left. A sequence that breaks one rule does not hide a later one that breaks another.
fn work(next: &AtomicU64, end: u64) -> (Tally, Broken) {
    let (mut tally, mut broken) = (Tally::default(), Broken::new());
    loop {
        let from = next.fetch_add(TOGETHER, Ordering::Relaxed);
        if from >= end {
            return (tally, broken);
        }
        for seed in from..end.min(from + TOGETHER) {
            let sequence = Sequence::of(seed);
            match sequence.check() {
                Ok(more) => tally.add(more),
                Err(why) => {
                    let kind = why.chars().take_while(|letter| letter.is_alphabetic() || *letter == ' ');
                    broken.entry(kind.collect()).or_insert_with(|| {
                        println!("sequence {seed}: {why}");
                        (sequence, why)
                    });
                }
            }
        }
    }
}

/// Reports a broken rule with the shortest sequence that still breaks it.
fn report(sequence: &Sequence, why: &str) -> String {
    let breaks = |steps: &[u64]| Sequence { steps: steps.to_vec(), ..*sequence }.check().is_err();
    let steps = shrink(&sequence.steps, breaks);
    let shrunk = Sequence { steps, ..*sequence };
    format!(
        "sequence {seed}: {why}\n\n{} of its {} steps are enough:\n{}\n\nHERMOD_SEQUENCE={seed} tells all of it",
        shrunk.steps.len(),
        sequence.steps.len(),
        shrunk.tell().join("\n"),
        seed = sequence.seed,
    )
}

#[test]
#[allow(clippy::disallowed_methods)] // how fast it is, is told, and decides nothing
fn any_sequence_keeps_the_promises() {
    if let Ok(seed) = env::var("HERMOD_SEQUENCE") {
        let sequence = Sequence::of(number("HERMOD_SEQUENCE", &seed));
        println!("{}", sequence.tell().join("\n"));
        if let Err(why) = sequence.check() {
            panic!("{}", report(&sequence, &why));
        }
        return;
    }
    let sequences = sequences();
    let (next, end) = (AtomicU64::new(sequences.start), sequences.end);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let ends: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&next, end))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let took = began.elapsed();
    let (mut tally, mut broken) = (Tally::default(), Broken::new());
    for (lived, broke) in ends {
        tally.add(lived);
        broken.extend(broke);
    }
    let reports: Vec<String> = broken.values().map(|(sequence, why)| report(sequence, why)).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n\n"));
    let a_second = u128::from(tally.sequences) * 1_000 / took.as_millis().max(1);
    println!("{tally}{:.1} s, {a_second} sequences/s", took.as_secs_f64());
    assert!(
        tally.sequences < SEQUENCES || tally.missing().is_empty(),
        "never happened: {:?}",
        tally.missing()
    );
}

#[test]
fn a_sequence_is_the_same_each_time() {
    for seed in 0..50 {
        assert_eq!(Sequence::of(seed).tell(), Sequence::of(seed).tell());
    }
}

#[test]
fn what_breaks_is_shrunk_to_what_it_needs() {
    let planted = |steps: &[u64]| steps.contains(&7) && steps.contains(&70);
    assert_eq!(shrink(&(0..100).collect::<Vec<_>>(), planted), [7, 70]);

    // A real sequence, in which a run is steered and ends.
    let has = |sequence: &Sequence| {
        let mut world = sequence.world();
        sequence.walk(&mut world).unwrap();
        world.has(|body: &Body| body.kind() == Kind::MessageSteered)
    };
    let long = (0..SEQUENCES)
        .map(Sequence::of)
        .filter(|sequence| sequence.steps.len() > 20 && sequence.world().mood.begin == BeginRules::default());
    // In a session with pictures or limits, more is needed for the same.
    let shrunk = long.filter(has).take(4).map(|sequence| {
        shrink(&sequence.steps, |steps| has(&Sequence { steps: steps.to_vec(), ..sequence }))
    });
    let steps = shrunk.min_by_key(Vec::len).unwrap();
    assert!(steps.len() <= 3, "a submission and a message, and what makes them durable: {steps:?}");
}

#[test]
fn the_grammar_tells_good_from_bad() {
    let check = |letters: &str, expected: bool| {
        let (mut grammar, mut n) = (Grammar::default(), 0);
        let kept = letters.chars().try_for_each(|letter| {
            let calls = letters.chars().skip(n + 1).take_while(|letter| *letter == 't').count();
            n += 1;
            let call = |_| ToolCall { id: "1".into(), name: "tool".into(), arguments: "{}".into() };
            let said = |calls| AssistantMessage {
                calls: (0..calls).map(call).collect(),
                ..AssistantMessage::default()
            };
            grammar.take(&match letter {
                'u' => Message::User("x".into()),
                'a' => Message::Assistant(said(0).into()),
                'c' => Message::Assistant(said(calls.max(1)).into()),
                _ => Message::Tool { call: "1".into(), name: "tool".into(), content: "x".into() },
            })
        });
        assert_eq!(kept.is_ok() && grammar.is_whole(), expected, "{letters}: {kept:?}");
    };
    for good in ["", "u", "ua", "uct", "ucttctauctctta", "uau"] {
        check(good, true);
    }
    for bad in ["a", "t", "uu", "uaa", "uc", "ut", "ucca", "uca", "uata"] {
        check(bad, false);
    }
}

fn rendered(past: &ImportedHistory) -> Vec<Message> {
    let mut history = History::default();
    history.import(past);
    let mut messages = history.render(RenderCursor::default()).0;
    messages.extend(past.unanswered.iter().map(|text| Message::User(text.clone().into())));
    messages
}

#[test]
fn any_foreign_history_is_mended() {
    for seed in 0..2_000 {
        let given = nature::foreign(&mut Chance::new(seed));
        let past = repair(&given).past;
        let (messages, mut grammar, mut ids) = (rendered(&past), Grammar::default(), BTreeSet::new());
        for message in &messages {
            grammar.take(message).unwrap_or_else(|why| panic!("{given:?}: {why}"));
            if let Message::Assistant(said) = message {
                assert!(said.calls.iter().all(|call| ids.insert(call.id.clone())), "{given:?}: an id twice");
            }
        }
        assert!(grammar.is_whole(), "{given:?}");
        assert_eq!(repair(&messages).past, past, "what is mended stays as it is");
    }
}
