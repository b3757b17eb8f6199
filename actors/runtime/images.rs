//! Images of a submission: their limits, their descriptions for the run's record, and their writing as artifacts before
//! the run is accepted.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    model::{Artifact, CallId, ContentHash, Image, ImageFormat, RunId, SessionId},
    port::{ArtifactName, Artifacts, PictureScaler},
    runtime::RunError,
};

/// Most bytes of an image: no vendor accepts more.
pub const MAX_IMAGE_BYTES: usize = 20 << 20;
/// Most images of one submission.
pub const MAX_IMAGES: usize = 20;

/// An image as models read it.
#[derive(Debug)]
pub(super) struct ScaledImage {
    format: ImageFormat,
    bytes: Bytes,
    /// The hash of the file that came, if that is another one.
    original: Option<Box<ContentHash>>,
}

/// Checks the images, and scales them to what models read.
pub(super) async fn scale_all(
    images: &[Bytes],
    scaler: &dyn PictureScaler,
) -> Result<Vec<ScaledImage>, RunError> {
    if images.len() > MAX_IMAGES {
        return Err(invalid(format!("are {}; at most {MAX_IMAGES} can come with a task", images.len())));
    }
    for (number, bytes) in (1_u32..).zip(images) {
        check(number, bytes)?;
    }
    let mut all = Vec::with_capacity(images.len());
    for (number, file) in (1_u32..).zip(images) {
        let scaled = scaler.scale(file.clone()).await;
        let bytes = scaled.map_err(|error| invalid(format!("picture {number}: {error}")))?;
        let format = ImageFormat::of_bytes(&bytes).ok_or_else(|| not_a_picture(number))?;
        let original = (bytes != *file).then(|| Box::new(ContentHash::of(file)));
        all.push(ScaledImage { format, bytes, original });
    }
    Ok(all)
}

fn check(number: u32, bytes: &Bytes) -> Result<(), RunError> {
    let size = bytes.len();
    if size > MAX_IMAGE_BYTES {
        let remedy = format!("scale it down to at most {MAX_IMAGE_BYTES}");
        return Err(invalid(format!("picture {number} has {size} bytes; {remedy}")));
    }
    ImageFormat::of_bytes(bytes).map_or_else(|| Err(not_a_picture(number)), |_| Ok(()))
}

fn not_a_picture(number: u32) -> RunError {
    invalid(format!("picture {number} is neither PNG, JPEG, GIF nor WebP; convert it"))
}

/// The descriptions of the images for the run's record.
pub(super) fn describe_all(run: RunId, images: &[ScaledImage]) -> Arc<[Image]> {
    let describe = |(n, image): (u32, &ScaledImage)| {
        let handle = image_name(SessionId::from_bits(0), run, n).handle();
        let sha256 = Some(ContentHash::of(&image.bytes).into());
        let artifact = Artifact { handle, bytes: image.bytes.len() as u64, sha256 };
        Image { original: image.original.clone(), ..Image::new(image.format, artifact) }
    };
    (0..).zip(images).map(describe).collect()
}

/// Writes the images as artifacts; durable when it resolves.
pub(super) async fn write_all(
    artifacts: &dyn Artifacts,
    session: SessionId,
    run: RunId,
    images: &[ScaledImage],
) -> Result<(), RunError> {
    for (n, image) in (0..).zip(images) {
        let stored = async {
            let mut writer = artifacts.create(image_name(session, run, n)).await?;
            writer.write(image.bytes.clone()).await?;
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
    use futures::{FutureExt, future::BoxFuture};

    use super::*;
    use crate::port::NoScaling;

    /// Scales pictures of more than eight bytes to these.
    #[derive(Debug)]
    struct ToEight;

    impl PictureScaler for ToEight {
        fn scale(&self, file: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
            let scaled = if file.ends_with(b"!") { Err("is damaged".into()) } else { Ok(file.slice(..8)) };
            Box::pin(std::future::ready(scaled))
        }
    }

    #[test]
    fn a_scaled_picture_keeps_the_hash_of_its_file() {
        let check = |file: &'static [u8], expect: Result<(u64, bool), &str>| {
            let file = Bytes::from_static(file);
            let scaled = scale_all(std::slice::from_ref(&file), &ToEight).now_or_never().unwrap();
            let described = scaled.map(|scaled| describe_all(RunId::from_bits(7), &scaled)[0].clone());
            let original = expect.ok().and_then(|(_, is_scaled)| is_scaled.then(|| ContentHash::of(&file)));
            let found = described.map(|image| (image.artifact.bytes, image.original.map(|hash| *hash)));
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, expect.map(|(bytes, _)| (bytes, original)).map_err(str::to_owned));
        };
        check(b"GIF89a12", Ok((8, false)));
        check(b"GIF89a1234", Ok((8, true)));
        check(b"GIF89a12!", Err("images: picture 1: is damaged"));
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let check = |images: &[&'static [u8]], expect: &str| {
            let images: Vec<Bytes> = images.iter().map(|bytes| Bytes::from_static(bytes)).collect();
            let error = scale_all(&images, &NoScaling).now_or_never().unwrap().unwrap_err().to_string();
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
