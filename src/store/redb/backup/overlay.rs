//! A file as a backend that the engine can write, though the file is only read: the writes stay in memory.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use redb::StorageBackend;

const PAGE_BYTES: usize = 4096;

/// A file that is never written: the engine's writes stay in memory and are dropped with it.
#[derive(Debug)]
pub(super) struct CopyOnWriteFile {
    file: File,
    pages: Mutex<MemoryPages>,
}

#[derive(Debug)]
struct MemoryPages {
    len: u64,
    /// Bytes below this offset come from the file, unless a page of `pages` covers them.
    file_end: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
}

impl CopyOnWriteFile {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let memory = MemoryPages { len, file_end: len, pages: BTreeMap::new() };
        Ok(Self { file, pages: Mutex::new(memory) })
    }

    fn lock_pages(&self) -> MutexGuard<'_, MemoryPages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads bytes of the file, and zeros behind `file_end`.
    fn read_file(&self, file_end: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let from_file = usize::try_from(file_end.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        self.file.read_exact_at(&mut out[..from_file], offset)?;
        out[from_file..].fill(0);
        Ok(())
    }
}

/// Splits a range by pages: each page's number, the offset within it, and the part of the range.
fn page_ranges(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = usize::try_from(at % PAGE_BYTES as u64).unwrap_or_default();
        let begin = done;
        done = len.min(done + PAGE_BYTES - within);
        (begin < len).then(|| (at / PAGE_BYTES as u64, within, begin..done))
    })
}

impl StorageBackend for CopyOnWriteFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock_pages().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let memory = self.lock_pages();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > memory.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_file(memory.file_end, offset, out)?;
        if !memory.pages.is_empty() {
            for (page, within, range) in page_ranges(offset, out.len()) {
                if let Some(page) = memory.pages.get(&page) {
                    let len = range.len();
                    out[range].copy_from_slice(&page[within..within + len]);
                }
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut memory = self.lock_pages();
        if len < memory.len {
            drop(memory.pages.split_off(&len.div_ceil(PAGE_BYTES as u64)));
            let within = usize::try_from(len % PAGE_BYTES as u64).unwrap_or_default();
            if let Some(last) = memory.pages.get_mut(&(len / PAGE_BYTES as u64)) {
                last[within..].fill(0);
            }
            memory.file_end = memory.file_end.min(len);
        }
        memory.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut memory = self.lock_pages();
        for (number, within, range) in page_ranges(offset, data.len()) {
            if !memory.pages.contains_key(&number) {
                let mut page = Box::new([0; PAGE_BYTES]);
                self.read_file(memory.file_end, number * PAGE_BYTES as u64, &mut page[..])?;
                memory.pages.insert(number, page);
            }
            if let Some(page) = memory.pages.get_mut(&number) {
                page[within..within + range.len()].copy_from_slice(&data[range]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Write(u16, Vec<u8>),
        Length(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (any::<u16>(), prop::collection::vec(any::<u8>(), 0..6_000)).prop_map(|(at, data)| Step::Write(at, data)),
            1 => any::<u16>().prop_map(Step::Length),
        ]
    }

    proptest! {
        #[test]
        fn it_reads_as_if_it_had_been_written(steps in prop::collection::vec(step(), 0..20), len in 0..30_000_usize) {
            let path = tempfile::NamedTempFile::new().unwrap();
            let original: Vec<u8> = (0..=250).cycle().take(len).collect();
            fs::write(path.path(), &original).unwrap();
            let overlay = CopyOnWriteFile::new(File::open(path.path()).unwrap()).unwrap();
            let mut model = original.clone();
            for step in steps {
                match step {
                    Step::Write(at, data) => {
                        let end = usize::from(at) + data.len();
                        if end <= model.len() {
                            overlay.write(at.into(), &data).unwrap();
                            model[usize::from(at)..end].copy_from_slice(&data);
                        }
                    }
                    Step::Length(len) => {
                        overlay.set_len(len.into()).unwrap();
                        model.resize(len.into(), 0);
                    }
                }
                let mut read = vec![0xff; model.len()];
                overlay.read(0, &mut read).unwrap();
                prop_assert_eq!(&read, &model);
            }
            prop_assert!(overlay.read(model.len() as u64, &mut [0]).is_err());
            prop_assert_eq!(fs::read(path.path()).unwrap(), original, "the file was written");
        }
    }
}
