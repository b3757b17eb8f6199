//! The tool `read_file`: reads a page of a text file (`page.rs`).

use std::{fmt::Write as _, io::Read};

use hermod_actors::{
    model::{Access, CallEnd, EffectClass},
    port::BadArguments,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Settings,
    blocking::run_blocking,
    page::{DEFAULT_LINES, TextPage},
    paths::{WorkspacePath, declared_path},
    typed_tool::{ToolContext, TypedTool},
};

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
        a remark in brackets at the end says how to read on.";
    const EFFECT: EffectClass = EffectClass::Pure;
    type Arguments = Arguments;

    fn access(arguments: &Arguments, workspace: &str, _: &Settings) -> Access {
        Access::reads(declared_path(workspace, &arguments.path))
    }

    async fn run(arguments: Arguments, context: ToolContext) -> CallEnd {
        run_blocking(&context, move |context| read(&arguments, context)).await
    }
}

fn read(arguments: &Arguments, context: &ToolContext) -> Result<String, CallEnd> {
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
        if bytes_read == 0 && bytes[..count.min(SNIFFED_BYTES)].contains(&0) {
            return Ok(describe_binary(u64::try_from(stat.st_size).unwrap_or_default(), bytes));
        }
        bytes_read += count as u64;
        page.push(bytes);
        let is_whole = count == 0;
        if is_whole || page.is_full() && bytes_read > MAX_COUNTED_BYTES {
            return Ok(page.finish(is_whole).map_err(|lines| past_end(&path, offset, lines))?);
        }
    }
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
