//! What decoding costs: for each wire format the recorded streams, in pieces as a network brings them.
//!
//! `cargo bench --bench wire`. MB/s of what came, and the processor's time for 1,000 deltas of text or reasoning.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

mod common;

use std::{
    env, fs,
    hint::black_box,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use common::{
    is_measured,
    usage::{Cost, quantile},
};
use hermod::provider::{Dialect, WIRES, Wire, WireFormat};
use hermod_actors::{model::AnswerOrigin, port::DeltaSink};
use serde_json::Value;

/// What one read of a socket brings, at most.
const PIECE: usize = 1_448;
/// How often all streams of a format are decoded for one sample.
const TIMES: usize = 20;
const SAMPLES: usize = 15;
/// Streams that are counted as long ones.
const LONG: usize = 64 << 10;

/// Our names by those of the recordings.
const NAMES: [(&str, &str); 3] = [
    ("anthropic", "anthropic_messages"),
    ("chat_completions", "chat_completions"),
    ("responses", "codex_responses"),
];

#[derive(Default)]
struct Counted(AtomicUsize);

impl DeltaSink for Counted {
    fn text(&self, _: &str) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn reasoning(&self, _: &str) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn json_file(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file of the recordings")).expect("JSON")
}

/// The recorded event streams of a wire format.
fn streams(folder: &Path, format: &Wire) -> Vec<Vec<u8>> {
    let index = json_file(&folder.join("index.json"));
    let wanted = |entry: &&Value| {
        let name = NAMES.iter().find(|(recorded, _)| entry["wire_format"] == *recorded);
        name.is_some_and(|(_, ours)| *ours == format.name)
            && entry["status"] == 200
            && entry["streaming"] == true
    };
    let entries = index.as_array().expect("a list").iter().filter(wanted);
    let body = |entry: &Value| {
        let folder = folder.join(entry["dir"].as_str().expect("a folder"));
        fs::read(folder.join("response.body")).expect("a body")
    };
    entries.map(body).collect()
}

/// Decodes a stream; whether it has an answer does not matter.
fn decode(wire: &dyn WireFormat, origin: &Arc<AnswerOrigin>, stream: &[u8], deltas: &Counted) {
    let mut decoder = wire.decoder(Arc::clone(origin));
    let pushed = stream.chunks(PIECE).try_for_each(|piece| decoder.push(piece, deltas).map(drop));
    let _either_is_work = black_box(pushed.and_then(|()| decoder.finish(deltas)));
}

fn row(format: &Wire, which: &str, streams: &[Vec<u8>]) {
    let wire = (format.make)(&Dialect::default());
    let origin = Arc::new(AnswerOrigin { provider: "p".into(), wire: format.name.into(), model: "m".into() });
    let deltas = Counted::default();
    let all = |times: usize| {
        for _ in 0..times {
            streams.iter().for_each(|stream| decode(&*wire, &origin, stream, &deltas));
        }
    };
    all(1);
    let (bytes, each) = (streams.iter().map(Vec::len).sum::<usize>(), deltas.0.load(Ordering::Relaxed));
    let (samples, times) = if is_measured() { (SAMPLES, TIMES) } else { (1, 1) };
    let sample = |_| {
        let begin = Cost::now();
        all(times);
        begin.spent().cpu.as_secs_f64() / times as f64
    };
    let seconds = quantile((0..samples).map(sample), 0.5);
    let (speed, thousand) = (bytes as f64 / seconds / 1e6, seconds * 1e6 / each.max(1) as f64 * 1e3);
    println!(
        "| {} | {which} | {} | {:.2} | {each} | {speed:.0} | {thousand:.0} |",
        format.name,
        streams.len(),
        bytes as f64 / 1e6,
    );
}

fn main() {
    let folder = env::var_os("HERMOD_RECORDINGS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/recordings"), PathBuf::from);
    if !folder.is_dir() {
        println!("not measured: {} does not exist; set HERMOD_RECORDINGS", folder.display());
        return;
    }
    println!("| wire format | streams | number | MB | deltas | MB/s | µs CPU per 1,000 deltas |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for format in WIRES.iter().filter(|format| common::is_wanted(format.name)) {
        let all = streams(&folder, format);
        row(format, "all", &all);
        let long: Vec<_> = all.into_iter().filter(|stream| stream.len() >= LONG).collect();
        row(format, &format!("{} KiB or more", LONG >> 10), &long);
    }
}
