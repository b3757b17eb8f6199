//! `hermod wire`: decodes a response or encodes a conversation in a wire format, for debugging dialects.

mod decode;
mod encode;
pub(super) mod message;
mod response_shape;

use std::{io, path::Path};

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde::de::DeserializeOwned;

use super::exit::CliError;
use crate::{
    files::{read_limited, read_regular},
    provider::{Dialect, WIRES, Wire, WireFormat},
};

/// Size limit of a response or a conversation.
const MAX_BYTES: u64 = 64 << 20;

/// Decode a response or encode a request, as a wire format has it
#[derive(Debug, Args)]
pub(crate) struct WireArgs {
    #[command(subcommand)]
    command: WireCommand,
}

#[derive(Debug, Subcommand)]
enum WireCommand {
    Decode(decode::DecodeArgs),
    Encode(encode::EncodeArgs),
}

#[derive(Debug, Args)]
struct FormatArgs {
    /// The wire format
    #[arg(long, value_parser = format_parser())]
    format: &'static Wire,
}

fn format_parser() -> impl TypedValueParser<Value = &'static Wire> {
    let find = |name: String| WIRES.iter().find(|wire| wire.name == name).ok_or("there is no such format");
    PossibleValuesParser::new(WIRES.iter().map(|wire| wire.name)).try_map(find)
}

impl FormatArgs {
    /// The wire format, in a dialect.
    fn wire(&self, dialect: &Dialect) -> Box<dyn WireFormat> {
        (self.format.make)(dialect)
    }
}

/// Decodes or encodes; uses neither network nor store.
pub(crate) fn execute(args: &WireArgs) -> Result<(), CliError> {
    match &args.command {
        WireCommand::Decode(args) => decode::execute(args),
        WireCommand::Encode(args) => encode::execute(args),
    }
}

/// Reads a file, or standard input if the path is `-`.
fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let read = if path == Path::new("-") {
        read_limited(io::stdin().lock(), MAX_BYTES)
    } else {
        read_regular(path, MAX_BYTES)
    };
    read.map_err(|error| file_error(path, error))
}

/// The error for an unusable file.
fn file_error(path: &Path, reason: impl std::fmt::Display) -> CliError {
    let name = if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
    CliError::usage(format!("{name}: {reason}"))
}

/// Parses a JSON text; the error names the field.
fn parse_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| error.to_string())?;
    json.end().map_err(|error| error.to_string())?;
    Ok(value)
}
