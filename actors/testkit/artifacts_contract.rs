//! The contract test of every `Artifacts` adapter.

use std::sync::Arc;

use bytes::Bytes;
use hermod_actors::{
    model::{Attempt, CallId, ContentHash, RunId, SessionId},
    port::{ArtifactError, ArtifactName, Artifacts, AttemptArtifacts},
};

fn name(session: u128, attempt: Attempt) -> ArtifactName {
    let call = CallId { run: RunId::from_bits(7), iteration: 1, n: 1 };
    ArtifactName { session: SessionId::from_bits(session), call, attempt }
}

async fn write_pieces(artifacts: &Arc<dyn Artifacts>, name: ArtifactName, pieces: &[&'static [u8]]) {
    let mut sink = artifacts.create(name).await.expect("it begins");
    for piece in pieces {
        sink.write(Bytes::from_static(piece)).await.expect("it is written");
    }
    sink.finish().await.expect("it is durable");
}

/// Checks what every [`Artifacts`] must do; panics where the contract is broken. `open` returns an empty store at
/// first, and later the same store reopened.
pub async fn artifacts_contract(mut open: impl FnMut() -> Arc<dyn Artifacts>) {
    let artifacts = open();
    let (one, two) = (name(1, 1), name(1, 2));
    let missing = |name: ArtifactName| Err(ArtifactError::NotFound(name.handle()));

    // An artifact is not readable before it is finished; a dropped sink leaves nothing.
    assert_eq!(artifacts.read(one, 0, 9).await, missing(one));
    let mut sink = artifacts.create(one).await.expect("it begins");
    sink.write(Bytes::from_static(b"half")).await.expect("it is written");
    assert_eq!(artifacts.read(one, 0, 9).await, missing(one));
    drop(sink);
    assert_eq!(artifacts.read(one, 0, 9).await, missing(one));

    // Excerpts return the bytes unchanged.
    write_pieces(&artifacts, one, &[b"ab\xff", b"", b"\0\x1bcd"]).await;
    for (offset, max, expected) in [
        (0, 99, &b"ab\xff\0\x1bcd"[..]),
        (2, 3, b"\xff\0\x1b"),
        (6, 9, b"d"),
        (7, 9, b""),
        (u64::MAX, 9, b""),
    ] {
        let excerpt = artifacts.read(one, offset, max).await.expect("it is there");
        assert_eq!((&excerpt.bytes[..], excerpt.total), (expected, 7), "{max} from {offset}");
    }

    // A second artifact of the same name replaces the first when it is finished.
    let mut sink = artifacts.create(one).await.expect("it begins");
    sink.write(Bytes::from_static(b"new")).await.expect("it is written");
    assert_eq!(artifacts.read(one, 0, 2).await.expect("the old one").bytes, &b"ab"[..]);
    sink.finish().await.expect("it is durable");
    assert_eq!(artifacts.read(one, 0, 9).await.expect("the new one").bytes, &b"new"[..]);

    // A session reads only its own artifacts; a call reads those of its earlier attempts.
    write_pieces(&artifacts, two, &[]).await;
    let attempt_artifacts = AttemptArtifacts::new(Arc::clone(&artifacts), name(1, 3));
    assert_eq!(attempt_artifacts.read(&one.handle(), 1, 1).await.expect("its own").bytes, &b"e"[..]);
    assert_eq!(attempt_artifacts.read_earlier(2, 9).await.expect("its own").total, 0);
    let verify = async |content: &[u8]| artifacts.verify(one, ContentHash::of(content)).await;
    assert_eq!(verify(b"new").await, Ok(()));
    assert_eq!(verify(b"old").await, Err(ArtifactError::Altered(one.handle())));
    assert_eq!(artifacts.verify(name(2, 9), ContentHash::of(b"")).await, missing(name(2, 9)).map(drop));
    let stranger = AttemptArtifacts::new(Arc::clone(&artifacts), name(2, 3));
    assert_eq!(stranger.read(&one.handle(), 0, 9).await, missing(one));
    assert!(matches!(attempt_artifacts.read("../1", 0, 9).await, Err(ArtifactError::NotFound(_))));

    // The next process finds the artifact.
    drop((artifacts, attempt_artifacts, stranger));
    let artifacts = open();
    assert_eq!(artifacts.read(one, 0, 9).await.expect("it stayed").bytes, &b"new"[..]);
}
