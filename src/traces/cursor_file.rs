//! The file `traces.json` in the state directory: up to which place of the feed traces are exported.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use hermod_actors::port::FeedCursor;
use serde::{Deserialize, Serialize};

use crate::files::{self, IoResult as _};

/// Name of the file in the state directory.
const FILE: &str = "traces.json";
/// Size limit of the file, which has a hundred bytes.
const MAX_BYTES: u64 = 1 << 16;

/// Keeps the place in the state directory. The file is renamed into place and not synced: after a power loss it may be
/// older, and spans are exported again.
#[derive(Debug)]
pub(super) struct CursorFile {
    path: PathBuf,
    restore_generation: u64,
}

#[derive(Serialize, Deserialize)]
struct Content {
    /// The last place whose traces are exported.
    after: FeedCursor,
    /// The restore generation of the store: a place of another one means nothing.
    restored: u64,
}

impl CursorFile {
    /// The file of this state directory, for a store of this restore generation. Reads nothing yet.
    pub(super) fn new(state: &Path, restore_generation: u64) -> Self {
        Self { path: state.join(FILE), restore_generation }
    }

    /// The place, unless there is none in this store.
    pub(super) fn read(&self) -> Option<FeedCursor> {
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
                tracing::warn!(%path, error, "traces of runs that have ended before are not exported");
                None
            }
        }
    }

    /// Keeps a place.
    pub(super) fn write(&self, after: FeedCursor) {
        let content = Content { after, restored: self.restore_generation };
        let part = self.path.with_extension("json.part");
        let json = serde_json::to_vec(&content).map_err(io::Error::other);
        let written =
            json.and_then(|json| fs::write(&part, json)).and_then(|()| fs::rename(&part, &self.path));
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), %error, "spans may be exported again at the next start");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_unless_the_store_was_restored() {
        let state = tempfile::tempdir().unwrap();
        let file = CursorFile::new(state.path(), 1);
        assert_eq!(file.read(), None);
        let place = FeedCursor { position: 17, records: 3 };
        file.write(place);
        assert_eq!(file.read(), Some(place));
        assert_eq!(CursorFile::new(state.path(), 2).read(), None, "the store was restored");
        for damage in ["", "{}", r#"{"after":"x","restored":1}"#] {
            fs::write(state.path().join(FILE), damage).unwrap();
            assert_eq!(file.read(), None, "{damage}");
        }
    }
}
