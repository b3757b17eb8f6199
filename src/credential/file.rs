use std::collections::BTreeMap;

use futures::future::{BoxFuture, FutureExt};
use tokio::task::spawn_blocking;

use crate::{
    provider::{Fetch, Fetched, NoKey},
    secret::Reference,
};

/// A key in a file, which somebody may replace.
#[derive(Debug)]
pub struct KeyFile(Reference);

impl KeyFile {
    /// Of a reference to a file with an absolute path.
    pub const fn new(file: Reference) -> Self {
        Self(file)
    }
}

impl Fetch for KeyFile {
    fn fetch(&self) -> BoxFuture<'_, Result<Fetched, NoKey>> {
        let file = self.0.clone();
        async {
            let read = spawn_blocking(move || file.resolve(&BTreeMap::new())).await;
            match read {
                Ok(Ok(Some(key))) => Ok(Fetched { key, expires_in: None }),
                Ok(Ok(None)) => Err(NoKey::Denied(format!("{}: it is no file", self.0))),
                Ok(Err(missing)) => Err(NoKey::Denied(missing.to_string())),
                Err(_) => Err(NoKey::Denied(format!("{}: reading it broke off", self.0))),
            }
        }
        .boxed()
    }
}
