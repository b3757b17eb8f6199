//! The system calls that a sandbox refuses, as a filter of the kernel (seccomp). Everything else is allowed.

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

/// Most calls that are compared one after the other.
const MAX_COMPARED: usize = 4;

/// A system call that is refused if one of its rules matches, and always if it has none.
struct RefusedCall {
    number: u32,
    rules: Vec<BpfProgram>,
    /// What the caller gets instead.
    error: i32,
}

/// The filter of a sandbox. It searches its calls in a tree: the kernel tries each new filter with the numbers of all
/// system calls, to know those that it always allows. In a list that takes several times as long.
pub(super) fn filter(spec: &SandboxSpec) -> Result<BpfProgram, BackendError> {
    let always = |number: &i64| (*number, Vec::new());
    let with_error = |error| move |(number, rules)| RefusedCall::new(number, rules, error);
    let mut calls: Vec<_> =
        REFUSED.iter().map(always).chain(flag_rules()?).map(with_error(libc::EPERM)).collect();
    calls.extend(socket_rules(spec)?.into_iter().map(with_error(libc::EACCES)));
    calls.extend(ABSENT.iter().map(always).map(with_error(libc::ENOSYS)));
    calls.sort_by_key(|call| call.number);
    let mut program = check_architecture()?;
    program.extend([
        // The number is at the beginning of what the kernel tells of a call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        if_at_least(X32_CALLS),
        refuse(libc::ENOSYS),
    ]);
    program.extend(search(&calls));
    Ok(program)
}

impl RefusedCall {
    fn new(number: i64, rules: Vec<SeccompRule>, error: i32) -> Self {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Self { number, rules: rules.into_iter().map(Into::into).collect(), error }
    }

    /// A program that begins with the number of a call. For another call it goes on behind its end.
    fn compare(&self) -> BpfProgram {
        if self.rules.is_empty() {
            return vec![if_equal(self.number), refuse(self.error)];
        }
        // A rule that does not match skips the step behind it.
        let refusals = self.rules.iter().flat_map(|rule| rule.iter().cloned().chain([refuse(self.error)]));
        let body: BpfProgram = refusals.chain([ALLOW]).collect();
        [vec![if_equal(self.number), jump(1), jump(body.len())], body].concat()
    }
}

/// A program that begins with the number of a call, and ends with a decision.
fn search(calls: &[RefusedCall]) -> BpfProgram {
    if calls.len() <= MAX_COMPARED {
        return calls.iter().flat_map(RefusedCall::compare).chain([ALLOW]).collect();
    }
    let (left, right) = calls.split_at(calls.len() / 2);
    let pivot = right.first().map_or(u32::MAX, |call| call.number);
    let (left, right) = (search(left), search(right));
    [vec![if_at_least(pivot), jump(left.len())], left, right].concat()
}

/// Kills a process that makes calls of another architecture, whose numbers mean other calls.
fn check_architecture() -> Result<BpfProgram, BackendError> {
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::KillProcess);
    let arch = std::env::consts::ARCH.try_into()?;
    let mut program: BpfProgram = SeccompFilter::new(Rules::new(), allow, refuse, arch)?.try_into()?;
    // It ends with the decision about all other calls.
    program.pop();
    Ok(program)
}

const ALLOW: sock_filter = step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW);

fn refuse(error: i32) -> sock_filter {
    step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | error.unsigned_abs())
}

/// Skips the next step unless the number is this one.
fn if_equal(number: u32) -> sock_filter {
    sock_filter { jf: 1, ..step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number) }
}

/// Skips the next step if the number is below this one.
fn if_at_least(number: u32) -> sock_filter {
    sock_filter { jf: 1, ..step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, number) }
}

/// Skips steps.
fn jump(steps: usize) -> sock_filter {
    step(libc::BPF_JMP | libc::BPF_JA, u32::try_from(steps).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_possible_truncation, reason = "codes have 16 bits")]
const fn step(code: u32, operand: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k: operand }
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

/// Sockets that reach other processes.
fn socket_rules(spec: &SandboxSpec) -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let mut rules = vec![(libc::SYS_socket, vec![socket_rule(spec)?])];
    if !spec.rules.unix_sockets {
        rules.push((libc::SYS_socketpair, redirectable_pair_rules()?));
    }
    Ok(rules)
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{
        super::spec::{SandboxLimits, SandboxMode, SandboxRules},
        *,
    };

    fn spec(network: NetworkAccess, unix_sockets: bool) -> SandboxSpec {
        let rules = SandboxRules {
            mode: SandboxMode::Workspace,
            read: Vec::new(),
            write: Vec::new(),
            hide: Vec::new(),
            network,
            unix_sockets,
            limits: SandboxLimits::default(),
        };
        SandboxSpec { rules, workspace: PathBuf::new(), temp: None }
    }

    /// Runs a program as the kernel does.
    fn decision(program: &BpfProgram, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = vec![number, architecture, 0, 0];
        // On a machine whose lower half comes first.
        let halves = arguments.iter().flat_map(|argument| [argument & u64::from(u32::MAX), argument >> 32]);
        data.extend(halves.map(|half| u32::try_from(half).unwrap()));
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            at += 1;
            let mut branch = |is_met| at += usize::from(if is_met { jt } else { jf });
            match u32::from(code) {
                0x20 => value = data[k as usize / 4],
                0x54 => value &= k,
                0x05 => at += k as usize,
                0x15 => branch(value == k),
                0x25 => branch(value > k),
                0x35 => branch(value >= k),
                0x06 => return k,
                code => panic!("a step {code:#x}"),
            }
        }
    }

    const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;

    fn refused(error: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | error.unsigned_abs()
    }

    fn own_architecture(program: &BpfProgram) -> u32 {
        // The kernel's first comparison.
        program[1].k
    }

    #[test]
    fn a_call_is_refused_if_it_is_listed() {
        let program = filter(&spec(NetworkAccess::On, true)).unwrap();
        let own = own_architecture(&program);
        for number in 0..2_000 {
            let call = i64::from(number);
            let expected = match call {
                call if REFUSED.contains(&call) => refused(libc::EPERM),
                call if ABSENT.contains(&call) => refused(libc::ENOSYS),
                // With arguments of zero: no family of sockets that is allowed.
                libc::SYS_socket => refused(libc::EACCES),
                _ => ALLOWED,
            };
            assert_eq!(decision(&program, own, number, [0; 6]), expected, "{number}");
            assert_eq!(decision(&program, own + 1, number, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
            assert_eq!(decision(&program, own, number | X32_CALLS, [0; 6]), refused(libc::ENOSYS));
        }
    }

    #[test]
    fn a_call_is_refused_by_its_arguments() {
        use NetworkAccess::{Off, On};
        let check = |network, unix_sockets, call: i64, arguments: [u64; 3], expected| {
            let program = filter(&spec(network, unix_sockets)).unwrap();
            let [a, b, c] = arguments;
            let number = u32::try_from(call).unwrap();
            let decision = decision(&program, own_architecture(&program), number, [a, b, c, 0, 0, 0]);
            assert_eq!(decision, expected, "{call} {arguments:?}");
        };
        let (namespace, thread) = (libc::CLONE_NEWUSER as u64, libc::CLONE_THREAD as u64);
        check(On, true, libc::SYS_clone, [namespace | thread, 0, 0], refused(libc::EPERM));
        check(On, true, libc::SYS_clone, [thread, namespace, 0], ALLOWED);
        check(On, true, libc::SYS_unshare, [NEW_TIME, 0, 0], refused(libc::EPERM));
        check(On, true, libc::SYS_unshare, [libc::CLONE_FILES as u64, 0, 0], ALLOWED);
        check(On, true, libc::SYS_prlimit64, [0, 0, 1 << 32], ALLOWED);
        check(On, true, libc::SYS_prlimit64, [1, 0, 0], ALLOWED);
        check(On, true, libc::SYS_prlimit64, [1, 0, 1 << 32], refused(libc::EPERM));
        let (local, internet) = (libc::AF_UNIX as u64, libc::AF_INET6 as u64);
        check(Off, false, libc::SYS_socket, [internet, 0, 0], refused(libc::EACCES));
        check(Off, false, libc::SYS_socket, [local, 0, 0], refused(libc::EACCES));
        check(Off, true, libc::SYS_socket, [local, 0, 0], ALLOWED);
        check(On, false, libc::SYS_socket, [internet, 0, 0], ALLOWED);
        check(On, false, libc::SYS_socket, [local, 0, 0], refused(libc::EACCES));
        let (stream, datagrams) = (libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64);
        check(Off, false, libc::SYS_socketpair, [local, stream, 0], ALLOWED);
        check(Off, false, libc::SYS_socketpair, [local, datagrams, 0], refused(libc::EACCES));
        check(Off, true, libc::SYS_socketpair, [local, datagrams, 0], ALLOWED);
    }
}
