//! Pictures for models: decoded within bounds of memory, and scaled to what models read. Blocking: callers run it off
//! the async threads.

use std::{io::Cursor, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use hermod_actors::{model::ImageFormat, port::PictureScaler};
use image::{
    DynamicImage, ImageDecoder, ImageError, ImageReader, Limits, codecs::jpeg::JpegEncoder,
    metadata::Orientation,
};
use tokio::sync::Semaphore;

/// Most pixels of a side: vendors scale a larger picture down themselves.
const MAX_SIDE: u32 = 1_568;
/// Most bytes of a picture. Anthropic takes 5 MB in Base64.
const MAX_BYTES: usize = 3_700_000;
/// Most pixels of a side that are decoded.
const MAX_DECODED_SIDE: u32 = 20_000;
/// Most bytes of memory for decoding: a small file may be a picture of any size.
const MAX_DECODED_BYTES: u64 = 256 << 20;
/// The quality of JPEG, of 100.
const JPEG_QUALITY: u8 = 85;

/// Most pictures of submissions that are decoded at the same time: each may take as much memory as is allowed.
const DECODERS: usize = 2;

/// Scales the pictures of submissions.
#[derive(Debug)]
pub struct ModelPictures {
    decoders: Arc<Semaphore>,
}

impl Default for ModelPictures {
    fn default() -> Self {
        Self { decoders: Arc::new(Semaphore::new(DECODERS)) }
    }
}

impl PictureScaler for ModelPictures {
    fn scale(&self, file: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
        let decoders = Arc::clone(&self.decoders);
        let scale = async move {
            let permit = decoders.acquire_owned().await;
            let decode = move || {
                // Held until the memory is free again, also if the submission is given up meanwhile.
                let _permit = permit;
                for_model(&file)
            };
            let scaled = tokio::task::spawn_blocking(decode).await;
            let picture = scaled.map_err(|error| format!("it cannot be decoded: {error}"))?;
            picture.map(|picture| picture.bytes).map_err(|error| error.to_string())
        };
        scale.boxed()
    }
}

/// A picture that a model can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// The format of `bytes`.
    pub format: ImageFormat,
    /// The file.
    pub bytes: Bytes,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Width and height before it was scaled.
    pub original_size: (u32, u32),
}

/// Why a file is no picture for a model.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// The first bytes are of no format that models read.
    #[error("it is neither PNG, JPEG, GIF nor WebP")]
    Format,
    /// The picture is larger than what is decoded.
    #[error("it has more pixels than are decoded: scale it down to at most {MAX_DECODED_SIDE} a side")]
    TooLarge,
    /// The content is damaged.
    #[error("it cannot be decoded: {0}")]
    Damaged(String),
}

impl From<ImageError> for PictureError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Limits(_) => Self::TooLarge,
            error @ (ImageError::Decoding(_)
            | ImageError::Encoding(_)
            | ImageError::Parameter(_)
            | ImageError::Unsupported(_)
            | ImageError::IoError(_)) => Self::Damaged(error.to_string()),
        }
    }
}

/// The picture in `file`: unchanged if it is small enough, else scaled down. It is decoded in any case, because a
/// provider refuses each request of a conversation with a damaged one. Of a scaled animation the first frame stays.
pub fn for_model(file: &Bytes) -> Result<Picture, PictureError> {
    let format = ImageFormat::of_bytes(file).ok_or(PictureError::Format)?;
    let (decoded, orientation) = decode(file, format)?;
    let original_size = (decoded.width(), decoded.height());
    let is_small = original_size.0.max(original_size.1) <= MAX_SIDE && file.len() <= MAX_BYTES;
    if is_small {
        return Ok(Picture { format, bytes: file.clone(), size: original_size, original_size });
    }
    let mut side = MAX_SIDE;
    loop {
        let mut scaled = match decoded.width().max(decoded.height()) > side {
            true => decoded.thumbnail(side, side),
            false => decoded.clone(),
        };
        scaled.apply_orientation(orientation);
        let (format, bytes) = encode(&scaled, format)?;
        if bytes.len() <= MAX_BYTES || side == 1 {
            let size = (scaled.width(), scaled.height());
            return Ok(Picture { format, bytes: bytes.into(), size, original_size });
        }
        side /= 2;
    }
}

fn decode(file: &Bytes, format: ImageFormat) -> Result<(DynamicImage, Orientation), PictureError> {
    let format = match format {
        ImageFormat::Png => image::ImageFormat::Png,
        ImageFormat::Jpeg => image::ImageFormat::Jpeg,
        ImageFormat::Gif => image::ImageFormat::Gif,
        ImageFormat::Webp => image::ImageFormat::WebP,
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_DECODED_SIDE);
    limits.max_image_height = Some(MAX_DECODED_SIDE);
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    // The decoder's own memory counts, and then the picture that it returns.
    limits.reserve(decoder.total_bytes())?;
    decoder.set_limits(limits)?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok((DynamicImage::from_decoder(decoder)?, orientation))
}

/// A photograph stays one. Others become PNG, which keeps text sharp, unless that is too long and nothing shines through.
fn encode(picture: &DynamicImage, from: ImageFormat) -> Result<(ImageFormat, Vec<u8>), PictureError> {
    let jpeg = || {
        let mut bytes = Vec::new();
        picture.to_rgb8().write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY))?;
        Ok((ImageFormat::Jpeg, bytes))
    };
    if from == ImageFormat::Jpeg {
        return jpeg();
    }
    let mut png = Cursor::new(Vec::new());
    picture.write_to(&mut png, image::ImageFormat::Png)?;
    let png = png.into_inner();
    if png.len() > MAX_BYTES && !picture.color().has_alpha() { jpeg() } else { Ok((ImageFormat::Png, png)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture of this size in this format; its pixels differ.
    fn file(format: image::ImageFormat, (width, height): (u32, u32)) -> Bytes {
        let mut pixels = image::RgbImage::new(width, height);
        for (x, y, pixel) in pixels.enumerate_pixels_mut() {
            *pixel = image::Rgb([x.to_le_bytes()[0], y.to_le_bytes()[0], (x ^ y).to_le_bytes()[0]]);
        }
        let mut bytes = Cursor::new(Vec::new());
        DynamicImage::from(pixels).write_to(&mut bytes, format).unwrap();
        bytes.into_inner().into()
    }

    #[test]
    fn a_picture_is_scaled_to_what_models_read() {
        let check = |format: image::ImageFormat, size, expect: (ImageFormat, (u32, u32), bool)| {
            let file = file(format, size);
            let picture = for_model(&file).unwrap();
            assert_eq!((picture.format, picture.size, picture.bytes == file), expect, "{format:?} {size:?}");
            assert_eq!(picture.original_size, size);
            assert_eq!(ImageFormat::of_bytes(&picture.bytes), Some(picture.format));
            assert!(picture.bytes.len() <= MAX_BYTES);
        };
        check(image::ImageFormat::Png, (40, 30), (ImageFormat::Png, (40, 30), true));
        check(image::ImageFormat::Jpeg, (1_568, 10), (ImageFormat::Jpeg, (1_568, 10), true));
        check(image::ImageFormat::WebP, (40, 30), (ImageFormat::Webp, (40, 30), true));
        check(image::ImageFormat::Gif, (40, 30), (ImageFormat::Gif, (40, 30), true));
        check(image::ImageFormat::Png, (3_136, 20), (ImageFormat::Png, (1_568, 10), false));
        check(image::ImageFormat::Jpeg, (20, 3_136), (ImageFormat::Jpeg, (10, 1_568), false));
        check(image::ImageFormat::WebP, (3_136, 20), (ImageFormat::Png, (1_568, 10), false));
        check(image::ImageFormat::Gif, (3_136, 20), (ImageFormat::Png, (1_568, 10), false));
    }

    /// A PNG that claims this size in its header.
    fn claiming(size: u32) -> Bytes {
        let mut png = file(image::ImageFormat::Png, (2, 2)).to_vec();
        png[16..20].copy_from_slice(&size.to_be_bytes());
        png[20..24].copy_from_slice(&size.to_be_bytes());
        png.into()
    }

    #[test]
    fn a_file_that_is_no_sound_picture_is_refused() {
        assert!(matches!(for_model(&Bytes::from_static(b"text")), Err(PictureError::Format)));
        let whole = file(image::ImageFormat::Png, (40, 30));
        assert!(matches!(for_model(&whole.slice(..whole.len() / 2)), Err(PictureError::Damaged(_))));
        for size in [19_999, 20_001, u32::MAX / 2] {
            assert!(for_model(&claiming(size)).is_err(), "{size}");
        }
    }
}
