//! The tool `write_file`: writes a whole file of the workspace. `replace.rs` does it.

use hermod_actors::{
    model::{Access, CallEnd, EffectClass},
    port::ArtifactName,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Settings,
    blocking::{CancelCheck, FileWorkError, run_blocking},
    paths::{ToolWorkspace, declared_path},
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
        let (attempt, workspace) = (context.artifacts.name(), context.tool_workspace());
        run_blocking(&context.cancel, move |cancel| write(&workspace, &arguments, attempt, cancel)).await
    }
}

fn write(
    workspace: &ToolWorkspace,
    arguments: &Arguments,
    attempt: ArtifactName,
    cancel: &CancelCheck,
) -> Result<String, FileWorkError> {
    let Arguments { path, content } = arguments;
    let target = workspace.resolve("path", path)?;
    if path.ends_with('/') {
        return Err(target.refuse("ends with `/`, so it names a folder", "name a file").into());
    }
    cancel.check()?;
    replace(&target, content.as_bytes(), attempt, cancel)?;
    Ok(format!("wrote {} bytes to {}", content.len(), target.display()))
}
