//! Files with places in the feed of records, one for each reader that must go on where an earlier process has stopped.

use std::{fs, io, path::PathBuf};

use hermod_actors::port::FeedCursor;
use serde::{Deserialize, Serialize};

use crate::files::{self, IoResult as _};

/// Size limit of the file, which has a hundred bytes.
const MAX_BYTES: u64 = 1 << 16;

/// Keeps the place of one reader. The file is renamed into place and not synced: after a power loss it may be older, and
/// the reader takes some records again.
#[derive(Debug)]
pub(crate) struct CursorFile {
    path: PathBuf,
    restore_generation: u64,
}

#[derive(Serialize, Deserialize)]
struct Content {
    /// The place behind the last record that was taken.
    after: FeedCursor,
    /// The restore generation of the store: a place of another one means nothing.
    restored: u64,
}

impl CursorFile {
    /// The file at this path, for a store of this restore generation. Reads nothing yet.
    pub(crate) const fn new(path: PathBuf, restore_generation: u64) -> Self {
        Self { path, restore_generation }
    }

    /// The place, unless there is none in this store.
    pub(crate) fn read(&self) -> Option<FeedCursor> {
        let bytes = files::read_regular(&self.path, MAX_BYTES).if_exists();
        let content = match bytes.map_err(|error| error.to_string()) {
            Ok(None) => return None,
            Ok(Some(bytes)) => serde_json::from_slice::<Content>(&bytes).map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        match content {
            Ok(content) => (content.restored == self.restore_generation).then_some(content.after),
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%path, error, "the place in the feed is lost: what happened before is left out");
                None
            }
        }
    }

    /// Keeps a place.
    pub(crate) fn write(&self, after: FeedCursor) {
        let content = Content { after, restored: self.restore_generation };
        let part = self.path.with_extension("json.part");
        let json = serde_json::to_vec(&content).map_err(io::Error::other);
        let written =
            json.and_then(|json| fs::write(&part, json)).and_then(|()| fs::rename(&part, &self.path));
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), %error, "some records may be taken again at the next start");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_unless_the_store_was_restored() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("place.json");
        let file = CursorFile::new(path.clone(), 1);
        assert_eq!(file.read(), None);
        let place = FeedCursor { position: 17, records: 3 };
        file.write(place);
        assert_eq!(file.read(), Some(place));
        assert_eq!(CursorFile::new(path.clone(), 2).read(), None, "the store was restored");
        for damage in ["", "{}", r#"{"after":"x","restored":1}"#] {
            fs::write(&path, damage).unwrap();
            assert_eq!(file.read(), None, "{damage}");
        }
    }
}
