//! The requests that an adapter gets: views, images and prefixes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use hermod_actors::{
    RunError, RunRequest, Runtime, SessionChoice,
    model::{
        Body, ContentHash, EffectClass, Failure, FailureClass, FinishReason, ModelAnswer, ModelProfile,
        PrefixChange, RunSpec, SessionId, ThinkingLevel, ThinkingStyle,
    },
    port::{
        ArtifactError, ArtifactName, ArtifactSink, Artifacts, DeltaSink, Encoder, Excerpt, Journal,
        ModelProvider, ModelRequest, Tool,
    },
};
use hermod_testkit::{
    MemoryArtifacts, MemoryJournal, PlainEncoder, ScriptedProvider, ScriptedTool, VirtualClock, calls, says,
    world,
};
use serde_json::{Value, json};

/// A model that records its requests.
#[derive(Debug)]
struct Kept(ScriptedProvider, Arc<Mutex<Vec<ModelRequest>>>);

impl ModelProvider for Kept {
    fn encoder(&self, model: &str, traits: &ModelProfile) -> Arc<dyn Encoder> {
        self.0.encoder(model, traits)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        self.1.lock().expect("nobody panics").push(request.clone());
        self.0.call(request, deltas)
    }
}

/// A runtime, and the requests that its model got.
struct Scene {
    runtime: Runtime,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
}

impl Scene {
    async fn new(
        journal: &MemoryJournal,
        script: impl Fn(&[Value]) -> Result<ModelAnswer, Failure> + Send + Sync + 'static,
    ) -> Self {
        static SCENES: AtomicU64 = AtomicU64::new(1);
        let look: Arc<dyn Tool> = Arc::new(ScriptedTool::fixed("look", EffectClass::Pure, "seen"));
        let journal: Arc<dyn Journal> = Arc::new(journal.clone());
        let model = ScriptedProvider::new(Duration::ZERO, script);
        let asked = Arc::default();
        let mut world = world(journal, model.clone(), vec![look]);
        // Two scenes on one journal must not create the same ids.
        world.clock = Arc::new(VirtualClock::new(SCENES.fetch_add(1, Ordering::Relaxed)));
        world.providers = ["test", "other"]
            .map(|name| {
                (name.into(), Arc::new(Kept(model.clone(), Arc::clone(&asked))) as Arc<dyn ModelProvider>, 9)
            })
            .into();
        Self { runtime: Runtime::start(world).await.expect("the runtime starts"), asked }
    }

    /// The views of all requests so far.
    fn views(&self) -> Vec<Vec<Value>> {
        self.asked.lock().expect("nobody panics").iter().map(PlainEncoder::decode).collect()
    }

    /// The bytes of all requests so far.
    fn bytes(&self) -> Vec<Vec<u8>> {
        let whole = |request: &ModelRequest| {
            let messages = request.messages.clone().assemble(&[], &request.images).concat();
            [request.head.bytes.as_ref(), &messages].concat()
        };
        self.asked.lock().expect("nobody panics").iter().map(whole).collect()
    }
}

fn text(message: &Value) -> &str {
    message["text"].as_str().or(message["content"].as_str()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_nudge_stands_in_the_last_message_of_one_request() {
    let scene = Scene::new(&MemoryJournal::new(), |view| match view {
        [.., last] if text(last) == "seen" && view.len() == 4 => Ok(says("")),
        [.., last] if last["role"] == "tool" && view.len() > 4 => Ok(says("done")),
        _ => Ok(calls(&[("look", json!({}))])),
    })
    .await;
    let result = scene.runtime.run(RunRequest::new("go")).await.unwrap();
    assert_eq!(result.text(), Some("done"));
    let views = scene.views();
    let roles = |view: &[Value]| view.iter().map(|message| message["role"].clone()).collect::<Vec<_>>();
    assert_eq!(roles(&views[1]), roles(&views[2]), "no message of its own");
    let nudged = text(&views[2][3]);
    assert!(nudged.starts_with("seen\n\n[From the runtime") && nudged.contains("empty"), "{nudged}");
    assert_eq!(views[3][..4], views[1][..4], "it is gone afterwards");
}

#[tokio::test(start_paused = true)]
async fn a_text_that_was_cut_off_is_shown_with_what_is_asked_behind_it() {
    let scene = Scene::new(&MemoryJournal::new(), |view| match view.len() {
        2 => Ok(ModelAnswer { finish: FinishReason::Length, ..says("one, ") }),
        4 if text(&view[2]) == "one, " => Ok(says("two")),
        _ => Ok(says("next")),
    })
    .await;
    let session = SessionChoice::Key("k".into());
    let result =
        scene.runtime.run(RunRequest { session: session.clone(), ..RunRequest::new("go") }).await.unwrap();
    assert_eq!(result.text(), Some("one, two"));
    scene.runtime.run(RunRequest { session, ..RunRequest::new("on") }).await.unwrap();
    let shown = |view: &[Value]| view[1..].iter().map(|message| text(message).to_owned()).collect::<Vec<_>>();
    let views = scene.views();
    let asked = shown(&views[1]);
    assert_eq!(asked[..2], ["go", "one, "]);
    assert!(asked[2].contains("cut off"), "{asked:?}");
    assert_eq!(shown(&views[2]), ["go", "one, two", "on"]);
}

#[tokio::test(start_paused = true)]
async fn pictures_come_with_every_request_that_shows_them() {
    let scene = Scene::new(&MemoryJournal::new(), |view| match view.len() {
        2 => Ok(calls(&[("look", json!({}))])),
        _ => Ok(says("a cat")),
    })
    .await;
    let picture = Bytes::from_static(b"GIF89a picture");
    let request = RunRequest { images: vec![picture.clone()], ..RunRequest::new("what is it?") };
    let result = scene.runtime.run(request).await.unwrap();
    for request in scene.asked.lock().unwrap().iter() {
        assert_eq!(request.images.values().collect::<Vec<_>>(), [&picture]);
    }
    for view in scene.views() {
        let named = view[1]["images"].as_array().unwrap();
        assert_eq!(named, &[json!(format!("{}.0.0-0", result.run))]);
    }
    let refused = RunRequest { images: vec!["no picture".into()], ..RunRequest::new("what is it?") };
    let error = scene.runtime.run(refused).await.unwrap_err();
    assert!(matches!(error, RunError::Invalid { field: "images", .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_picture_is_there_after_a_crash_and_said_to_be_missing_if_it_is_not() {
    let journal = MemoryJournal::new();
    let broken = Failure::new(FailureClass::InvalidRequest, "no");
    let scene = Scene::new(&journal, move |_| Err(broken.clone())).await;
    let session = SessionChoice::Key("k".into());
    let request = RunRequest {
        images: vec![Bytes::from_static(b"GIF89a picture")],
        session: session.clone(),
        ..RunRequest::new("what is it?")
    };
    scene.runtime.run(request).await.unwrap();
    scene.runtime.suspend().await;
    // Another process, without the artifacts.
    let scene = Scene::new(&journal.reopened(), |_| Ok(says("fine"))).await;
    let result = scene.runtime.run(RunRequest { session, ..RunRequest::new("and now?") }).await.unwrap();
    let told = result.ended.to_string();
    assert!(told.contains("0.0-0 of this conversation cannot be read"), "{told}");
    let status = scene.runtime.providers().await;
    assert!(status.iter().all(|provider| provider.failed == 0), "nobody was asked: {status:?}");
}

/// Artifacts whose next reads fail.
#[derive(Debug, Default)]
struct Flaky(MemoryArtifacts, AtomicU64);

impl Artifacts for Flaky {
    fn create(&self, name: ArtifactName) -> BoxFuture<'static, Result<Box<dyn ArtifactSink>, ArtifactError>> {
        self.0.create(name)
    }

    fn verify(
        &self,
        name: ArtifactName,
        sha256: ContentHash,
    ) -> BoxFuture<'static, Result<(), ArtifactError>> {
        self.0.verify(name, sha256)
    }

    fn read(
        &self,
        name: ArtifactName,
        offset: u64,
        max: usize,
    ) -> BoxFuture<'static, Result<Excerpt, ArtifactError>> {
        match self.1.fetch_add(1, Ordering::Relaxed) {
            0 => Box::pin(std::future::ready(Err(ArtifactError::Unavailable("no file handles".into())))),
            _ => self.0.read(name, offset, max),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_picture_that_cannot_be_read_now_is_read_again() {
    let model = ScriptedProvider::new(Duration::ZERO, |_| Ok(says("a cat")));
    let mut world = world(Arc::new(MemoryJournal::new()), model, Vec::new());
    let kept = Arc::new(Flaky::default());
    world.artifacts = Arc::clone(&kept) as Arc<dyn Artifacts>;
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let images = vec![Bytes::from_static(b"GIF89a picture")];
    let result = runtime.run(RunRequest { images, ..RunRequest::new("what is it?") }).await.unwrap();
    assert_eq!(result.text(), Some("a cat"), "{}", result.ended);
    assert_eq!(kept.1.load(Ordering::Relaxed), 2);
    let status = runtime.providers().await.remove(0);
    assert_eq!((status.answered, status.failed), (1, 0));
}

/// The change of the prefix that each `model.started` records.
async fn prefixes(scene: &Scene, session: SessionId) -> Vec<Option<PrefixChange>> {
    let records = scene.runtime.journal(session, 1).await.expect("its journal");
    let started = records.iter().filter_map(|(_, record)| {
        let Body::ModelStarted(started) = &record.body else { return None };
        Some(started.prefix)
    });
    started.collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_begins_as_the_one_before_it_or_its_start_says_why_not() {
    let scene = Scene::new(&MemoryJournal::new(), |view| match view.last() {
        Some(last) if last["role"] == "user" => Ok(calls(&[("look", json!({}))])),
        _ => Ok(says("done")),
    })
    .await;
    let spec = scene.runtime.defaults().spec.clone();
    let session = SessionChoice::Key("k".into());
    let request = || RunRequest { session: session.clone(), ..RunRequest::new("go") };
    let mut traits = ModelProfile { thinking_style: Some(ThinkingStyle::Effort), ..ModelProfile::default() };
    let mut other = spec.clone();
    other.chain = vec!["other/m".parse().unwrap()];
    let bare = RunSpec { tools: Vec::new(), ..spec.clone() };
    let thinks = |level, traits: &ModelProfile| RunSpec {
        thinking: Some(level),
        profiles: vec![*traits],
        ..bare.clone()
    };
    let high = thinks(ThinkingLevel::High, &traits);
    traits.thinking_style = None;
    let untold = thinks(ThinkingLevel::Low, &traits);
    let mut session_id = None;
    for request in [
        request(),
        request(),
        RunRequest { system: Some("be kind".into()), ..request() },
        request(),
        RunRequest { spec: Some(other), ..request() },
        RunRequest { spec: Some(spec), ..request() },
        RunRequest { spec: Some(bare), ..request() },
        RunRequest { spec: Some(high), ..request() },
        RunRequest { spec: Some(untold), ..request() },
    ] {
        session_id = Some(scene.runtime.run(request).await.unwrap().session);
    }
    let told = prefixes(&scene, session_id.unwrap()).await;
    let told: Vec<_> = told.chunks(2).map(|run| (run[0], run[1])).collect();
    let first = |change| (Some(change), None);
    assert_eq!(
        told,
        [
            first(PrefixChange::First),
            (None, None),
            first(PrefixChange::System),
            first(PrefixChange::System),
            first(PrefixChange::Model),
            first(PrefixChange::Model),
            first(PrefixChange::Tools),
            first(PrefixChange::Thinking),
            first(PrefixChange::Thinking),
        ]
    );
    // The thinking level and the model are not in these bytes.
    let bytes = scene.bytes();
    for (n, pair) in bytes.windows(2).enumerate() {
        let change = told[n.div_ceil(2)];
        let change = if n % 2 == 1 { change.0 } else { change.1 };
        let same = pair[1].starts_with(&pair[0]);
        let in_bytes = matches!(change, Some(PrefixChange::System | PrefixChange::Tools));
        assert_eq!(same, !in_bytes, "request {n}: {change:?}");
    }
}
