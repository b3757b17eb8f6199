//! Checks of the configuration: whether it can be read, and whether the secrets that it names are there.

use std::{fs, os::unix::fs::PermissionsExt};

use futures::{FutureExt, future::BoxFuture};

use super::config_of;
use crate::{
    cli::doctor::check::{Examination, Finding},
    config::UserFile,
    secret::Reference,
};

/// Permissions of others that let them change a file.
const WRITE_OF_OTHERS: u32 = 0o022;

/// Whether the configuration can be read.
pub(in crate::cli::doctor) fn configuration(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let file = UserFile::of(&examination.variables);
        let errors = match &examination.config {
            Ok(config) => {
                let mut findings = vec![match config.files.first() {
                    Some(file) => Finding::ok("configuration", file.display().to_string()),
                    None => Finding::ok("configuration", "there is no file: every key has its default"),
                }];
                findings.extend(config.files.iter().filter_map(|file| open_file(file)));
                return findings;
            }
            Err(errors) => &errors.0,
        };
        if let Some(UserFile::Named(path)) = &file
            && !path.exists()
        {
            let value = format!("HERMOD_CONFIG names {}, which does not exist", path.display());
            return vec![Finding::fail(
                "configuration",
                value,
                "`hermod init --yes` writes a first one there",
            )];
        }
        let finding = |error: &crate::config::SettingError| {
            let remedy =
                "change this line as the message says, or take it out; `hermod config check` reads it again";
            Finding::fail("configuration", error.to_string(), remedy)
        };
        errors.iter().map(finding).collect()
    }
    .boxed()
}

/// A file that others may change: they could have commands run.
fn open_file(file: &std::path::Path) -> Option<Finding> {
    let mode = fs::metadata(file).ok()?.permissions().mode();
    let shown = file.display();
    (mode & WRITE_OF_OTHERS != 0).then(|| {
        let value = format!("{shown} can be changed by other users (mode {:o})", mode & 0o7777);
        Finding::warn("configuration", value, format!("`chmod go-w '{shown}'`"))
    })
}

/// Whether the secrets that the configuration names can be read.
pub(in crate::cli::doctor) fn secrets(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let config = match config_of(examination) {
            Ok(config) => config,
            Err(skipped) => return skipped,
        };
        let mut findings: Vec<Finding> = Vec::new();
        for reference in config.secret_references() {
            let subject = reference.to_string();
            if findings.iter().any(|finding| finding.subject == subject) {
                continue;
            }
            findings.push(match (reference, reference.resolve(&examination.variables)) {
                // A command may ask a person, or a server; `keys` runs those of providers.
                (Reference::Command(_), _) => Finding::skipped(subject, "a command is not run for this"),
                (_, Ok(_)) => Finding::ok(subject, "it can be read"),
                (reference, Err(missing)) => Finding::fail(subject, missing.to_string(), remedy(reference)),
            });
        }
        if findings.is_empty() {
            findings.push(Finding::skipped("secrets", "the configuration names none"));
        }
        findings
    }
    .boxed()
}

fn remedy(reference: &Reference) -> String {
    match reference {
        Reference::Variable(name) => format!(
            "set the variable {name} where hermod is started; a service has it in its unit or credentials"
        ),
        Reference::File(path) => {
            format!("write the secret to {}, with mode 600", path.display())
        }
        Reference::Command(_) => "see why the command fails".to_owned(),
    }
}
