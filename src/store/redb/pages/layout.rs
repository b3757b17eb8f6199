//! Positions of checksums in the engine's file: in its commit slots, in branch pages and in the definitions of tables.
//! Also the comparison of a page with its checksum.
//!
//! Follows the engine's documented file format, version 3. Functions return `None` for bytes of another format; these
//! are then not verified.

use std::collections::HashSet;

/// Bytes of the smallest page.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Bytes of the engine's header at the beginning of the file.
pub(super) const HEADER_BYTES: usize = 320;

/// Offset of the header's byte that tells which commit slot is current, and how it was written.
const STATE_OFFSET: usize = 9;
const SECOND_SLOT: u8 = 1;
const TWO_PHASE: u8 = 4;
const FORMAT: u8 = 3;
const SLOT_OFFSETS: [usize; 2] = [64, 192];
const SLOT_BYTES: usize = 128;
const SLOT_CHECKSUM: usize = SLOT_BYTES - 16;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// The type byte of a table with one value per key.
const PLAIN_TABLE: u8 = 3;
/// The engine's placeholder for a checksum that it has not computed yet.
const DEFERRED: u128 = 999;

/// The engine's checksum of pages and commit slots.
pub(super) fn checksum(bytes: &[u8]) -> u128 {
    twox_hash::XxHash3_128::oneshot(bytes)
}

/// The row layout of a tree: the widths of its keys and values, if they are fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeLayout {
    /// The tree of table definitions, whose values hold the roots of other trees.
    Tables,
    /// The tree of one table.
    Rows { key: Option<u32>, value: Option<u32> },
}

/// A reference to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageRef {
    pub(super) offset: u64,
    /// Its size in smallest pages.
    pub(super) pages: u32,
    pub(super) checksum: u128,
    pub(super) tree: TreeLayout,
}

/// The sizes of the file's regions, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    header_pages: u64,
    region_pages: u64,
}

impl Geometry {
    /// Reads the geometry from the engine's header.
    pub(super) fn of_header(header: &[u8]) -> Option<Self> {
        let page = u32_at(header, 12)?;
        let (header_pages, data_pages) = (u32_at(header, 16)?, u32_at(header, 20)?);
        (u64::from(page) == PAGE_BYTES)
            .then(|| Self { header_pages: header_pages.into(), region_pages: data_pages.into() })
    }

    /// The roots in the intact commit slots of the engine's header.
    pub(super) fn roots(self, header: &[u8]) -> Vec<PageRef> {
        SLOT_OFFSETS
            .iter()
            .filter_map(|at| CommitSlot::read(header, *at))
            .flat_map(|slot| slot.roots(self))
            .collect()
    }

    /// The roots of a commit that is newer than the current one, and the roots of the current one.
    /// The engine leaves such a commit if it is killed before it marks it as current. Damage to the byte with that mark
    /// has the same effect.
    pub(super) fn newer_commit(self, header: &[u8]) -> Option<(Vec<PageRef>, Vec<PageRef>)> {
        let state = *header.get(STATE_OFFSET)?;
        let is_second = state & SECOND_SLOT != 0;
        let [current, other] = if is_second { [SLOT_OFFSETS[1], SLOT_OFFSETS[0]] } else { SLOT_OFFSETS };
        let (current, other) = (CommitSlot::read(header, current)?, CommitSlot::read(header, other)?);
        let is_newer = state & TWO_PHASE != 0 && other.transaction()? > current.transaction()?;
        is_newer.then(|| (other.roots(self), current.roots(self)))
    }

    /// Whether all pages of a newer commit are intact. Pages that it shares with the older commit are not read again.
    /// While no tree has grown in height, shared pages are at the same depth in both.
    pub(super) fn is_whole(
        self,
        mut newer: Vec<PageRef>,
        mut older: Vec<PageRef>,
        read: impl Fn(&PageRef) -> Option<Vec<u8>>,
    ) -> bool {
        let names = |pages: &[PageRef]| -> HashSet<(u64, u128)> {
            pages.iter().map(|page| (page.offset, page.checksum)).collect()
        };
        let children = |page: &PageRef| {
            let bytes = read(page).filter(|bytes| is_intact(bytes, page.tree, low_half(page.checksum)))?;
            Some(self.children(&bytes, page.tree))
        };
        loop {
            let (of_newer, of_older) = (names(&newer), names(&older));
            newer.retain(|page| !of_older.contains(&(page.offset, page.checksum)));
            older.retain(|page| !of_newer.contains(&(page.offset, page.checksum)));
            if newer.is_empty() {
                return true;
            }
            let Some(below) = newer.iter().map(children).collect::<Option<Vec<_>>>() else { return false };
            newer = below.concat();
            older = older.iter().filter_map(children).flatten().collect();
        }
    }

    /// The pages that a verified page refers to.
    pub(super) fn children(self, page: &[u8], tree: TreeLayout) -> Vec<PageRef> {
        match (page.first(), tree) {
            (Some(&BRANCH), _) => self.below(page, tree).unwrap_or_default(),
            (Some(&LEAF), TreeLayout::Tables) => self.tables(page),
            _ => Vec::new(),
        }
    }

    fn below(self, page: &[u8], tree: TreeLayout) -> Option<Vec<PageRef>> {
        let children = usize::from(u16_at(page, 2)?) + 1;
        let numbers = 8 + 16 * children;
        Some((0..children).filter_map(|n| self.page(page, numbers + 8 * n, 8 + 16 * n, tree)).collect())
    }

    fn tables(self, page: &[u8]) -> Vec<PageRef> {
        let pairs = u16_at(page, 2).map_or(0, usize::from);
        let definition = |n| {
            let ends = 4 + 4 * pairs;
            let (start, end) = (u32_at(page, ends + 4 * n - 4)?, u32_at(page, ends + 4 * n)?);
            page.get(start as usize..end as usize)
        };
        (0..pairs).filter_map(definition).filter_map(|definition| self.table(definition)).collect()
    }

    /// The root in the definition of a table, which has type, rows, root, and the fixed widths.
    fn table(self, definition: &[u8]) -> Option<PageRef> {
        if *definition.first()? != PLAIN_TABLE || *definition.get(9)? == 0 {
            return None;
        }
        let width =
            |at| Some(if *definition.get(at)? == 0 { None } else { Some(u32_at(definition, at + 1)?) });
        self.page(definition, 10, 18, TreeLayout::Rows { key: width(42)?, value: width(47)? })
    }

    /// The page whose number and checksum are at these offsets.
    fn page(self, bytes: &[u8], number: usize, checksum: usize, tree: TreeLayout) -> Option<PageRef> {
        let number = u64::from_le_bytes(*bytes.get(number..)?.first_chunk()?);
        let checksum = u128::from_le_bytes(*bytes.get(checksum..)?.first_chunk()?);
        let order = number >> 59;
        let pages = 1_u32.checked_shl(u32::try_from(order).ok()?)?;
        let (index, region) = (number & (0x000F_FFFF >> order), (number >> 20) & 0x000F_FFFF);
        let in_region = self.header_pages + index * u64::from(pages);
        let offset = PAGE_BYTES * (1 + region * (self.header_pages + self.region_pages) + in_region);
        (checksum != DEFERRED).then_some(PageRef { offset, pages, checksum, tree })
    }
}

/// Marks the other commit slot of a header as current.
pub(super) fn swap_slots(header: &mut [u8]) {
    if let Some(state) = header.get_mut(STATE_OFFSET) {
        *state ^= SECOND_SLOT;
    }
}

/// A commit slot with a valid checksum.
struct CommitSlot<'h>(&'h [u8]);

impl<'h> CommitSlot<'h> {
    fn read(header: &'h [u8], at: usize) -> Option<Self> {
        let slot = header.get(at..at + SLOT_BYTES)?;
        let stored = u128::from_le_bytes(*slot.get(SLOT_CHECKSUM..)?.first_chunk()?);
        (slot[0] == FORMAT && stored == checksum(&slot[..SLOT_CHECKSUM])).then_some(Self(slot))
    }

    fn transaction(&self) -> Option<u64> {
        self.0.get(104..)?.first_chunk().map(|id| u64::from_le_bytes(*id))
    }

    fn roots(&self, geometry: Geometry) -> Vec<PageRef> {
        let root = |(is_there, at): (usize, usize)| {
            let is_there = self.0.get(is_there).is_some_and(|flag| *flag != 0);
            is_there.then(|| geometry.page(self.0, at, at + 8, TreeLayout::Tables)).flatten()
        };
        [(1, 8), (2, 40)].into_iter().filter_map(root).collect()
    }
}

/// Whether a page has the expected checksum.
pub(super) fn is_intact(page: &[u8], tree: TreeLayout, expected: u64) -> bool {
    covered(page, tree).is_some_and(|covered| low_half(checksum(covered)) == expected)
}

pub(super) fn low_half(checksum: u128) -> u64 {
    u64::try_from(checksum & u128::from(u64::MAX)).unwrap_or(u64::MAX)
}

/// The bytes of a page that its checksum covers.
fn covered(page: &[u8], tree: TreeLayout) -> Option<&[u8]> {
    let (key, value) = match tree {
        TreeLayout::Tables => (None, None),
        TreeLayout::Rows { key, value } => (key, value),
    };
    let count = usize::from(u16_at(page, 2)?);
    let last = count.checked_sub(1)?;
    let end = match *page.first()? {
        // The ends of keys and of values are listed before them, unless their width is fixed.
        LEAF => match (key, value) {
            (Some(key), Some(value)) => 4 + count * (key as usize + value as usize),
            (None, Some(value)) => u32_at(page, 4 + 4 * last)? as usize + count * value as usize,
            (Some(_), None) => u32_at(page, 4 + 4 * last)? as usize,
            (None, None) => u32_at(page, 4 + 4 * (count + last))? as usize,
        },
        BRANCH => {
            let children = 8 + 24 * (count + 1);
            match key {
                Some(key) => children + count * key as usize,
                None => u32_at(page, children + 4 * last)? as usize,
            }
        }
        _ => return None,
    };
    page.get(..end)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
