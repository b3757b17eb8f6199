//! A sandbox that is made before its command: its rules as an open descriptor of the kernel, and its filter of system
//! calls. A thread only has to enter it.

use std::{io, path::PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use seccompiler::BpfProgram;

use super::{
    files::{GrantError, HiddenPaths, PathGrant, grant_files},
    mount_table::MountTable,
    mounts::MountPlan,
    namespace::{SandboxNamespace, isolate_mounts},
    network::NetworkAccess,
    observed::ObservedPaths,
    restrict::{NEWEST, SandboxError, SandboxStatus, rights},
    spec::{SandboxMode, SandboxRules, SandboxSpec},
    syscalls,
};

/// Sandboxes that are kept for further commands. A run uses one.
const MAX_KEPT: usize = 16;

/// How the threads of a sandbox get their own view of the file system.
#[derive(Debug)]
enum MountIsolation {
    /// They enter a namespace that was made before.
    Prepared(SandboxNamespace),
    /// The calling thread has one already.
    Entered,
    /// They have none.
    None,
}

/// A sandbox for one command.
#[derive(Debug)]
pub(in crate::process) struct PreparedSandbox {
    spec: SandboxSpec,
    /// The namespace for whose threads the rules are made.
    mounts: MountIsolation,
    ruleset: RulesetCreated,
    filter: Result<BpfProgram, seccompiler::Error>,
    basis: SandboxBasis,
}

/// What the rules of a sandbox depend on.
#[derive(Debug, Default)]
pub(super) struct SandboxBasis {
    observed: ObservedPaths,
    /// The mounts, for a process that was forked for the sandbox.
    mounts: Option<MountTable>,
}

/// The prepared sandboxes of a process that forks, the last used at the end.
#[derive(Debug, Default)]
pub(in crate::process) struct SandboxCache {
    kept: Vec<PreparedSandbox>,
    /// Tells when mounts change.
    mounts: Option<MountTable>,
    /// Tells the same to the process that is forked next.
    forks_mounts: Option<MountTable>,
}

impl SandboxCache {
    /// Prepares a sandbox and returns its position, which is valid until the next call.
    ///
    /// It must be called while the process has one thread.
    pub(in crate::process) fn prepare(&mut self, spec: &SandboxSpec) -> Result<usize, SandboxError> {
        // Opened before this process looks for changes: none is missed.
        self.forks_mounts = MountTable::open().ok();
        if self.have_mounts_changed() {
            self.kept.clear();
        }
        let found = self.kept.iter().position(|kept| kept.spec == *spec).map(|at| self.kept.remove(at));
        let unchanged = found.and_then(|mut kept| kept.basis.observed.is_unchanged().then_some(kept));
        let prepared = match unchanged {
            Some(kept) => kept,
            None => PreparedSandbox::with_namespace(spec)?,
        };
        if self.kept.len() == MAX_KEPT {
            self.kept.remove(0);
        }
        self.kept.push(prepared);
        Ok(self.kept.len() - 1)
    }

    /// True if something was mounted or unmounted since the last call, or if that cannot be seen.
    fn have_mounts_changed(&mut self) -> bool {
        let Some(mounts) = &self.mounts else {
            self.mounts = MountTable::open().ok();
            return true;
        };
        mounts.has_changed()
    }

    /// Takes a prepared sandbox, in a process that was forked for it.
    pub(in crate::process) fn take(mut self, position: usize) -> PreparedSandbox {
        let mut prepared = self.kept.swap_remove(position);
        prepared.basis.mounts = self.forks_mounts;
        prepared
    }
}

impl PreparedSandbox {
    /// Prepares a sandbox whose threads have a mount namespace, if the system allows one.
    ///
    /// It must be called while the process has one thread.
    fn with_namespace(spec: &SandboxSpec) -> Result<Self, SandboxError> {
        spec.make_temp_folder()?;
        let hidden = HiddenPaths::of(spec);
        let namespace = SandboxNamespace::create(&mount_plan(spec, &hidden))?;
        Self::new(spec, hidden, namespace.map_or(MountIsolation::None, MountIsolation::Prepared))
    }

    /// Prepares a sandbox for the calling thread, which enters a mount namespace if it may.
    pub(super) fn of_thread(spec: &SandboxSpec) -> Result<Self, SandboxError> {
        let hidden = HiddenPaths::of(spec);
        let is_isolated = isolate_mounts(&mount_plan(spec, &hidden))?;
        let mounts = if is_isolated { MountIsolation::Entered } else { MountIsolation::None };
        Self::new(spec, hidden, mounts)
    }

    fn new(spec: &SandboxSpec, hidden: HiddenPaths, mounts: MountIsolation) -> Result<Self, SandboxError> {
        let hidden = match mounts {
            MountIsolation::Prepared(_) | MountIsolation::Entered => hidden.outside(&spec.workspace),
            MountIsolation::None => hidden,
        };
        let (ruleset, observed) = create_ruleset(spec, hidden)?;
        let filter = syscalls::filter(spec).map_err(Into::into);
        let basis = SandboxBasis { observed, mounts: None };
        Ok(Self { spec: spec.clone(), mounts, ruleset, filter, basis })
    }

    /// Enters the user namespace that this sandbox needs. It must be called while the process has one thread.
    pub(in crate::process) fn prepare_process(&self) -> io::Result<()> {
        match &self.mounts {
            MountIsolation::Prepared(namespace) => namespace.enter_user(),
            MountIsolation::Entered | MountIsolation::None => Ok(()),
        }
    }

    /// Enters the mount namespace of this sandbox with the calling thread.
    pub(super) fn enter_mounts(&self) -> io::Result<()> {
        match &self.mounts {
            MountIsolation::Prepared(namespace) => namespace.enter_mounts(),
            MountIsolation::Entered | MountIsolation::None => Ok(()),
        }
    }

    /// Takes what tells later whether the sandbox still has the right rules.
    pub(super) fn take_basis(&mut self) -> SandboxBasis {
        std::mem::take(&mut self.basis)
    }

    /// Puts the rules and the filter in force for the calling thread.
    pub(super) fn enforce(self) -> Result<SandboxStatus, SandboxError> {
        let status = self.ruleset.restrict_self()?;
        let landlock = match status.landlock {
            LandlockStatus::Available { effective_abi, .. }
                if status.ruleset != RulesetStatus::NotEnforced =>
            {
                effective_abi as i32
            }
            LandlockStatus::Available { .. }
            | LandlockStatus::NotEnabled
            | LandlockStatus::NotImplemented => 0,
        };
        let is_required = self.spec.rules.mode == SandboxMode::Required;
        let system_calls = match self.filter.and_then(|filter| seccompiler::apply_filter(&filter)) {
            Ok(()) => true,
            Err(error) if is_required => return Err(SandboxError::SystemCalls(error)),
            Err(_) => false,
        };
        let mounts = !matches!(self.mounts, MountIsolation::None);
        let status = SandboxStatus { landlock, system_calls, mounts };
        let missing = status.missing();
        if is_required && !missing.is_empty() {
            return Err(SandboxError::Missing(missing));
        }
        Ok(status)
    }
}

impl SandboxBasis {
    /// True if a new sandbox would have the same rules; false also if that cannot be seen.
    pub(super) fn is_unchanged(&mut self) -> bool {
        self.mounts.as_ref().is_some_and(|mounts| !mounts.has_changed()) && self.observed.is_unchanged()
    }
}

/// What the namespace of a sandbox differs in.
fn mount_plan(spec: &SandboxSpec, hidden: &HiddenPaths) -> MountPlan {
    let SandboxRules { mode, read, write, .. } = &spec.rules;
    let real = |path: &PathBuf| path.canonicalize().ok();
    let workspace = mode.is_workspace_writable().then_some(&spec.workspace);
    let writable: Vec<_> = workspace.into_iter().chain(write).chain(&spec.temp).filter_map(real).collect();
    let exposed = read.iter().chain(write).chain(&spec.temp).filter_map(real).collect();
    MountPlan { writable, hidden: hidden.inside(&spec.workspace), exposed }
}

fn create_ruleset(
    spec: &SandboxSpec,
    hidden: HiddenPaths,
) -> Result<(RulesetCreated, ObservedPaths), SandboxError> {
    // Nothing grants what is not handled, and nothing refuses it either.
    let unhandled =
        if spec.rules.unix_sockets { AccessFs::ResolveUnix.into() } else { BitFlags::<AccessFs>::empty() };
    let handled = AccessFs::from_all(NEWEST) & !unhandled;
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(handled)?;
    // Hosts are limited by a network namespace, in which every port is the command's own.
    if spec.rules.network == NetworkAccess::Off {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    let mut ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?.create()?;
    let add_rule = |PathGrant { file, is_folder, access }| {
        (&mut ruleset).add_rule(PathBeneath::new(file, rights(access, is_folder) & handled)).map(drop)
    };
    let observed = grant_files(spec, hidden, add_rule).map_err(|error| match error {
        GrantError::Path(path) => SandboxError::Path(path),
        GrantError::Rule(error) => error.into(),
    })?;
    Ok((ruleset, observed))
}
