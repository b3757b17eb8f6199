//! The system calls that a sandbox refuses, as filters of the kernel (seccomp). Everything else is allowed.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

use super::{network::NetworkAccess, spec::SandboxSpec};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// System calls that reach into other processes, change the system, or open the kernel to attacks.
const REFUSED: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// System calls that programs replace by others if the kernel does not have them. `clone3` takes its flags from memory,
/// where no filter sees them; `io_uring` makes calls past every filter.
const ABSENT: &[i64] =
    &[libc::SYS_clone3, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_io_uring_setup];

/// The flags of new namespaces, in which a process would have the rights of an administrator.
const NAMESPACES: u64 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u64;
/// The flag of a time namespace, which only `unshare` takes.
const NEW_TIME: u64 = 0x80;

/// The lowest number of the x32 variants of system calls, which no rule names. No other architecture has such numbers.
const X32_CALLS: u32 = 0x4000_0000;

/// The filters of a sandbox: one for each error that a refused call has.
pub(super) fn filters(spec: &SandboxSpec) -> Result<Vec<BpfProgram>, BackendError> {
    let refused = REFUSED.iter().map(|call| Ok((*call, Vec::new())));
    let refused =
        refused.chain(flag_rules()?.into_iter().map(Ok)).collect::<Result<Rules, BackendError>>()?;
    let mut sockets = Rules::from([(libc::SYS_socket, vec![socket_rule(spec)?])]);
    if !spec.rules.unix_sockets {
        sockets.insert(libc::SYS_socketpair, redirectable_pair_rules()?);
    }
    Ok(vec![filter(refused, libc::EPERM)?, filter(sockets, libc::EACCES)?, absent_filter()?])
}

/// Answers to calls that a kernel may lack as if it lacked them. In a filter of its own these are few steps.
fn absent_filter() -> Result<BpfProgram, BackendError> {
    let mut program = filter(ABSENT.iter().map(|call| (*call, Vec::new())).collect(), libc::ENOSYS)?;
    let step = |code: u32, if_true, if_false, operand| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: if_true,
        jf: if_false,
        k: operand,
    };
    // Loads the number at the beginning of what the kernel tells of a call.
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let x32 = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32_CALLS),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
    ];
    program.splice(0..0, x32);
    Ok(program)
}

fn filter(rules: Rules, error: i32) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(error.unsigned_abs()),
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}

/// New namespaces, and limits of other processes.
fn flag_rules() -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let any_flag = |argument, flags: u64| {
        (0..u64::BITS)
            .map(|bit| 1 << bit)
            .filter(|flag| flags & flag != 0)
            .map(|flag| rule(&[(argument, SeccompCmpOp::MaskedEq(flag), flag)]))
            .collect::<Result<Vec<_>, _>>()
    };
    let other_process = rule(&[(0, SeccompCmpOp::Ne, 0), (2, SeccompCmpOp::Ne, 0)])?;
    Ok(vec![
        (libc::SYS_clone, any_flag(0, NAMESPACES)?),
        (libc::SYS_unshare, any_flag(0, NAMESPACES | NEW_TIME)?),
        (libc::SYS_prlimit64, vec![other_process]),
    ])
}

/// Matches the families of sockets that are not allowed.
fn socket_rule(spec: &SandboxSpec) -> Result<SeccompRule, BackendError> {
    let local = spec.rules.unix_sockets.then_some(libc::AF_UNIX);
    let network: &[i32] = match spec.rules.network {
        NetworkAccess::Off => &[],
        // In a namespace of their own these reach no other process.
        NetworkAccess::Hosts(_) => &[libc::AF_INET, libc::AF_INET6],
        NetworkAccess::On => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
    };
    let allowed = local.into_iter().chain(network.iter().copied());
    let others: Vec<_> =
        allowed.map(|family| (0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()))).collect();
    // A rule without a condition is not allowed: this one is met by every family.
    if others.is_empty() { rule(&[(0, SeccompCmpOp::Ge, 0)]) } else { rule(&others) }
}

/// Matches pairs of sockets that can send elsewhere than to each other.
fn redirectable_pair_rules() -> Result<Vec<SeccompRule>, BackendError> {
    // The kind of a socket stands beside its flags.
    let is_kind = |kind: i32| rule(&[(1, SeccompCmpOp::MaskedEq(0xf), u64::from(kind.unsigned_abs()))]);
    [libc::SOCK_DGRAM, libc::SOCK_RAW].into_iter().map(is_kind).collect()
}

fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let condition = |(argument, op, value): &(u8, SeccompCmpOp, u64)| {
        // The kernel compares flags and families by their lower half, and pointers by the whole.
        let length = if *argument == 2 { SeccompCmpArgLen::Qword } else { SeccompCmpArgLen::Dword };
        SeccompCondition::new(*argument, length, op.clone(), *value)
    };
    SeccompRule::new(conditions.iter().map(condition).collect::<Result<_, _>>()?)
}
