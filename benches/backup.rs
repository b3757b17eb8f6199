//! What a backup costs the runs that go on meanwhile; strict, with a model in this process.
//!
//! `cargo bench --bench backup -- [--sessions N] [--iterations N] [--rounds N]`: `--iterations` are those of each session
//! that the store has before. Each round counts iterations for as long as a backup takes, with it and without it.
#![allow(clippy::cast_precision_loss, clippy::unchecked_time_subtraction)] // figures are read to three digits

mod common;

use std::{path::Path, sync::Arc, time::Duration};

use common::{
    is_measured,
    load::{Counted, Local, endless},
    option,
    usage::{Cost, quantile},
};
use futures::future::join_all;
use hermod::{
    backup::BackupMaker,
    control::BackupService as _,
    store::redb::{Durability, RedbJournal},
};
use hermod_actors::{RunRequest, Runtime};
use tokio_util::sync::CancellationToken;

fn main() {
    let measured = is_measured();
    let sessions = option("--sessions", if measured { 100 } else { 2 });
    let iterations = option("--iterations", if measured { 200 } else { 2 });
    let rounds = option("--rounds", if measured { 5 } else { 1 });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure((sessions, iterations), rounds));
}

async fn measure((sessions, iterations): (usize, usize), rounds: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let state = dir.path().join("state");
    let journal = Arc::new(RedbJournal::open(&state, Durability::Strict).expect("a store"));
    let provider = Counted::new(Local::new(Duration::from_millis(20), 1));
    let world = endless(Arc::<RedbJournal>::clone(&journal), Arc::<Counted<_>>::clone(&provider), 1);
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    for accepted in join_all((0..sessions).map(|_| runtime.submit(RunRequest::new("Tick.")))).await {
        accepted.expect("it is accepted");
    }
    provider.ticks.after(sessions * iterations).await;
    let copier = BackupMaker::new(&journal, &state);
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let (begin, before) = (Cost::now(), provider.ticks.count());
        let bytes = backed_up(&copier, &dir.path().join(round.to_string())).await;
        let (with, during) = (begin.spent().wall, provider.ticks.count() - before);
        let before = provider.ticks.count();
        tokio::time::sleep(with).await;
        let without = provider.ticks.count() - before;
        ratios.push(during as f64 / without as f64);
        println!(
            "a backup of {} KiB took {:.2} s: {:.0} iterations/s with it, {:.0} without, ratio {:.2}",
            bytes / 1024,
            with.as_secs_f64(),
            during as f64 / with.as_secs_f64(),
            without as f64 / with.as_secs_f64(),
            during as f64 / without as f64
        );
    }
    println!("ratio, median of {rounds}: {:.2}", quantile(ratios.into_iter(), 0.5));
}

/// Makes a backup, and says how many bytes its store has.
async fn backed_up(copier: &BackupMaker, dir: &Path) -> u64 {
    let made =
        copier.create(dir.to_owned(), CancellationToken::new(), Arc::default()).await.expect("a backup");
    made["sizes"]["store"]["bytes"].as_u64().expect("a number")
}
