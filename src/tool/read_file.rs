//! The tool `read_file`: reads a page of a text file (`page.rs`), or a picture as a model sees it (`picture.rs`).

use std::{fmt::Write as _, fs::File, io::Read};

use bytes::Bytes;
use hermod_actors::{
    model::{Access, CallEnd, CallStatus, EffectClass, Image, ImageFormat},
    port::BadArguments,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Settings,
    blocking::try_blocking,
    page::{DEFAULT_LINES, TextPage},
    paths::{WorkspacePath, declared_path},
    typed_tool::{ToolContext, TypedTool},
};
use crate::picture::{self, Picture};

/// Most bytes of a picture that is shown.
const MAX_PICTURE_BYTES: u64 = 20 << 20;
const CHUNK_BYTES: usize = 64 * 1024;
/// A NUL byte within this many bytes makes a file binary.
const SNIFFED_BYTES: usize = 8 * 1024;
/// Bytes of a binary file in the reply.
const BINARY_HEAD_BYTES: usize = 64;
/// Bytes after which the lines of a file are no longer counted.
const MAX_COUNTED_BYTES: u64 = 256 * 1024 * 1024;

/// Reads a text file.
#[derive(Debug)]
pub(super) struct ReadFile;

/// What to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The file, relative to the workspace or absolute inside it.
    path: String,
    /// The first line to read, counted from 1.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    offset: Option<u64>,
    /// How many lines to read at most; 2000 if absent.
    #[schemars(range(min = 1, max = 100_000))]
    limit: Option<u64>,
}

impl TypedTool for ReadFile {
    const NAME: &'static str = "read_file";
    const DESCRIPTION: &'static str = "Reads a text file of the workspace, at most 50 kB of whole lines at a time; \
        a remark in brackets at the end says how to read on. Shows a picture (PNG, JPEG, GIF or WebP).";
    const EFFECT: EffectClass = EffectClass::Pure;
    type Arguments = Arguments;

    fn access(arguments: &Arguments, workspace: &str, _: &Settings) -> Access {
        Access::reads(declared_path(workspace, &arguments.path))
    }

    async fn run(arguments: Arguments, context: ToolContext) -> CallEnd {
        match try_blocking(&context, move |context| read(&arguments, context)).await {
            Ok(Content::Text(text)) => CallEnd::ok(text),
            Ok(Content::Picture(picture)) => show(picture, &context).await,
            Err(end) => end,
        }
    }
}

/// What a file has.
enum Content {
    Text(String),
    Picture(Picture),
}

/// The result of a call that shows a picture, which is kept as the artifact of its attempt.
async fn show(picture: Picture, context: &ToolContext) -> CallEnd {
    let Picture { format, bytes, size: (width, height), original_size: original } = picture;
    let scaled = match original == (width, height) {
        true => String::new(),
        false => format!(", scaled down from {} x {}", original.0, original.1),
    };
    let text = format!("[picture, {}, {width} x {height}{scaled}]", format.media_type());
    match context.artifacts.write(bytes).await {
        Ok(artifact) => CallEnd { images: [Image::new(format, artifact)].into(), ..CallEnd::ok(text) },
        Err(error) => {
            let error = format!("the picture cannot be kept: {error}");
            CallEnd::error(CallStatus::Error, &error, None, "try again later")
        }
    }
}

fn read(arguments: &Arguments, context: &ToolContext) -> Result<Content, CallEnd> {
    let path = context.resolve("path", &arguments.path)?;
    context.check_stopped()?;
    let (mut file, stat) = path.open_file()?;
    let offset = arguments.offset.unwrap_or(1);
    let mut page = TextPage::new(offset, arguments.limit.unwrap_or(DEFAULT_LINES));
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes_read = 0;
    loop {
        context.check_stopped()?;
        let count = file.read(&mut chunk).map_err(|error| path.io_error(error))?;
        let bytes = &chunk[..count];
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        if bytes_read == 0 && bytes[..count.min(SNIFFED_BYTES)].contains(&0) {
            if ImageFormat::of_bytes(bytes).is_some() && size <= MAX_PICTURE_BYTES {
                return read_picture(bytes, size, (&mut file, &path));
            }
            return Ok(Content::Text(describe_binary(size, bytes)));
        }
        bytes_read += count as u64;
        page.push(bytes);
        let is_whole = count == 0;
        if is_whole || page.is_full() && bytes_read > MAX_COUNTED_BYTES {
            let text = page.finish(is_whole).map_err(|lines| past_end(&path, offset, lines))?;
            return Ok(Content::Text(text));
        }
    }
}

/// Reads a picture of which `first` was read. One that cannot be decoded is described like any binary file.
fn read_picture(
    first: &[u8],
    size: u64,
    (file, path): (&mut File, &WorkspacePath),
) -> Result<Content, CallEnd> {
    let mut bytes = first.to_vec();
    let rest = MAX_PICTURE_BYTES.saturating_sub(first.len() as u64);
    file.take(rest).read_to_end(&mut bytes).map_err(|error| path.io_error(error))?;
    Ok(match picture::for_model(&Bytes::from(bytes)) {
        Ok(picture) => Content::Picture(picture),
        Err(error) => Content::Text(format!("{}\n[no picture: {error}]", describe_binary(size, first))),
    })
}

fn past_end(path: &WorkspacePath, offset: u64, lines: u64) -> BadArguments {
    let what = format!("has {lines} lines, `offset` {offset} is past its end");
    BadArguments { field: Some("offset".into()), ..path.refuse(&what, "use a smaller `offset`") }
}

fn describe_binary(size: u64, bytes: &[u8]) -> String {
    let first = &bytes[..bytes.len().min(BINARY_HEAD_BYTES)];
    let hex = first.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, " {byte:02x}").expect("writing to a string does not fail");
        hex
    });
    format!("[binary file of {size} bytes; the first {} in hex:{hex}]", first.len())
}
