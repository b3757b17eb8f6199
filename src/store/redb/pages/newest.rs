//! Finds out whether a newer commit than the current one is complete.

use std::collections::HashSet;

use super::layout::{Geometry, PageRef, is_intact, low_half};

/// Whether all pages of a newer commit are intact. Pages that it shares with the older commit are not read again.
/// While no tree has grown in height, shared pages are at the same depth in both.
pub(super) fn is_whole(
    geometry: Geometry,
    mut newer: Vec<PageRef>,
    mut older: Vec<PageRef>,
    read: impl Fn(&PageRef) -> Option<Vec<u8>>,
) -> bool {
    let names = |pages: &[PageRef]| -> HashSet<(u64, u128)> {
        pages.iter().map(|page| (page.offset, page.checksum)).collect()
    };
    let children = |page: &PageRef| {
        let bytes = read(page).filter(|bytes| is_intact(bytes, page.tree, low_half(page.checksum)))?;
        Some(geometry.children(&bytes, page.tree))
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
