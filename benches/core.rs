//! What the pure core costs: deciding, folding and asking what is due, through one iteration with one tool call.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use hermod_testkit::CoreLoop;

fn iterations(c: &mut Criterion) {
    let mut group = c.benchmark_group("core iteration");
    for messages in [0, 5_000] {
        group.bench_function(format!("{messages} messages"), |b| {
            // The history grows by two messages each time: by few against what it begins with, or from nothing.
            let mut core = CoreLoop::new(messages);
            b.iter(|| black_box(&mut core).iteration());
        });
    }
    group.finish();
}

criterion_group!(benches, iterations);
criterion_main!(benches);
