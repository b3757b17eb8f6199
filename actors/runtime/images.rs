//! Images of a submission: their limits, their descriptions for the run's record, and their writing as artifacts before
//! the run is accepted.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    model::{Artifact, CallId, ContentHash, Image, ImageFormat, RunId, SessionId},
    port::{ArtifactName, Artifacts},
    runtime::RunError,
};

/// Most bytes of an image: no vendor accepts more.
pub const MAX_IMAGE_BYTES: usize = 20 << 20;
/// Most images of one submission.
pub const MAX_IMAGES: usize = 20;

/// The descriptions of the images for the run's record.
pub(super) fn describe_all(run: RunId, images: &[Bytes]) -> Result<Arc<[Image]>, RunError> {
    if images.len() > MAX_IMAGES {
        return Err(invalid(format!("are {}; at most {MAX_IMAGES} can come with a task", images.len())));
    }
    (0..).zip(images).map(|(n, bytes)| describe(run, n, bytes)).collect()
}

fn describe(run: RunId, n: u32, bytes: &Bytes) -> Result<Image, RunError> {
    let number = n + 1;
    if bytes.len() > MAX_IMAGE_BYTES {
        let size = bytes.len();
        return Err(invalid(format!(
            "picture {number} has {size} bytes; scale it down to at most {MAX_IMAGE_BYTES}"
        )));
    }
    let format = ImageFormat::of_bytes(bytes)
        .ok_or_else(|| invalid(format!("picture {number} is neither PNG, JPEG, GIF nor WebP; convert it")))?;
    let handle = image_name(SessionId::from_bits(0), run, n).handle();
    let sha256 = Some(ContentHash::of(bytes).into());
    Ok(Image { format, artifact: Artifact { handle, bytes: bytes.len() as u64, sha256 } })
}

/// Writes the images as artifacts; durable when it resolves.
pub(super) async fn write_all(
    artifacts: &dyn Artifacts,
    session: SessionId,
    run: RunId,
    images: &[Bytes],
) -> Result<(), RunError> {
    for (n, bytes) in (0..).zip(images) {
        let stored = async {
            let mut writer = artifacts.create(image_name(session, run, n)).await?;
            writer.write(bytes.clone()).await?;
            writer.finish().await
        };
        stored.await.map_err(|error| invalid(format!("cannot be kept: {error}")))?;
    }
    Ok(())
}

/// The artifact name of the image at index `n` of a run. Its call id has iteration 0, as no real call's.
pub(super) fn image_name(session: SessionId, run: RunId, n: u32) -> ArtifactName {
    ArtifactName { session, call: CallId { run, iteration: 0, n }, attempt: 0 }
}

fn invalid(error: String) -> RunError {
    RunError::Invalid { field: "images", error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_picture_is_refused() {
        let check = |images: &[&'static [u8]], expect: &str| {
            let images: Vec<Bytes> = images.iter().map(|bytes| Bytes::from_static(bytes)).collect();
            let error = describe_all(RunId::from_bits(7), &images).unwrap_err().to_string();
            assert_eq!(error, expect);
        };
        check(&[b"GIF89a", b"%PDF"], "images: picture 2 is neither PNG, JPEG, GIF nor WebP; convert it");
        check(&[b"GIF89a".as_slice(); 21], "images: are 21; at most 20 can come with a task");
        let large: &'static [u8] = vec![0; MAX_IMAGE_BYTES + 1].leak();
        let size = large.len();
        let expect =
            format!("images: picture 1 has {size} bytes; scale it down to at most {MAX_IMAGE_BYTES}");
        check(&[large], &expect);
    }
}
