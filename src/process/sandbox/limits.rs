//! Limits of resources (setrlimit). A process hands them down to its children.

use std::{fs, io};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::{
    restrict::SandboxError,
    spec::{SandboxLimits, SandboxMode, SandboxRules},
};

/// Fewer open files do not suffice to start a command.
const MIN_OPEN_FILES: u64 = 64;

/// A runner writes `exit` and its entry in the ledger under the limit of its commands.
const MIN_FILE_BYTES: u64 = 1 << 20;

/// Limit of a file below which a process starts one command only: the ledger may be longer than that.
const MIN_REUSED_FILE_BYTES: u64 = 64 << 20;

/// Limit of processor time below which a process starts one command only: what it uses itself counts too.
const MIN_REUSED_CPU_SECONDS: u64 = 60;

/// The limits that the system refuses to set, by their names in the configuration. Some containers allow few.
#[derive(Debug, Default)]
pub(super) struct RefusedLimits(Vec<&'static str>);

impl RefusedLimits {
    /// Fails if the operator requires all protections.
    pub(super) fn check(rules: &SandboxRules) -> Result<Self, SandboxError> {
        Self::check_with(rules, is_settable)
    }

    fn check_with(
        rules: &SandboxRules,
        is_settable: impl Fn(Resource) -> bool,
    ) -> Result<Self, SandboxError> {
        let refused = wanted(&rules.limits).filter(|limit| !is_settable(limit.resource));
        let refused = Self(refused.map(|limit| limit.name).collect());
        match rules.mode {
            SandboxMode::Required if !refused.0.is_empty() => Err(SandboxError::Limits(refused.0.join(", "))),
            SandboxMode::Required | SandboxMode::Workspace | SandboxMode::ReadOnly => Ok(refused),
        }
    }

    /// A line for what a command has printed.
    pub(super) fn text(&self) -> String {
        match &*self.0 {
            [] => String::new(),
            names => format!(
                "hermod: this system refuses to set limits of the sandbox, which are not in force: {}\n",
                names.join(", ")
            ),
        }
    }
}

/// Whether the system sets a limit of this process: it is asked to leave it as it is.
fn is_settable(resource: Resource) -> bool {
    prlimit(None, resource, getrlimit(resource)).is_ok()
}

/// The limits of a process that starts one command after the other. They cannot be raised again.
#[derive(Debug)]
pub(in crate::process) struct ProcessLimits {
    limits: SandboxLimits,
    /// Number of tasks of the machine when they were set.
    tasks: u64,
}

impl ProcessLimits {
    /// Sets the limits for this process, and so for all that it will start.
    pub(in crate::process) fn restrict_own(limits: &SandboxLimits) -> io::Result<Self> {
        let tasks = tasks_of_machine();
        restrict(None, limits)?;
        Ok(Self { limits: *limits, tasks })
    }

    /// True if a further command has nearly as much as it would have in a new process.
    pub(in crate::process) fn are_current(&self) -> bool {
        let SandboxLimits { cpu_seconds, processes, file_size, .. } = self.limits;
        file_size.is_none_or(|bytes| bytes >= MIN_REUSED_FILE_BYTES)
            && cpu_seconds.is_none_or(|seconds| seconds >= MIN_REUSED_CPU_SECONDS)
            && processes.is_none_or(|more| tasks_of_machine() <= self.tasks + more / 4)
    }
}

/// Sets the limits of a child that was started a moment ago. What it has started already is not limited.
pub(super) fn restrict_child(child: Pid, limits: &SandboxLimits) -> io::Result<()> {
    restrict(Some(child), limits)
}

/// Sets all limits that the system sets.
fn restrict(process: Option<Pid>, limits: &SandboxLimits) -> io::Result<()> {
    for WantedLimit { resource, value, .. } in wanted(limits) {
        match prlimit(process, resource, lowered(getrlimit(resource), value)) {
            // `RefusedLimits` tells of it.
            Err(_) if !is_settable(resource) => {}
            set => drop(set?),
        }
    }
    Ok(())
}

/// A limit that the operator has set.
struct WantedLimit {
    /// In the configuration.
    name: &'static str,
    resource: Resource,
    value: u64,
}

fn wanted(limits: &SandboxLimits) -> impl Iterator<Item = WantedLimit> {
    let processes = limits.processes.map(|more| more.saturating_add(tasks_of_machine()));
    let limits = [
        ("cpu", Resource::Cpu, limits.cpu_seconds),
        ("memory", Resource::Data, limits.memory),
        ("file_size", Resource::Fsize, limits.file_size.map(|bytes| bytes.max(MIN_FILE_BYTES))),
        ("processes", Resource::Nproc, processes),
        ("open_files", Resource::Nofile, limits.open_files.map(|files| files.max(MIN_OPEN_FILES))),
        ("core", Resource::Core, Some(0)),
    ];
    let wanted =
        |(name, resource, value): (_, _, Option<u64>)| Some(WantedLimit { name, resource, value: value? });
    limits.into_iter().filter_map(wanted)
}

/// No limit is raised, neither the one in force nor the one up to which a process may raise it.
fn lowered(now: Rlimit, limit: u64) -> Rlimit {
    let lower = |now: Option<u64>| Some(now.map_or(limit, |now| now.min(limit)));
    Rlimit { current: lower(now.current), maximum: lower(now.maximum) }
}

/// The kernel counts all processes and threads of the user, so those that run already are added to the limit.
fn tasks_of_machine() -> u64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    tasks(&text).unwrap_or_default()
}

/// The number of tasks in `/proc/loadavg` (proc_loadavg(5)).
fn tasks(loadavg: &str) -> Option<u64> {
    loadavg.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{super::network::NetworkAccess, *};

    #[test]
    fn a_limit_is_lowered_and_never_raised() {
        let check = |now: (Option<u64>, Option<u64>), limit, expected: (u64, u64)| {
            let Rlimit { current, maximum } = lowered(Rlimit { current: now.0, maximum: now.1 }, limit);
            assert_eq!((current, maximum), (Some(expected.0), Some(expected.1)), "{now:?} to {limit}");
        };
        check((None, None), 7, (7, 7));
        check((Some(5), None), 7, (5, 7));
        check((Some(5), Some(6)), 7, (5, 6));
        check((Some(9), Some(9)), 7, (7, 7));
    }

    #[test]
    fn limits_that_the_system_refuses_are_told_or_required() {
        let limits = SandboxLimits {
            memory: Some(1),
            processes: Some(1),
            cpu_seconds: Some(1),
            ..SandboxLimits::default()
        };
        let check = |mode, refused: &[Resource], expect: Result<&str, &str>| {
            let rules = SandboxRules {
                mode,
                read: Vec::new(),
                write: Vec::new(),
                hide: Vec::new(),
                network: NetworkAccess::Off,
                unix_sockets: false,
                limits,
            };
            let checked = RefusedLimits::check_with(&rules, |resource| !refused.contains(&resource));
            match (checked, expect) {
                (Ok(refused), Ok(text)) => assert_eq!(refused.text(), text),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (checked, expect) => panic!("expected {expect:?}, got {checked:?}"),
            }
        };
        let refused = [Resource::Nproc, Resource::Data, Resource::Nofile];
        let text = "hermod: this system refuses to set limits of the sandbox, which are not in force: memory, processes\n";
        check(SandboxMode::Workspace, &refused, Ok(text));
        check(SandboxMode::ReadOnly, &refused, Ok(text));
        check(SandboxMode::Required, &refused, Err("memory, processes"));
        // Open files are not limited here.
        check(SandboxMode::Required, &[Resource::Nofile], Ok(""));
        assert!(is_settable(Resource::Data), "on a real kernel");
    }

    #[test]
    fn limits_are_current_while_they_leave_as_much() {
        let of = |file_size| ProcessLimits {
            limits: SandboxLimits { file_size, ..SandboxLimits::default() },
            tasks: 0,
        };
        assert!(of(None).are_current() && of(Some(64 << 20)).are_current());
        assert!(!of(Some(1 << 20)).are_current(), "the ledger may be longer");
        let check = |cpu_seconds, processes, tasks, expected| {
            let limits = SandboxLimits { cpu_seconds, processes, ..SandboxLimits::default() };
            assert_eq!(
                ProcessLimits { limits, tasks }.are_current(),
                expected,
                "{cpu_seconds:?} {processes:?}"
            );
        };
        check(None, None, 0, true);
        check(Some(60), None, 0, true);
        check(Some(59), None, 0, false);
        // Other tasks come and go while this runs.
        check(None, Some(4), 1 << 40, true);
        check(None, Some(4), 0, false);
        check(None, Some(1 << 40), 0, true);
    }

    #[test]
    fn the_tasks_of_the_machine_are_read() {
        assert_eq!(tasks("0.00 0.01 0.05 2/345 6789\n"), Some(345));
        assert_eq!(tasks(""), None);
        assert!(tasks_of_machine() > 0);
    }
}
