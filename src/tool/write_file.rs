//! The tool `write_file`: writes a whole file of the workspace. `replace.rs` does it.

use hermod_actors::model::{Access, CallEnd, EffectClass};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Settings,
    blocking::run_blocking,
    paths::declared_path,
    replace::replace,
    typed_tool::{ToolContext, TypedTool},
};

/// Writes a whole file, atomically: a reader sees the old content or the new, also after a crash.
#[derive(Debug)]
pub(super) struct WriteFile;

/// What to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The file, relative to the workspace or absolute inside it; folders that are missing above it are created.
    path: String,
    /// The whole new content.
    content: String,
}

impl TypedTool for WriteFile {
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Writes a whole text file of the workspace, replacing what it held; says how many bytes were written.";
    const EFFECT: EffectClass = EffectClass::Idempotent;
    type Arguments = Arguments;

    fn access(arguments: &Arguments, workspace: &str, _: &Settings) -> Access {
        Access::writes(declared_path(workspace, &arguments.path))
    }

    async fn run(arguments: Arguments, context: ToolContext) -> CallEnd {
        run_blocking(&context, move |context| write(&arguments, context)).await
    }
}

fn write(arguments: &Arguments, context: &ToolContext) -> Result<String, CallEnd> {
    let Arguments { path, content } = arguments;
    let target = context.resolve("path", path)?;
    if path.ends_with('/') {
        return Err(target.refuse("ends with `/`, so it names a folder", "name a file").into());
    }
    context.check_stopped()?;
    replace(&target, content.as_bytes(), context)?;
    Ok(format!("wrote {} bytes to {}", content.len(), target.display()))
}
