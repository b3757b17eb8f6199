//! Checks of what Hermod calls: commands of hooks, and folders of targets. The secrets of targets and channels are
//! checked with all others.

use std::path::{Path, PathBuf};

use futures::{FutureExt, future::BoxFuture};
use rustix::fs::{Access, access};

use super::config_of;
use crate::{
    cli::doctor::check::{Examination, Finding},
    config::{HookSection, TargetKind, TargetSection},
};

/// Characters after which a command is more than a program and its arguments.
const SHELL_CHARS: [char; 12] = ['$', '`', ';', '&', '|', '<', '>', '(', ')', '*', '"', '\''];

/// Whether the programs of hooks can be run.
pub(in crate::cli::doctor) fn hooks(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let config = match config_of(examination) {
            Ok(config) => config,
            Err(skipped) => return skipped,
        };
        let findings: Vec<_> =
            config.hooks.iter().map(|(name, hook)| check_hook(name, hook, examination)).collect();
        if findings.is_empty() { vec![Finding::skipped("hooks", "there are none")] } else { findings }
    }
    .boxed()
}

fn check_hook(name: &str, hook: &HookSection, examination: &Examination) -> Finding {
    let Some(command) = hook.command.as_ref().map(|command| command.0.as_str()) else {
        return Finding::ok(name, "it is an endpoint; `hermod hooks test` calls it");
    };
    let Some(program) = command.split_whitespace().next().filter(|word| !word.contains(SHELL_CHARS)) else {
        return Finding::skipped(name, "its command begins with more than a program");
    };
    match find_program(program, examination) {
        Ok(path) => Finding::ok(name, path.display().to_string()),
        Err(Some(path)) if path.exists() => {
            let shown = path.display();
            Finding::fail(name, format!("{shown} may not be executed"), format!("`chmod +x '{shown}'`"))
        }
        Err(_) => {
            let remedy = format!("install it, or correct hooks.{name}.command");
            Finding::fail(name, format!("there is no program `{program}`"), remedy)
        }
    }
}

/// The path of a program; the error is the path that was named.
fn find_program(program: &str, examination: &Examination) -> Result<PathBuf, Option<PathBuf>> {
    let may_run = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        // Commands run in the state directory.
        let folder = examination.existing_state().unwrap_or_default();
        let path = folder.join(program);
        return if may_run(&path) { Ok(path) } else { Err(Some(path)) };
    }
    let folders = examination.variables.get("PATH").map(String::as_str).unwrap_or_default();
    let mut paths = folders.split(':').map(|folder| Path::new(folder).join(program));
    paths.find(|path| may_run(path)).ok_or(None)
}

/// Whether the folders of targets can be written.
pub(in crate::cli::doctor) fn targets(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let config = match config_of(examination) {
            Ok(config) => config,
            Err(skipped) => return skipped,
        };
        let findings: Vec<_> =
            config.targets.iter().map(|(name, target)| check_target(name, target)).collect();
        if findings.is_empty() { vec![Finding::skipped("targets", "there are none")] } else { findings }
    }
    .boxed()
}

fn check_target(name: &str, target: &TargetSection) -> Finding {
    let kind = target.kind.map_or("", |kind| kind.0.name());
    let folder = target.path.as_ref().and_then(|path| path.0.clone());
    let Some(folder) = folder.filter(|_| target.kind.is_some_and(|kind| kind.0 == TargetKind::Folder)) else {
        return Finding::ok(name, format!("kind {kind}; nothing is sent for this check"));
    };
    let shown = folder.display();
    if !folder.is_dir() {
        return Finding::fail(name, format!("{shown} is no folder"), format!("`mkdir -p '{shown}'`"));
    }
    match access(&folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Finding::ok(name, shown.to_string()),
        Err(error) => Finding::fail(name, format!("{shown}: {error}"), format!("`chmod u+wx '{shown}'`")),
    }
}
