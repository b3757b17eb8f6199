//! A source of API keys: a file.

use std::collections::BTreeMap;

use futures::future::{BoxFuture, FutureExt};
use tokio::task::spawn_blocking;

use crate::{
    provider::{FetchedKey, KeyError, KeySource},
    secret::Reference,
};

/// A key in a file, read anew at each fetch since the file may be replaced.
#[derive(Debug)]
pub struct KeyFile(Reference);

impl KeyFile {
    /// Creates the source from a reference to a file with an absolute path.
    pub const fn new(file: Reference) -> Self {
        Self(file)
    }
}

impl KeySource for KeyFile {
    fn fetch(&self) -> BoxFuture<'_, Result<FetchedKey, KeyError>> {
        let file = self.0.clone();
        async {
            let read = spawn_blocking(move || file.resolve(&BTreeMap::new())).await;
            match read {
                Ok(Ok(key)) => Ok(FetchedKey { key, expires_in: None }),
                Ok(Err(missing)) => Err(KeyError::Denied(missing.to_string())),
                Err(_) => Err(KeyError::Denied(format!("{}: reading it broke off", self.0))),
            }
        }
        .boxed()
    }
}
