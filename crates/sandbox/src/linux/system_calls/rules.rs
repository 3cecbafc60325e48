//! Calls that are allowed with some arguments only.
//!
//! The kernel looks at 32 bits of most arguments: comparing all 64 would let a caller evade a condition. A filter
//! cannot follow pointers, so a call whose meaning lies behind a pointer is allowed with all arguments or with none.

use std::collections::BTreeMap;

use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::{Name, Network, Policy, Report};

/// The numbers of the calls that a filter lists, each with its rules, of which one must hold. A call without rules is
/// listed with all arguments.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// All `CLONE_NEW…`: namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;
/// With these flags the new process would be another process's child, or traced from its start.
const OTHERS: u64 = (libc::CLONE_PARENT | libc::CLONE_PTRACE) as u64;
/// Without all of these flags, a clone is not a thread.
const THREAD: u64 = (libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;

/// Requests that are allowed on terminals and sockets. Among the refused ones are those that type into the user's
/// terminal.
const IOCTLS: [u64; 9] = [
    libc::TCGETS,
    0x802c_542a, // TCGETS2
    libc::TIOCGWINSZ,
    libc::TIOCGPGRP,
    libc::TIOCOUTQ,
    libc::FIONREAD,
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::FIONCLEX,
];

/// Allowed commands. Not among them: setting who gets signals about a descriptor, leases, and watching directories.
const FCNTLS: [i32; 15] = [
    libc::F_DUPFD,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETPIPE_SZ,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// Allowed options. Not among them: anything that makes it easier to look into this process, or that lets it outlive
/// its parent.
const PRCTLS: [i32; 13] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_PDEATHSIG,
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_TIMERSLACK,
    libc::PR_GET_SECCOMP,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_THP_DISABLE,
    libc::PR_SET_VMA,
    0x4155_5856, // PR_GET_AUXV: what the processor can do, which Rust asks for
];

/// Options of a socket that bring a program into the kernel.
const SOCKET_PROGRAMS: [i32; 4] =
    [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF, libc::SO_ATTACH_REUSEPORT_CBPF, libc::SO_ATTACH_REUSEPORT_EBPF];

/// Options of a Unix socket that give a descriptor of the process at the other end, which is the host (`SO_PASSPIDFD`,
/// for each message, and `SO_PEERPIDFD`). Nothing that can be done with such a descriptor is allowed, so no code needs
/// it.
const PASSED_PROCESS: i32 = 76;
const OTHER_PROCESS: i32 = 77;

/// A condition on one argument, of which the kernel looks at 32 bits.
fn argument(index: u8, is: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, is, value).expect("a call has six arguments")
}

fn equal(index: u8, value: u64) -> SeccompCondition {
    argument(index, SeccompCmpOp::Eq, value)
}

fn masked(index: u8, mask: u64, value: u64) -> SeccompCondition {
    argument(index, SeccompCmpOp::MaskedEq(mask), value)
}

/// A rule: all of its conditions must hold.
fn all(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("there is a condition")
}

/// Rules of which one holds if the argument is one of the values.
fn one_of(index: u8, values: impl IntoIterator<Item = u64>) -> Vec<SeccompRule> {
    values.into_iter().map(|value| all(vec![equal(index, value)])).collect()
}

/// The calls that are allowed under a condition. A call without rules is allowed with all arguments.
///
/// Where Landlock does not restrict what the policy wants restricted, the calls are refused altogether.
pub(super) fn conditional(policy: &Policy, report: &Report) -> Rules {
    let mut rules = Rules::new();
    rules.insert(libc::SYS_ioctl, one_of(1, IOCTLS));
    rules.insert(libc::SYS_fcntl, one_of(1, FCNTLS.map(|command| command as u64)));
    rules.insert(libc::SYS_prctl, one_of(0, PRCTLS.map(|option| option as u64)));
    rules.insert(libc::SYS_personality, one_of(0, [0xffff_ffff]));
    // No code may replace the handler that names refusals.
    rules.insert(libc::SYS_rt_sigaction, vec![all(vec![argument(0, SeccompCmpOp::Ne, libc::SIGSYS as u64)])]);
    // Only for this process, or for the calling thread.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_prlimit64, one_of(0, [0, own]));
    rules.insert(libc::SYS_sched_setaffinity, one_of(0, [0]));
    rules.insert(libc::SYS_get_robust_list, one_of(0, [0]));
    rules.insert(libc::SYS_setpriority, vec![all(vec![equal(0, u64::from(libc::PRIO_PROCESS)), equal(1, 0)])]);
    processes(policy, report, own, &mut rules);
    sockets(policy, report, &mut rules);
    rules
}

/// The calls that would make processes or namespaces. They get an error without a signal: libraries block all signals
/// while they make a process, and a thread that blocks the signal dies of it.
pub(super) fn starting(policy: &Policy) -> Rules {
    let bits = |of: u64| (0..32).map(|bit| 1 << bit).filter(move |bit| of & bit != 0);
    let mut refused: Vec<_> = bits(NAMESPACES | OTHERS).map(|bit| all(vec![masked(0, bit, bit)])).collect();
    let mut rules = Rules::new();
    if !policy.subprocesses {
        refused.extend(bits(THREAD).map(|bit| all(vec![masked(0, bit, 0)])));
        #[cfg(target_arch = "x86_64")]
        rules.extend([libc::SYS_fork, libc::SYS_vfork].map(|number| (number, Vec::new())));
    }
    rules.insert(libc::SYS_clone, refused);
    rules
}

/// Processes, programs and signals.
fn processes(policy: &Policy, report: &Report, own: u64, rules: &mut Rules) {
    if policy.subprocesses {
        rules.extend([libc::SYS_setsid, libc::SYS_setpgid, libc::SYS_pidfd_open].map(|number| (number, Vec::new())));
    }
    if !policy.execute.is_empty() {
        rules.insert(libc::SYS_execve, Vec::new());
    }
    // Under Landlock, this process and the processes that it makes may signal each other.
    let scoped = policy.subprocesses && report.provides(Name::Signals);
    for number in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo] {
        rules.insert(number, if policy.signals || scoped { Vec::new() } else { one_of(0, [own]) });
    }
    if policy.signals || scoped {
        rules.extend([libc::SYS_tkill, libc::SYS_pidfd_send_signal].map(|number| (number, Vec::new())));
    }
}

fn sockets(policy: &Policy, report: &Report, rules: &mut Rules) {
    let domain = |family: i32| equal(0, family as u64);
    let kind = |kind: i32| masked(1, 0xf, kind as u64);
    let protocols = |kinds: &[(i32, [i32; 2])]| -> Vec<SeccompRule> {
        let mut made = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            for &(wanted, numbers) in kinds {
                for protocol in numbers {
                    made.push(all(vec![domain(family), kind(wanted), equal(2, protocol as u64)]));
                }
            }
        }
        made
    };
    // MPTCP and SMC are protocols of their own, which Landlock does not restrict.
    let tcp = (libc::SOCK_STREAM, [0, libc::IPPROTO_TCP]);
    let mut made = match policy.network {
        Network::All => protocols(&[tcp, (libc::SOCK_DGRAM, [0, libc::IPPROTO_UDP])]),
        Network::Ports(_) if report.provides(Name::Tcp) => protocols(&[tcp]),
        Network::Ports(_) | Network::None => Vec::new(),
    };
    let network = !made.is_empty();
    let unix = policy.unix_sockets && (policy.abstract_sockets || report.provides(Name::AbstractSockets));
    if unix {
        made.push(all(vec![domain(libc::AF_UNIX)]));
    }
    if network || unix {
        rules.insert(libc::SYS_socket, made);
        rules.insert(libc::SYS_connect, Vec::new());
    }
    if unix || policy.network == Network::All {
        let listening = [libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];
        rules.extend(listening.map(|number| (number, Vec::new())));
    }
    // Event loops need pairs. A pair for datagrams could send to any path.
    let pair = |kinds: &[i32]| kinds.iter().map(|&wanted| all(vec![domain(libc::AF_UNIX), kind(wanted)])).collect();
    let pairs =
        if unix { vec![all(vec![domain(libc::AF_UNIX)])] } else { pair(&[libc::SOCK_STREAM, libc::SOCK_SEQPACKET]) };
    rules.insert(libc::SYS_socketpair, pairs);
    // With `MSG_FASTOPEN` a first message connects by itself, past the rules for ports.
    for (number, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        rules.insert(number, vec![all(vec![masked(flags, libc::MSG_FASTOPEN as u64, 0)])]);
    }
    let mut plain = vec![equal(1, libc::SOL_SOCKET as u64)];
    let refused = SOCKET_PROGRAMS.into_iter().chain([PASSED_PROCESS]);
    plain.extend(refused.map(|option| argument(2, SeccompCmpOp::Ne, option as u64)));
    let mut options = vec![all(plain)];
    if network {
        let levels = [libc::IPPROTO_IP, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_IPV6];
        // TCP_ULP hands the connection to another part of the kernel.
        let level = |level: i32| all(vec![equal(1, level as u64), argument(2, SeccompCmpOp::Ne, libc::TCP_ULP as u64)]);
        options.extend(levels.map(level));
    }
    rules.insert(libc::SYS_setsockopt, options);
    let elsewhere = all(vec![argument(1, SeccompCmpOp::Ne, libc::SOL_SOCKET as u64)]);
    let other = all(vec![argument(2, SeccompCmpOp::Ne, OTHER_PROCESS as u64)]);
    rules.insert(libc::SYS_getsockopt, vec![elsewhere, other]);
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;
    use crate::{Limits, State};

    fn policy(network: Network, all: bool) -> Policy {
        Policy {
            read: Vec::new(),
            write: Vec::new(),
            execute: if all { vec!["/bin/true".into()] } else { Vec::new() },
            subprocesses: all,
            network,
            unix_sockets: all,
            abstract_sockets: all,
            signals: all,
            limits: Limits::default(),
            environment: Vec::new(),
            descriptors: Vec::new(),
            proc: Vec::new(),
            required: Vec::new(),
        }
    }

    #[test]
    fn no_list_lifts_a_condition() {
        let lists = [table::ALLOWED, table::KILLED, &[table::ABSENT, table::QUIET, table::STARTING]];
        let listed: Vec<i64> = lists.into_iter().flatten().copied().flatten().map(|call| call.1).collect();
        for all in [true, false] {
            let rules = conditional(&policy(Network::All, all), &Report::default());
            assert!(rules.keys().all(|number| !listed.contains(number)));
        }
    }

    #[test]
    fn a_condition_is_never_empty_by_mistake() {
        // No rule at all would allow the call with any arguments.
        let rules = conditional(&policy(Network::None, false), &Report::default());
        for (number, conditions) in &rules {
            assert!(!conditions.is_empty(), "{number}");
        }
        assert!(!rules.contains_key(&libc::SYS_socket));
        assert!(!rules.contains_key(&libc::SYS_connect));
    }

    #[test]
    fn ports_that_nobody_restricts_are_not_reached() {
        let policy = policy(Network::Ports(vec![80]), false);
        assert!(!conditional(&policy, &Report::default()).contains_key(&libc::SYS_connect));
        let mut report = Report::default();
        report.add(Name::Tcp, State::Provided, "");
        assert!(conditional(&policy, &report).contains_key(&libc::SYS_connect));
    }
}
