//! Checks of the machine: the protections of its kernel, and the limit of open files.

use std::env;

use futures::{FutureExt, future::BoxFuture};
use rustix::process::{Resource, getrlimit};

use super::config_of;
use crate::{
    cli::doctor::check::{Examination, Finding},
    config::SandboxModeName,
    files::{off_thread, remove_tree},
    process::sandbox::{NetworkAccess, SandboxTrial},
};

/// Open files that a service with a hundred runs needs.
const MIN_OPEN_FILES: u64 = 1_024;

/// What the kernel protects from.
pub(in crate::cli::doctor) fn sandbox(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let config = match config_of(examination) {
            Ok(config) => config,
            Err(skipped) => return skipped,
        };
        if config.sandbox.mode == SandboxModeName::Off {
            let value = "it is off: commands of models may do all that you may";
            return vec![Finding::warn("sandbox", value, "set sandbox.mode to \"workspace\"")];
        }
        let trial = match try_sandbox().await {
            Ok(trial) => trial,
            Err(error) => {
                let remedy = "`hermod doctor sandbox` tries each protection";
                return vec![Finding::warn("sandbox", format!("it cannot be tried: {error}"), remedy)];
            }
        };
        let missing = trial.status.missing();
        let remedy = "use a kernel of Linux 6.12 or newer with Landlock and seccomp; in a container allow user namespaces";
        let mut findings = vec![match (missing.is_empty(), config.sandbox.mode) {
            (true, _) => Finding::ok("sandbox", "this kernel enforces all of it"),
            (false, SandboxModeName::Required) => {
                let value = format!("this kernel lacks {}, so commands are refused", missing.join(" and "));
                Finding::fail("sandbox", value, format!("{remedy}; or set sandbox.mode to \"workspace\""))
            }
            (false, _) => {
                Finding::warn("sandbox", format!("this kernel lacks {}", missing.join(" and ")), remedy)
            }
        }];
        if matches!(config.sandbox.network.0, NetworkAccess::Hosts(_)) && !trial.may_limit_network {
            let value = "sandbox.network is a list of hosts, and this system allows no network namespace";
            findings.push(Finding::fail(
                "sandbox",
                value,
                "set sandbox.network to \"off\" or \"on\", or allow user namespaces",
            ));
        }
        findings
    }
    .boxed()
}

async fn try_sandbox() -> std::io::Result<SandboxTrial> {
    // Not below the state directory: that may not exist.
    let folder = env::temp_dir().join(format!("hermod-doctor-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let trial = SandboxTrial::run(&env::current_exe()?, &folder).await;
    off_thread(move || remove_tree(&folder)).await?;
    trial
}

/// Whether enough files may be open at once.
pub(in crate::cli::doctor) fn open_files(_: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async {
        let limit = getrlimit(Resource::Nofile).current;
        vec![match limit {
            Some(limit) if limit < MIN_OPEN_FILES => {
                let value = format!("at most {limit} files may be open at once");
                let remedy = format!(
                    "`ulimit -n {MIN_OPEN_FILES}` before it starts; LimitNOFILE={MIN_OPEN_FILES} in a unit"
                );
                Finding::warn("open files", value, remedy)
            }
            Some(limit) => Finding::ok("open files", format!("at most {limit} may be open at once")),
            None => Finding::ok("open files", "there is no limit"),
        }]
    }
    .boxed()
}
