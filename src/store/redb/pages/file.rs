//! A storage backend that verifies each page, when it is read, whose checksum is known. Collects the damaged pages.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redb::StorageBackend;

use super::layout::{
    Geometry, HEADER_BYTES, PAGE_BYTES, PageRef, TreeLayout, checksum, is_intact, low_half, swap_slots,
};

/// Offsets of the damaged pages that reads have met, in bytes from the start of the file.
#[derive(Debug, Clone, Default)]
pub(in crate::store::redb) struct DamagedPages(Arc<Mutex<BTreeSet<u64>>>);

impl DamagedPages {
    fn add(&self, offset: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(offset)
    }

    /// The offsets so far, sorted.
    pub(in crate::store::redb) fn offsets(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

/// A backend whose pages are verified.
#[derive(Debug)]
pub(in crate::store::redb) struct VerifiedFile<B> {
    backend: B,
    damaged: DamagedPages,
    known: Mutex<KnownPages>,
}

/// The expected pages of a file. One entry has 24 bytes.
#[derive(Debug, Default)]
struct KnownPages {
    geometry: Option<Geometry>,
    pages: HashMap<u64, ExpectedPage>,
    /// The layouts of the trees; entries refer to them by index.
    trees: Vec<TreeLayout>,
}

/// The expected content of a page.
#[derive(Debug, Clone, Copy)]
struct ExpectedPage {
    /// The low half of the checksum.
    checksum: u64,
    pages: u32,
    /// Index of the tree's layout; `WRITTEN` if this process wrote the page, and the checksum covers all of it.
    tree: u32,
}

const WRITTEN: u32 = u32::MAX;

impl<B> VerifiedFile<B> {
    /// Wraps a backend; adds damaged pages that reads meet to `damaged`.
    pub(in crate::store::redb) fn new(backend: B, damaged: DamagedPages) -> Self {
        Self { backend, damaged, known: Mutex::default() }
    }

    fn lock_known(&self) -> MutexGuard<'_, KnownPages> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a page has its expected content; true if no expectation is known.
    fn is_sound(&self, offset: u64, page: &[u8]) -> bool {
        let (expected, tree, geometry) = {
            let known = self.lock_known();
            let Some(expected) = known.pages.get(&offset).copied() else { return true };
            (expected, known.trees.get(expected.tree as usize).copied(), known.geometry)
        };
        if u64::from(expected.pages) * PAGE_BYTES != page.len() as u64 {
            return true;
        }
        let Some(tree) = tree else { return low_half(checksum(page)) == expected.checksum };
        if !is_intact(page, tree, expected.checksum) {
            return false;
        }
        let children = geometry.map(|geometry| geometry.children(page, tree)).unwrap_or_default();
        if !children.is_empty() {
            self.lock_known().add_references(&children);
        }
        true
    }
}

impl KnownPages {
    fn add_references(&mut self, pages: &[PageRef]) {
        for page in pages {
            let tree = self.trees.iter().position(|tree| *tree == page.tree).unwrap_or_else(|| {
                self.trees.push(page.tree);
                self.trees.len() - 1
            });
            let tree = u32::try_from(tree).unwrap_or(WRITTEN - 1);
            let expected = ExpectedPage { checksum: low_half(page.checksum), pages: page.pages, tree };
            self.pages.insert(page.offset, expected);
        }
    }
}

impl<B: StorageBackend> VerifiedFile<B> {
    /// Reads the positions of the roots from the engine's header. If the header names an older commit as current
    /// although a newer one is whole, the engine gets a header that names the newer one.
    fn read_header(&self, header: &mut [u8]) {
        let Some(geometry) = Geometry::of_header(header) else { return };
        let read = |page: &PageRef| {
            let end = page.offset.checked_add(u64::from(page.pages) * PAGE_BYTES)?;
            let is_there = self.backend.len().is_ok_and(|len| end <= len);
            let mut bytes =
                is_there.then(|| vec![0; usize::try_from(end - page.offset).unwrap_or_default()])?;
            self.backend.read(page.offset, &mut bytes).is_ok().then_some(bytes)
        };
        if let Some((newer, current)) = geometry.newer_commit(header)
            && geometry.is_whole(newer, current, read)
        {
            swap_slots(header);
        }
        let mut known = self.lock_known();
        known.geometry = Some(geometry);
        known.add_references(&geometry.roots(header));
    }
}

impl<B: StorageBackend> StorageBackend for VerifiedFile<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)?;
        if offset == 0 && out.len() >= HEADER_BYTES {
            self.read_header(out);
        } else if !self.is_sound(offset, out) {
            out.fill(0);
            if self.damaged.add(offset) {
                tracing::error!(offset, bytes = out.len(), "a page of the store's file is damaged");
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len < self.backend.len()? {
            self.lock_known().pages.retain(|offset, _| *offset < len);
        }
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // Tracked before the write, so that a reader of the new bytes finds their checksum. No reader needs the old
        // bytes.
        if offset == 0 {
            self.lock_known().geometry = Geometry::of_header(data);
        } else if let Ok(pages) = u32::try_from(data.len() as u64 / PAGE_BYTES) {
            let expected = ExpectedPage { checksum: low_half(checksum(data)), pages, tree: WRITTEN };
            self.lock_known().pages.insert(offset, expected);
        }
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}
