//! A simulated disk whose power can be cut. The store's own file is in memory, the files of blobs are in a real folder.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redb::StorageBackend;

use super::chance::Chance;
use crate::store::redb::files::FileSystem;

/// Bytes of a sector. A power cut can tear a write between two sectors.
const SECTOR: usize = 512;

/// The power of a disk, which is lost at some operation.
#[derive(Debug, Clone)]
pub(super) struct Power(Arc<Mutex<Option<u64>>>);

impl Power {
    /// Power for this number of operations; `None` is without end.
    pub(super) fn lasting(operations: Option<u64>) -> Self {
        Self(Arc::new(Mutex::new(operations)))
    }

    pub(super) fn is_lost(&self) -> bool {
        *lock(&self.0) == Some(0)
    }

    /// Counts one operation: whether it is done, is interrupted, or is not begun.
    fn use_up(&self) -> Use {
        match &mut *lock(&self.0) {
            None => Use::Done,
            Some(0) => Use::Never,
            Some(left) => {
                *left -= 1;
                if *left == 0 { Use::Interrupted } else { Use::Done }
            }
        }
    }
}

enum Use {
    Done,
    Interrupted,
    Never,
}

fn lost() -> io::Error {
    io::Error::other("the power is lost")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a disk does when it is told to sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syncs {
    Honest,
    /// The disk reports success and syncs nothing.
    Ignored,
}

/// The file of a store.
#[derive(Debug, Clone)]
pub(super) struct Platter(Arc<Mutex<Plate>>);

#[derive(Debug)]
struct Plate {
    power: Power,
    syncs: Syncs,
    /// The content that survives a power cut.
    synced: Vec<u8>,
    /// The content that reads see.
    now: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Platter {
    pub(super) fn new(image: Vec<u8>, power: &Power, syncs: Syncs) -> Self {
        let (power, now) = (power.clone(), image.clone());
        Self(Arc::new(Mutex::new(Plate { power, syncs, synced: image, now, pending: Vec::new() })))
    }

    /// The content of the disk after a power cut now.
    pub(super) fn cut(&self, chance: &mut Chance) -> Vec<u8> {
        let plate = &mut *lock(&self.0);
        let mut image = plate.synced.clone();
        // The file system's own journal keeps changes of length in order, up to a random one.
        let lengths = plate.pending.iter().filter(|change| matches!(change, Change::Length(_))).count();
        let mut kept = chance.below(lengths + 1);
        let mut writes = Vec::new();
        for change in &plate.pending {
            match change {
                Change::Write(offset, data) => writes.push((*offset, torn(data, chance))),
                Change::Length(length) if kept > 0 => {
                    kept -= 1;
                    resize(&mut image, *length);
                    for (offset, parts) in &mut writes {
                        parts.retain(|(at, part): &(usize, &[u8])| *offset + at + part.len() <= *length);
                    }
                }
                Change::Length(_) => {}
            }
        }
        while !writes.is_empty() {
            let (offset, parts) = writes.swap_remove(chance.below(writes.len()));
            for (at, part) in parts {
                let (begin, end) = (offset + at, offset + at + part.len());
                if end > image.len() {
                    if chance.one_in(2) {
                        continue;
                    }
                    resize(&mut image, end);
                }
                image[begin..end].copy_from_slice(part);
            }
        }
        image
    }
}

/// The sectors of a write that survive: all, none, those up to a random one, or a random subset.
fn torn<'d>(data: &'d [u8], chance: &mut Chance) -> Vec<(usize, &'d [u8])> {
    let sectors = data.chunks(SECTOR).enumerate().map(|(n, sector)| (n * SECTOR, sector));
    match chance.below(4) {
        0 => vec![(0, data)],
        1 => Vec::new(),
        2 => sectors.take(chance.below(data.len() / SECTOR + 2)).collect(),
        _ => sectors.filter(|_| chance.one_in(2)).collect(),
    }
}

impl Plate {
    fn change(&mut self, change: Change) -> io::Result<()> {
        let used = self.power.use_up();
        if matches!(used, Use::Never) {
            return Err(lost());
        }
        apply(&mut self.now, &change);
        self.pending.push(change);
        if matches!(used, Use::Done) { Ok(()) } else { Err(lost()) }
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(offset, data) => {
            let end = offset + data.len();
            if end > bytes.len() {
                resize(bytes, end);
            }
            bytes[*offset..end].copy_from_slice(data);
        }
        Change::Length(length) => resize(bytes, *length),
    }
}

/// Without optimisation, `Vec::resize` works byte by byte.
fn resize(bytes: &mut Vec<u8>, length: usize) {
    let mut resized = vec![0; length];
    let kept = length.min(bytes.len());
    resized[..kept].copy_from_slice(&bytes[..kept]);
    *bytes = resized;
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("a file in memory")
}

impl StorageBackend for Platter {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.0).now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let plate = lock(&self.0);
        let found = plate.now.get(at(offset)..at(offset) + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        lock(&self.0).change(Change::Length(at(length)))
    }

    fn sync_data(&self) -> io::Result<()> {
        let plate = &mut *lock(&self.0);
        if !matches!(plate.power.use_up(), Use::Done) {
            return Err(lost());
        }
        if plate.syncs == Syncs::Honest {
            plate.pending.drain(..).for_each(|change| apply(&mut plate.synced, &change));
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        lock(&self.0).change(Change::Write(at(offset), data.to_vec()))
    }
}

/// The folders of blobs. A power cut can lose names that were not synced, with the files that they name.
#[derive(Debug, Clone)]
pub(super) struct Drawer(Arc<Mutex<Names>>);

#[derive(Debug)]
struct Names {
    power: Power,
    syncs: Syncs,
    /// New folders and files whose folders were not synced since.
    pending: Vec<PathBuf>,
    /// Files whose bytes were not synced.
    unsynced: BTreeSet<PathBuf>,
}

impl Drawer {
    pub(super) fn new(power: &Power, syncs: Syncs) -> Self {
        let (pending, unsynced) = (Vec::new(), BTreeSet::new());
        Self(Arc::new(Mutex::new(Names { power: power.clone(), syncs, pending, unsynced })))
    }

    /// Removes from the folders what a power cut loses now.
    pub(super) fn cut(&self, chance: &mut Chance) {
        let names = &mut *lock(&self.0);
        for path in std::mem::take(&mut names.unsynced) {
            // Its folder may be removed already.
            if let Ok(bytes) = fs::read(&path) {
                fs::write(&path, &bytes[..chance.below(bytes.len() + 1)]).expect("a file of the test");
            }
        }
        for path in names.pending.drain(..).rev() {
            if chance.one_in(2) && path.exists() {
                let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.expect("a file of the test");
            }
        }
    }
}

impl Names {
    /// Does `work` unless the power is lost; fails if `work` is not known to be done.
    fn work(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let used = self.power.use_up();
        if matches!(used, Use::Never) {
            return Err(lost());
        }
        work(self)?;
        if matches!(used, Use::Done) { Ok(()) } else { Err(lost()) }
    }
}

impl FileSystem for Drawer {
    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        lock(&self.0).work(|names| {
            if !path.is_dir() {
                fs::create_dir(path)?;
                names.pending.push(path.to_owned());
            }
            Ok(())
        })
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let names = &mut *lock(&self.0);
        let used = names.power.use_up();
        if matches!(used, Use::Never) {
            return Err(lost());
        }
        fs::write(path, bytes)?;
        names.pending.push(path.to_owned());
        if names.syncs == Syncs::Ignored || matches!(used, Use::Interrupted) {
            names.unsynced.insert(path.to_owned());
        }
        if matches!(used, Use::Done) { Ok(()) } else { Err(lost()) }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        lock(&self.0).work(|names| {
            fs::rename(from, to)?;
            if names.unsynced.remove(from) {
                names.unsynced.insert(to.to_owned());
            }
            names.pending.push(to.to_owned());
            Ok(())
        })
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        let names = &mut *lock(&self.0);
        if !matches!(names.power.use_up(), Use::Done) {
            return Err(lost());
        }
        if names.syncs == Syncs::Honest {
            names.pending.retain(|name| name.parent() != Some(path));
        }
        Ok(())
    }
}
