//! Tests of power cuts under the committer, at any operation of the disk. `HERMOD_CUTS=10000` cuts more often,
//! `HERMOD_SEED=N` repeats one seed.

use std::{path::Path, sync::Arc, time::Duration};

use futures::executor::block_on;
use hermod_actors::{
    model::{Incarnation, SessionId},
    port::{Append, Journal, WriteOp},
};
use tempfile::TempDir;

use super::{
    chance::Chance,
    disk::{Drawer, Platter, Power, Syncs},
    model::Book,
    work,
};
use crate::store::redb::{
    Durability, OpenError, RedbJournal,
    open::{OpenStore, StoreEnvironment, open_over},
};

/// Number of power cuts under one store.
const CUTS: u64 = 4;

/// The settings of a trial: the store's durability, the promised one, and what the disk does.
#[derive(Debug, Clone, Copy)]
struct Trial {
    durability: Durability,
    /// The durability that is checked, which can be stricter than that of the store.
    promised: Durability,
    platter: Syncs,
    drawer: Syncs,
}

const HONEST: Trial = Trial {
    durability: Durability::Strict,
    promised: Durability::Strict,
    platter: Syncs::Honest,
    drawer: Syncs::Honest,
};

/// A store's file and folder, across cuts.
pub(super) struct Disk {
    pub(super) image: Vec<u8>,
    dir: TempDir,
    platter: Syncs,
    drawer: Syncs,
}

/// A disk while its power lasts.
pub(super) struct Spinning {
    power: Power,
    platter: Platter,
    drawer: Drawer,
}

impl Disk {
    pub(super) fn new(image: Vec<u8>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        Self { image, dir, platter: Syncs::Honest, drawer: Syncs::Honest }
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Turns the power on for this number of operations.
    pub(super) fn spin(&self, operations: Option<u64>) -> Spinning {
        let power = Power::lasting(operations);
        let platter = Platter::new(self.image.clone(), &power, self.platter);
        Spinning { drawer: Drawer::new(&power, self.drawer), platter, power }
    }

    /// Opens the store on the disk, in this boot of the machine.
    pub(super) fn open(&self, spinning: &Spinning, boot: u64) -> Result<OpenStore, OpenError> {
        let environment =
            StoreEnvironment { files: Box::new(spinning.drawer.clone()), boot, disk_wait: Arc::default() };
        open_over(self.dir.path(), environment, |_| Ok(spinning.platter.clone()))
    }

    /// Cuts the power now.
    pub(super) fn cut(&mut self, spinning: &Spinning, chance: &mut Chance) {
        self.image = spinning.platter.cut(chance);
        spinning.drawer.cut(chance);
    }

    /// Opens the store with unlimited power.
    pub(super) fn reopen(&self, boot: u64) -> Result<(Spinning, RedbJournal), String> {
        let spinning = self.spin(None);
        let store = self.open(&spinning, boot).map_err(|error| format!("it does not open: {error}"))?;
        let journal = RedbJournal::start(store, Durability::Strict).map_err(|error| error.to_string())?;
        Ok((spinning, journal))
    }
}

impl Spinning {
    pub(super) fn is_lost(&self) -> bool {
        self.power.is_lost()
    }

    pub(super) fn platter(&self) -> Platter {
        self.platter.clone()
    }
}

/// Counts of when the power was lost.
#[derive(Debug, Default)]
struct Cuts {
    opening: u64,
    working: u64,
    /// After all was written and the store was closed.
    after: u64,
    acknowledged: u64,
}

impl Cuts {
    const fn all(&self) -> u64 {
        self.opening + self.working + self.after
    }
}

/// Tries one seed: a store under which the power is cut several times.
fn seed(trial: Trial, seed: u64, cuts: &mut Cuts) -> Result<(), String> {
    let mut chance = Chance::of(seed);
    let mut disk = Disk { platter: trial.platter, drawer: trial.drawer, ..Disk::new(Vec::new()) };
    let mut book = Book::default();
    for life in 1..=CUTS {
        let most = if chance.one_in(3) { 30 } else { 200 };
        let operations = (!chance.one_in(12)).then(|| 1 + chance.next() % most);
        let spinning = disk.spin(operations);
        match disk.open(&spinning, life / 2) {
            Ok(store) => {
                let journal =
                    RedbJournal::start(store, trial.durability).map_err(|error| error.to_string())?;
                work_until_cut(&journal, &mut book, &mut chance);
                drop(journal);
                if spinning.is_lost() { cuts.working += 1 } else { cuts.after += 1 }
            }
            Err(_) if spinning.is_lost() => cuts.opening += 1,
            Err(error) => return Err(format!("life {life}: it does not open: {error}")),
        }
        cuts.acknowledged += book.before.len() as u64;
        disk.cut(&spinning, &mut chance);
        let (_, journal) = disk.reopen(life / 3).map_err(|why| format!("life {life}: {why}"))?;
        let allowed = match trial.promised {
            Durability::Strict => book.strict().into(),
            Durability::Relaxed => book.relaxed(),
        };
        book.settle(allowed, &journal).map_err(|why| format!("life {life}: {why}"))?;
    }
    Ok(())
}

fn work_until_cut(journal: &dyn Journal, book: &mut Book, chance: &mut Chance) {
    for _ in 0..=chance.below(20) {
        let batch = work::batch(&book.model, chance);
        book.begins(&batch);
        match block_on(journal.commit(batch)) {
            Ok(written) => book.acknowledged(&written),
            Err(_) => return,
        }
    }
}

/// Tries seeds until the power was cut `least` times; returns the counts, and the error of the first wrong seed.
fn cut(trial: Trial, first: u64, least: u64) -> (Cuts, Result<(), String>) {
    let mut cuts = Cuts::default();
    for number in first.. {
        let tried = seed(trial, number, &mut cuts);
        if tried.is_err() || cuts.all() >= least {
            let tried = tried.map_err(|why| format!("HERMOD_SEED={number}: {why}"));
            return (cuts, tried);
        }
    }
    (cuts, Ok(()))
}

/// A number from an environment variable.
pub(super) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[track_caller]
fn survives(trial: Trial, usually: u64) {
    let began = tokio::time::Instant::now();
    let (cuts, tried) = match number("HERMOD_SEED") {
        Some(only) => cut(trial, only, 1),
        None => cut(trial, 1, number("HERMOD_CUTS").unwrap_or(usually)),
    };
    let seconds = began.elapsed().max(Duration::from_millis(1)).as_secs_f64();
    println!(
        "{:?}: {} power cuts ({} while opening, {} while working, {} after closing), {} batches acknowledged, {:.0} cuts/s",
        trial.promised,
        cuts.all(),
        cuts.opening,
        cuts.working,
        cuts.after,
        cuts.acknowledged,
        f64::from(u32::try_from(cuts.all()).expect("not so many")) / seconds
    );
    tried.unwrap();
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power() {
    survives(HONEST, 200);
}

#[test]
fn a_relaxed_store_keeps_a_prefix() {
    survives(Trial { durability: Durability::Relaxed, promised: Durability::Relaxed, ..HONEST }, 80);
}

/// Checks that a broken promise is detected within this number of cuts.
#[track_caller]
fn is_found(trial: Trial, within: u64) {
    let (cuts, tried) = cut(trial, 1, within);
    let found = tried.expect_err("nothing was found");
    println!("{trial:?}: found after {} cuts: {found}", cuts.all());
}

#[test]
fn an_acknowledgement_before_the_disk_is_found() {
    is_found(Trial { durability: Durability::Relaxed, ..HONEST }, 100);
}

#[test]
fn a_disk_that_does_not_sync_is_found() {
    is_found(Trial { platter: Syncs::Ignored, ..HONEST }, 100);
}

#[test]
fn a_blob_that_is_not_synced_is_found() {
    is_found(Trial { drawer: Syncs::Ignored, ..HONEST }, 100);
}

#[test]
fn a_seed_is_the_same_again() {
    let counts = |_| {
        let mut cuts = Cuts::default();
        seed(HONEST, 7, &mut cuts).unwrap();
        format!("{cuts:?}")
    };
    assert_eq!(counts(1), counts(2));
}

/// An append follows a takeover in one batch, whose answer is lost with the power.
#[track_caller]
fn is_understood(guessed: u32, records: u64) {
    let (_spinning, journal) = Disk::new(Vec::new()).reopen(0).unwrap();
    let [taken, other] = [1, 2].map(SessionId::from_bits);
    let mut book = Book::default();
    let batch = vec![WriteOp::Open(taken), WriteOp::Open(other)];
    book.begins(&batch);
    book.acknowledged(&block_on(journal.commit(batch)).unwrap());
    let fence = Incarnation { revival: guessed, ..book.model.fence(taken).unwrap() };
    let append = Append::new(taken, fence, 1, vec![work::record(&mut Chance::of(1))]);
    // A part of the batch is written, whether the append is written or refused.
    let batch =
        vec![WriteOp::Open(taken), WriteOp::Append(Box::new(append)), WriteOp::Deliver(other, "1".into())];
    book.begins(&batch);
    block_on(journal.commit(batch)).unwrap();
    let allowed = book.strict().into();
    book.settle(allowed, &journal).unwrap();
    assert_eq!(book.model.last(taken), records);
}

#[test]
fn a_takeover_whose_answer_is_lost_is_understood() {
    is_understood(1, 0);
    is_understood(2, 0);
    is_understood(3, 1);
}
