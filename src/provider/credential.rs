//! A credential of a provider: the current key, how it is sent ([`KeyPlacement`]), and its renewal. Here is the trait
//! [`KeySource`] with its errors; the sources themselves are in `src/credential`.

use std::{
    fmt::{self, Debug},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use hermod_actors::ActiveDeadline;
use tokio::time::Instant;

use crate::{redaction, secret::Secret};

/// A key is renewed this long before it expires.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_mins(1);
/// Pause after a failed renewal. Until its end a key near its expiry is used without another try.
const RENEWAL_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The mark in place of a key that has no name of its own.
const LABEL: &str = "credential";
/// How long a call waits for a key fetch. Longer than the own limits of every key source.
const FETCH_TIMEOUT: Duration = Duration::from_mins(2);

/// A source of keys that change.
pub trait KeySource: Debug + Send + Sync + 'static {
    /// Fetches the key. A credential runs at most one fetch at a time and never cancels it.
    fn fetch(&self) -> BoxFuture<'_, Result<FetchedKey, KeyError>>;

    /// The secrets that a fetch uses, for redaction.
    fn secrets(&self) -> Vec<Secret> {
        Vec::new()
    }
}

/// A key from a [`KeySource`].
#[derive(Debug, Clone)]
pub struct FetchedKey {
    /// The key.
    pub key: Secret,
    /// The remaining lifetime of the key, if known.
    pub expires_in: Option<Duration>,
}

/// Why there is no key. Never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The source refuses the key; a person has to act.
    #[error("{0}")]
    Denied(String),
    /// The source is busy or unreachable; a later try may succeed.
    #[error("{0}")]
    Unreachable(String),
}

/// How a key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyPlacement {
    /// As the wire format sends keys.
    #[default]
    ByWire,
    /// As a bearer token, for every wire format.
    Bearer,
}

/// A key, fixed or renewed from a source. Clones share one credential.
#[derive(Clone)]
pub struct Credential(Arc<CredentialInner>);

struct CredentialInner {
    /// `None` for a fixed key.
    fetch: Option<Box<dyn KeySource>>,
    placement: KeyPlacement,
    state: Mutex<CredentialState>,
}

#[derive(Default)]
struct CredentialState {
    held: Option<HeldKey>,
    /// The number of the last key that a provider refused.
    refused: Option<u64>,
    /// The fetch in progress.
    shared_fetch: Option<SharedFetch>,
    /// Until this time a key near its expiry is used without a renewal.
    renewal_paused_until: Option<Instant>,
}

type SharedFetch = Shared<BoxFuture<'static, Result<NumberedKey, KeyError>>>;

struct HeldKey {
    key: NumberedKey,
    /// When renewal is due, and when the key expires.
    renewal_and_expiry: Option<(Instant, Instant)>,
}

/// A key with its number within this credential, counted from 1.
#[derive(Debug, Clone)]
pub(super) struct NumberedKey {
    pub(super) secret: Secret,
    number: u64,
}

impl Credential {
    /// A credential with a fixed key.
    pub fn fixed(key: Secret) -> Self {
        Self::new(None, Some(key), KeyPlacement::ByWire)
    }

    /// A credential with a key source. `known` is the first key, if any. The source is used if there is no key, after a
    /// refusal, and near the key's expiry.
    pub fn from_source(fetch: impl KeySource, known: Option<Secret>, placement: KeyPlacement) -> Self {
        Self::new(Some(Box::new(fetch)), known, placement)
    }

    fn new(fetch: Option<Box<dyn KeySource>>, known: Option<Secret>, placement: KeyPlacement) -> Self {
        let secrets = fetch.iter().flat_map(|fetch| fetch.secrets()).chain(known.clone());
        secrets.for_each(|secret| redaction::learn(LABEL, &secret));
        let held =
            known.map(|secret| HeldKey { key: NumberedKey { secret, number: 1 }, renewal_and_expiry: None });
        Self(Arc::new(CredentialInner {
            fetch,
            placement,
            state: Mutex::new(CredentialState { held, ..CredentialState::default() }),
        }))
    }

    /// How the keys are sent.
    pub(super) fn placement(&self) -> KeyPlacement {
        self.0.placement
    }

    /// The current key, if one is known.
    pub(super) fn known_key(&self) -> Option<Secret> {
        self.0.state().held.as_ref().map(|held| held.key.secret.clone())
    }

    /// The key to send now. Fetches it if necessary; if the fetch fails, a key that has not expired is used.
    pub(super) async fn key(&self) -> Result<NumberedKey, KeyError> {
        let fetch = {
            let mut state = self.0.state();
            match state.usable_key(Instant::now()) {
                Some(key) => return Ok(key),
                None => self.shared_fetch(&mut state),
            }
        };
        wait_for_key(fetch).await.or_else(|error| {
            let state = self.0.state();
            let held = state.held.as_ref().filter(|held| !held.is_expired(Instant::now()));
            held.map(|held| held.key.clone()).ok_or(error)
        })
    }

    /// A provider refused this key.
    pub(super) fn on_refused(&self, key: &NumberedKey) {
        let mut state = self.0.state();
        state.refused = state.refused.max(Some(key.number));
    }

    /// Replaces the refused key; true if the key is another one. Concurrent callers share one fetch. Without a fetch it
    /// is true if the current key is newer than the refused one.
    pub(super) async fn renew(&self) -> bool {
        let (fetch, old_number) = {
            let mut state = self.0.state();
            let old_number = state.held.as_ref().map(|held| held.key.number);
            if old_number.is_some() && state.refused.is_some() && old_number > state.refused {
                return true;
            }
            (self.shared_fetch(&mut state), old_number)
        };
        match wait_for_key(fetch).await {
            Ok(key) => Some(key.number) != old_number,
            Err(error) => {
                tracing::warn!(%error, "a refused credential could not be renewed");
                false
            }
        }
    }

    /// All secrets of the credential, for redaction.
    pub(super) fn secrets(&self) -> Vec<Secret> {
        let fetching = self.0.fetch.iter().flat_map(|fetch| fetch.secrets());
        self.known_key().into_iter().chain(fetching).collect()
    }

    /// The fetch in progress, or a new one. The fetch continues if its callers are dropped: a source may deliver a key
    /// only once.
    fn shared_fetch(&self, state: &mut CredentialState) -> SharedFetch {
        if let Some(fetch) = &state.shared_fetch {
            return fetch.clone();
        }
        let (task_inner, inner) = (Arc::clone(&self.0), Arc::clone(&self.0));
        let task = tokio::spawn(async move {
            let fetched = match &task_inner.fetch {
                Some(fetch) => fetch.fetch().await,
                None => Err(KeyError::Denied("it is fixed: there is no other one".to_owned())),
            };
            task_inner.state().on_fetched(fetched, Instant::now())
        });
        let fetch = async move {
            task.await.unwrap_or_else(|_| {
                inner.state().shared_fetch = None;
                Err(KeyError::Denied("getting it broke off".to_owned()))
            })
        };
        let fetch = fetch.boxed().shared();
        state.shared_fetch = Some(fetch.clone());
        fetch
    }
}

impl CredentialInner {
    fn state(&self) -> MutexGuard<'_, CredentialState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CredentialState {
    /// The key, if it can be sent without a fetch.
    fn usable_key(&self, now: Instant) -> Option<NumberedKey> {
        let held = self.held.as_ref()?;
        let is_paused = self.renewal_paused_until.is_some_and(|until| now < until) && !held.is_expired(now);
        (is_paused || !held.is_renewal_due(now)).then(|| held.key.clone())
    }

    /// Handles the end of a fetch. An equal text keeps the key's number; a failure keeps the held key.
    fn on_fetched(
        &mut self,
        fetched: Result<FetchedKey, KeyError>,
        now: Instant,
    ) -> Result<NumberedKey, KeyError> {
        self.shared_fetch = None;
        let FetchedKey { key: secret, expires_in } = fetched.inspect_err(|_| {
            self.renewal_paused_until = Some(now + RENEWAL_RETRY_DELAY);
        })?;
        redaction::learn(LABEL, &secret);
        self.renewal_paused_until = None;
        let before = self.held.as_ref().map(|held| &held.key);
        let number = match before {
            Some(key) if key.secret.reveal() == secret.reveal() => key.number,
            Some(key) => key.number + 1,
            None => 1,
        };
        let key = NumberedKey { secret, number };
        // A key with a short lifetime is renewed after half of it.
        let renewal_and_expiry = expires_in.and_then(|lifetime| {
            let expiry = now.checked_add(lifetime)?;
            Some((expiry.checked_sub(RENEW_BEFORE_EXPIRY.min(lifetime / 2))?, expiry))
        });
        self.held = Some(HeldKey { key: key.clone(), renewal_and_expiry });
        Ok(key)
    }
}

impl HeldKey {
    fn is_renewal_due(&self, now: Instant) -> bool {
        self.renewal_and_expiry.is_some_and(|(due, _)| due <= now)
    }

    fn is_expired(&self, now: Instant) -> bool {
        self.renewal_and_expiry.is_some_and(|(_, expiry)| expiry <= now)
    }
}

impl Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("fetch", &self.0.fetch).finish_non_exhaustive()
    }
}

/// Waits for the key of a fetch. The fetch continues when the wait for it has timed out.
async fn wait_for_key(fetch: SharedFetch) -> Result<NumberedKey, KeyError> {
    ActiveDeadline::after(FETCH_TIMEOUT).bound(fetch).await.unwrap_or_else(|| {
        let seconds = FETCH_TIMEOUT.as_secs();
        Err(KeyError::Unreachable(format!("getting it has not ended within {seconds} s, and goes on")))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures::future::join_all;
    use tokio::time::{advance, sleep};

    use super::*;

    /// A key and its lifetime in seconds, or a failure.
    type Next = Option<(&'static str, Option<u64>)>;

    /// Returns these results in order, each after one second.
    #[derive(Debug, Clone)]
    struct Script {
        keys: Arc<Mutex<VecDeque<Next>>>,
        fetches: Arc<AtomicUsize>,
    }

    impl Script {
        fn new(keys: &[Next]) -> Self {
            Self { keys: Arc::new(Mutex::new(keys.iter().copied().collect())), fetches: Arc::default() }
        }

        fn fetches(&self) -> usize {
            self.fetches.load(Ordering::Relaxed)
        }

        fn credential(&self, known: Option<&str>) -> Credential {
            Credential::from_source(self.clone(), known.map(Secret::new), KeyPlacement::ByWire)
        }
    }

    impl KeySource for Script {
        fn fetch(&self) -> BoxFuture<'_, Result<FetchedKey, KeyError>> {
            async {
                self.fetches.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_secs(1)).await;
                let next = self.keys.lock().unwrap().pop_front().expect("it is not asked for more");
                let (key, lifetime) = next.ok_or_else(|| KeyError::Denied("not today".into()))?;
                Ok(FetchedKey { key: Secret::new(key), expires_in: lifetime.map(Duration::from_secs) })
            }
            .boxed()
        }
    }

    async fn sent(credential: &Credential) -> Result<String, KeyError> {
        Ok(credential.key().await?.secret.reveal().to_owned())
    }

    /// Sends the key, which is refused.
    async fn send_in_vain(credential: &Credential) {
        let key = credential.key().await.unwrap();
        credential.on_refused(&key);
    }

    /// A file system that does not respond.
    #[derive(Debug)]
    struct Never;

    impl KeySource for Never {
        fn fetch(&self) -> BoxFuture<'_, Result<FetchedKey, KeyError>> {
            std::future::pending().boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_for_a_key() {
        let credential = Credential::from_source(Never, None, KeyPlacement::ByWire);
        let began = Instant::now();
        let (one, two) = tokio::join!(sent(&credential), sent(&credential));
        for denied in [one, two] {
            let Err(KeyError::Unreachable(why)) = denied else { panic!("{denied:?}") };
            assert!(why.contains("has not ended within 120 s"), "{why}");
        }
        assert_eq!(began.elapsed(), FETCH_TIMEOUT);
        assert!(!credential.renew().await);
        assert_eq!(began.elapsed(), 2 * FETCH_TIMEOUT);
    }

    #[tokio::test]
    async fn a_fixed_key_cannot_be_renewed() {
        let credential = Credential::fixed(Secret::new("k1"));
        send_in_vain(&credential).await;
        assert!(!credential.renew().await);
        assert_eq!(sent(&credential).await.unwrap(), "k1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_got_when_it_is_first_needed_and_once_for_all() {
        let script = Script::new(&[Some(("k1", None))]);
        let credential = script.credential(None);
        assert_eq!(script.fetches(), 0);
        let all = join_all((0..50).map(|_| sent(&credential))).await;
        assert!(all.iter().all(|key| key.as_deref() == Ok("k1")), "{all:?}");
        assert_eq!(script.fetches(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_were_refused_get_the_same_new_key() {
        let script = Script::new(&[Some(("k2", None)), Some(("k3", None))]);
        let credential = script.credential(Some("k1"));
        let old = credential.key().await.unwrap();
        credential.on_refused(&old);
        assert_eq!(join_all((0..50).map(|_| credential.renew())).await, [true; 50]);
        // A call that was in progress with the old key learns of the refusal only now.
        credential.on_refused(&old);
        assert!(credential.renew().await);
        assert_eq!((sent(&credential).await.unwrap().as_str(), script.fetches()), ("k2", 1));
        send_in_vain(&credential).await;
        assert!(credential.renew().await);
        assert_eq!((sent(&credential).await.unwrap().as_str(), script.fetches()), ("k3", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_leaves_the_old_key_and_the_same_key_is_no_other() {
        let script = Script::new(&[None, Some(("k1", None)), Some(("k2", None))]);
        let credential = script.credential(Some("k1"));
        for expect in [false, false, true] {
            send_in_vain(&credential).await;
            assert_eq!(sent(&credential).await.unwrap(), "k1");
            assert_eq!(credential.renew().await, expect);
        }
        assert_eq!(sent(&credential).await.unwrap(), "k2");
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_waiting_does_not_end_the_fetch() {
        let script = Script::new(&[Some(("k1", None))]);
        let credential = script.credential(None);
        tokio::time::timeout(Duration::from_millis(10), credential.key()).await.unwrap_err();
        sleep(Duration::from_secs(2)).await;
        assert_eq!((sent(&credential).await.unwrap().as_str(), script.fetches()), ("k1", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_renewed_before_its_end() {
        let script =
            Script::new(&[Some(("k1", Some(600))), None, Some(("k2", Some(10))), Some(("k3", None))]);
        let credential = script.credential(None);
        let step = async |seconds: u64, expect: &str, fetches: usize| {
            advance(Duration::from_secs(seconds)).await;
            assert_eq!((sent(&credential).await.unwrap().as_str(), script.fetches()), (expect, fetches));
        };
        step(0, "k1", 1).await;
        step(530, "k1", 1).await;
        // Renewal fails, but the key is still valid: it is used, and renewal is not tried again at once.
        step(11, "k1", 2).await;
        step(5, "k1", 2).await;
        step(10, "k2", 3).await;
        step(4, "k2", 3).await;
        step(2, "k3", 4).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_over_is_not_sent() {
        let script = Script::new(&[Some(("k1", Some(600))), None, None, Some(("k2", None))]);
        let credential = script.credential(None);
        assert_eq!(sent(&credential).await.unwrap(), "k1");
        advance(Duration::from_secs(601)).await;
        for _ in 0..2 {
            assert_eq!(sent(&credential).await, Err(KeyError::Denied("not today".into())));
        }
        assert_eq!(sent(&credential).await.unwrap(), "k2");
    }

    #[tokio::test]
    async fn a_fetch_that_dies_can_be_tried_again() {
        let script = Script::new(&[]);
        let credential = script.credential(None);
        tokio::time::pause();
        for _ in 0..2 {
            assert_eq!(sent(&credential).await, Err(KeyError::Denied("getting it broke off".into())));
        }
        assert_eq!(script.fetches(), 2);
    }
}
