//! The tool `skill_view`: reads a skill, or a file in its folder.

use hermod_actors::{
    SanitizedText,
    model::{Access, CallEnd, EffectClass},
    port::BadArguments,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    SKILL_VIEW,
    blocking::run_blocking,
    paths::declared_path,
    skills::{FileExcerpt, own_variable, split},
    typed_tool::{ToolContext, TypedTool},
};
use crate::process::without_cut_end;

/// A file of up to twice these bytes is shown whole, of a longer one its first bytes.
const MAX_READ_BYTES: usize = 512 * 1024;

/// Reads a skill.
#[derive(Debug)]
pub(super) struct SkillView;

/// What to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The skill's name, as the list of skills has it.
    name: String,
    /// A file in the skill's folder, relative to it; the skill's own text if absent.
    path: Option<String>,
}

impl TypedTool for SkillView {
    const NAME: &'static str = SKILL_VIEW;
    const DESCRIPTION: &'static str = "Reads a skill of the list in the system prompt: its instructions, or with `path` a \
        file that they name.";
    const EFFECT: EffectClass = EffectClass::Pure;
    type Arguments = Arguments;

    fn access(_: &Arguments, workspace: &str, _: &super::Settings) -> Access {
        Access::reads(declared_path(workspace, ".hermod/skills"))
    }

    async fn run(arguments: Arguments, context: ToolContext) -> CallEnd {
        run_blocking(&context, move |context| {
            let catalogue = context.settings.skills.read(&context.workspace);
            context.check_stopped()?;
            let Some(skill) = catalogue.get(&arguments.name) else {
                let hint = match catalogue.skills.is_empty() {
                    true => "there are no skills now: do without".into(),
                    false => format!("the skills are: {}", catalogue.names()),
                };
                let error = format!("`name` {:?}: there is no such skill", arguments.name);
                return Err(BadArguments { field: Some("name".into()), error, hint }.into());
            };
            let path = arguments.path.as_deref();
            let file = skill.file(path).ok_or_else(|| outside_error(&skill.name, path))?;
            let source = FileExcerpt::read(&file, MAX_READ_BYTES)
                .map_err(|error| unreadable_error(&skill.name, error))?;
            context.check_stopped()?;
            let remark = path.is_none().then(|| skill.variables.remark(own_variable));
            Ok(format_excerpt(&source, path) + &remark.unwrap_or_default())
        })
        .await
    }
}

fn format_excerpt(source: &FileExcerpt, path: Option<&str>) -> String {
    let is_cut = !source.tail.is_empty();
    let bytes = if is_cut { without_cut_end(&source.head) } else { &source.head[..] };
    let text = String::from_utf8_lossy(bytes);
    let body = match path {
        Some(_) => bytes,
        None => split(&text).map_or(bytes, |(_, body)| body.trim_start_matches('\n').as_bytes()),
    };
    let visible = SanitizedText::of(body);
    let remark = visible.remark().map(|remark| format!("\n[{remark}]")).unwrap_or_default();
    let cut = is_cut.then(|| format!("\n[cut: {} of {} bytes shown]", bytes.len(), source.total));
    visible.text + &remark + &cut.unwrap_or_default()
}

fn outside_error(name: &str, path: Option<&str>) -> CallEnd {
    let error =
        format!("`path` {:?} leads out of the folder of skill `{name}`, or nowhere", path.unwrap_or("."));
    let hint = "give the path of a file relative to the skill's folder, as its text names it".into();
    BadArguments { field: Some("path".into()), error, hint }.into()
}

fn unreadable_error(name: &str, error: String) -> CallEnd {
    let hint = "give the path of a text file relative to the skill's folder, as its text names it".into();
    BadArguments { field: Some("path".into()), error: format!("skill `{name}`: {error}"), hint }.into()
}
