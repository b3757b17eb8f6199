//! What the pure core costs: deciding, folding and asking what is due, through one iteration with one tool call.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use hermod_actors::testkit::CoreLoop;

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
