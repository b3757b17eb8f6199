//! Adds entries that a memory flush has found to the memory files: with the checks, the lock and the durable write of the
//! tool `memory`.

use hermod_actors::model::{MemoryEntry, MemoryTarget};

use super::{Action, EditResult, LockedMemory, MemoryFiles, Order, Target, decide};

/// Adds these entries in order. Returns for each whether it is new, or why no file has it. What is reported as added is
/// durable. An entry that a file has already is not added again, so the same entries may be added after a crash.
pub fn add(files: &MemoryFiles, entries: &[MemoryEntry]) -> Vec<Result<bool, String>> {
    let locked = match files.lock(|| true) {
        Ok(locked) => locked,
        Err(error) => return entries.iter().map(|_| Err(error.to_string())).collect(),
    };
    entries.iter().map(|entry| add_one(files, &locked, entry)).collect()
}

fn add_one(files: &MemoryFiles, locked: &LockedMemory, entry: &MemoryEntry) -> Result<bool, String> {
    let target = match entry.target {
        MemoryTarget::Memory => Target::Memory,
        MemoryTarget::User => Target::User,
    };
    let content = Some(entry.text.to_string());
    let order = Order { action: Action::Add, target, content, old_text: None };
    order.check().map_err(|error| error.to_string())?;
    let entries = locked.read(target).map_err(|error| error.to_string())?;
    match decide(&order, &entries, None, files.limit(target)).map_err(|error| error.to_string())? {
        EditResult::Unchanged => Ok(false),
        EditResult::Changed(edited, _) => {
            locked.write(target, &edited).map_err(|error| error.to_string())?;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(target: MemoryTarget, text: &str) -> MemoryEntry {
        MemoryEntry { target, text: text.into() }
    }

    #[test]
    fn entries_are_added_once_and_checked_like_those_of_the_tool() {
        let state = tempfile::tempdir().unwrap();
        let files = MemoryFiles::new(state.path(), 30, 100);
        let add = |entries: &[MemoryEntry]| -> Vec<Result<bool, String>> { add(&files, entries) };
        let read = |target| files.lock(|| true).unwrap().read(target).unwrap().all().to_vec();
        let (oak, german) = (entry(MemoryTarget::Memory, "keel: oak"), entry(MemoryTarget::User, "German"));
        assert_eq!(add(&[oak.clone(), german.clone(), oak.clone()]), [Ok(true), Ok(true), Ok(false)]);
        // As after a crash between the write and its record.
        assert_eq!(add(&[oak.clone(), german]), [Ok(false), Ok(false)]);
        let hidden = entry(MemoryTarget::Memory, "a\u{202e}b");
        let long = entry(MemoryTarget::Memory, &"x".repeat(19));
        let fits = entry(MemoryTarget::Memory, &"x".repeat(18));
        let results = add(&[hidden, long, fits]);
        assert!(results[0].as_ref().unwrap_err().contains("U+202E"), "{results:?}");
        assert!(results[1].as_ref().unwrap_err().contains("1 over its limit of 30"), "{results:?}");
        assert_eq!(results[2], Ok(true));
        assert_eq!(read(Target::Memory), ["keel: oak", &"x".repeat(18)]);
        assert_eq!(read(Target::User), ["German"]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_left_as_it_is() {
        let state = tempfile::tempdir().unwrap();
        let files = MemoryFiles::new(state.path(), 100, 100);
        drop(files.lock(|| true).unwrap());
        std::fs::write(files.path(Target::Memory), [0xff]).unwrap();
        let results = add(&files, &[entry(MemoryTarget::Memory, "a"), entry(MemoryTarget::User, "b")]);
        assert!(results[0].as_ref().unwrap_err().contains("is not text in UTF-8"), "{results:?}");
        assert_eq!(results[1], Ok(true));
        assert_eq!(std::fs::read(files.path(Target::Memory)).unwrap(), [0xff]);
    }
}
