//! Pictures that `read_file` shows.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::files::World;

#[tokio::test]
async fn a_picture_is_shown_as_a_model_sees_it() {
    let world = World::new();
    let drawn = |width| {
        let mut png = std::io::Cursor::new(Vec::new());
        image::RgbImage::new(width, 2).write_to(&mut png, image::ImageFormat::Png).unwrap();
        png.into_inner()
    };
    let (small, wide) = (drawn(4), drawn(3_136));
    let damaged = &wide[..wide.len() / 2];
    world.write("small.png", &small).write("wide.png", &wide).write("damaged.png", damaged);
    let read =
        async |path: &str| world.call("read_file", json!({"path": path}), &CancellationToken::new()).await;
    let end = read("small.png").await;
    assert_eq!(&*end.content, "[picture, image/png, 4 x 2]");
    let [image] = &end.images[..] else { panic!("{end:?}") };
    assert_eq!(image.artifact.bytes, small.len() as u64);
    let end = read("wide.png").await;
    assert_eq!(&*end.content, "[picture, image/png, 1568 x 1, scaled down from 3136 x 2]");
    assert_eq!(end.images.len(), 1);
    let end = read("damaged.png").await;
    assert!(end.content.contains("binary file") && end.content.contains("no picture"), "{end:?}");
    assert!(end.images.is_empty());
}
