//! Pictures for tests: real files, because those of a task are decoded before they are recorded.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgb, RgbImage};

/// A picture of this size. Its pixels are noise, so a PNG has three bytes for each.
pub(crate) fn picture(format: ImageFormat, (width, height): (u32, u32)) -> Vec<u8> {
    let mut state = 1_u32;
    let pixels = RgbImage::from_fn(width, height, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [_, r, g, b] = state.to_le_bytes();
        Rgb([r, g, b])
    });
    let mut file = Cursor::new(Vec::new());
    DynamicImage::from(pixels).write_to(&mut file, format).expect("a picture in memory");
    file.into_inner()
}
