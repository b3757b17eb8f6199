//! The least that the same work costs: the bare engine and the bare client.

use bytes::Bytes;
use hermod_actors::model::{Record, encode};
use redb::{Builder, Database, TableDefinition};
use reqwest::{Client, header};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const TAILS: TableDefinition<u128, (u64, u64, u64)> = TableDefinition::new("tails");
const ACCOUNTS: TableDefinition<u128, &[u8]> = TableDefinition::new("accounts");
/// An account row of one run without limits.
const ACCOUNT: [u8; 40] = [7; 40];

/// redb alone, strict: for each append one row with its records, encoded, one that finds it, and one of an account.
pub(crate) struct Bare {
    db: Database,
    next: u64,
    _dir: TempDir,
}

impl Bare {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let db = Builder::new().set_cache_size(256 << 20).create(dir.path().join("bare")).expect("a store");
        Self { db, next: 1, _dir: dir }
    }

    /// One commit with an append for each of so many sessions.
    pub(crate) fn commit(&mut self, sessions: usize, records: &[Record]) {
        let mut txn = self.db.begin_write().expect("one writer");
        txn.set_quick_repair(true);
        let mut log = txn.open_table(LOG).expect("a table");
        let mut tails = txn.open_table(TAILS).expect("a table");
        let mut accounts = txn.open_table(ACCOUNTS).expect("a table");
        for n in 0..sessions as u128 {
            let row: Vec<u8> = records.iter().flat_map(encode).collect();
            log.insert(self.next, &*row).expect("a row");
            tails.insert(n << 64, (self.next, self.next, 0)).expect("a row");
            self.next += 1;
            accounts.insert(n << 64, &ACCOUNT[..]).expect("a row");
        }
        drop((log, tails, accounts));
        txn.commit().expect("a commit");
    }
}

/// A client with the settings of Hermod's own, and one request.
pub(crate) struct Exchange {
    client: Client,
    url: String,
    body: Bytes,
}

impl Exchange {
    pub(crate) fn new(base_url: &str, body: Bytes) -> Self {
        let ring = rustls::crypto::ring::default_provider();
        let tls = ClientConfig::builder_with_provider(ring.into())
            .with_safe_default_protocol_versions()
            .expect("ring knows them")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let client = Client::builder().tls_backend_preconfigured(tls).http1_only().no_proxy().build();
        Self { client: client.expect("a client"), url: format!("{base_url}/chat/completions"), body }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Sends the request and reads the stream to its end.
    pub(crate) async fn make(&self) {
        let request = self
            .client
            .post(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream")
            .body(self.body.clone());
        let mut response = request.send().await.expect("an answer");
        assert!(response.status().is_success(), "{}", response.status());
        while response.chunk().await.expect("a whole answer").is_some() {}
    }
}
