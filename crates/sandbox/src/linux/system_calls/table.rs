//! The system calls by name.
//!
//! The calls that Python, numpy, threads, event loops and nearcall itself use are allowed. Landlock decides about the
//! files that these calls name. An older form of a call, if this processor still has it, is treated like the newer
//! form.

/// The name of a call's constant, and its number.
pub(super) type Call = (&'static str, i64);

macro_rules! calls {
    ($($name:ident)*) => { [$((stringify!($name), libc::$name)),*] };
}

/// Allowed with any arguments.
pub(super) const ALLOWED: &[&[Call]] = &[GENERAL, OLDER];

/// Allowed on every processor.
const GENERAL: &[Call] = &calls![
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2
    SYS_pwritev2 SYS_close SYS_close_range SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_lseek
    SYS_mmap SYS_mprotect SYS_munmap SYS_mremap SYS_madvise SYS_mincore SYS_msync SYS_brk SYS_mlock SYS_mlock2
    SYS_munlock SYS_mlockall SYS_munlockall SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_membarrier
    SYS_get_mempolicy SYS_memfd_create
    SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait SYS_rt_sigsuspend SYS_sigaltstack
    SYS_signalfd4
    SYS_pipe2 SYS_dup SYS_dup3 SYS_flock SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_ftruncate SYS_truncate
    SYS_fallocate SYS_fadvise64 SYS_readahead SYS_copy_file_range SYS_sendfile SYS_splice SYS_tee
    SYS_openat SYS_openat2 SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getcwd SYS_chdir SYS_fchdir
    SYS_getdents64 SYS_mkdirat SYS_unlinkat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_umask
    SYS_pselect6 SYS_ppoll SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
    SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
    SYS_sched_yield SYS_sched_getaffinity SYS_sched_getparam SYS_sched_getscheduler SYS_sched_get_priority_max
    SYS_sched_get_priority_min SYS_sched_rr_get_interval SYS_getpriority
    SYS_nanosleep SYS_clock_nanosleep SYS_clock_gettime SYS_clock_getres SYS_gettimeofday SYS_times
    SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun
    SYS_timer_delete
    SYS_getpid SYS_getppid SYS_gettid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid
    SYS_getgroups SYS_getpgid SYS_getsid SYS_uname SYS_sysinfo SYS_getrusage SYS_getrandom SYS_getcpu
    SYS_capget
    SYS_futex SYS_futex_waitv SYS_set_robust_list SYS_set_tid_address SYS_rseq SYS_restart_syscall
    SYS_exit SYS_exit_group SYS_wait4 SYS_waitid
    SYS_recvfrom SYS_recvmsg SYS_recvmmsg SYS_shutdown SYS_getsockname SYS_getpeername
    SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
    SYS_renameat SYS_getrlimit SYS_setrlimit
];

/// Older forms that newer processors do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[Call] = &calls![
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_mkdir SYS_rmdir SYS_unlink
    SYS_rename SYS_link SYS_symlink
    SYS_pipe SYS_dup2 SYS_select SYS_poll SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd SYS_alarm
    SYS_pause SYS_time SYS_getpgrp SYS_arch_prctl
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[Call] = &[];

/// Allowed with some arguments, see `rules`. Listed here for their names.
const CONDITIONAL: &[Call] = &calls![
    SYS_ioctl SYS_fcntl SYS_prctl SYS_personality SYS_rt_sigaction SYS_prlimit64 SYS_sched_setaffinity
    SYS_get_robust_list SYS_setpriority SYS_kill SYS_tgkill SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo
    SYS_socketpair SYS_sendto SYS_sendmsg SYS_sendmmsg SYS_setsockopt SYS_getsockopt
];

/// These calls make threads and processes, see `rules::starting`.
#[cfg(target_arch = "x86_64")]
pub(super) const STARTING: &[Call] = &calls![SYS_clone SYS_fork SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const STARTING: &[Call] = &calls![SYS_clone];

/// These calls get `ENOSYS`, as from a kernel that is too old for them. The C library then makes threads by `clone`,
/// whose arguments a filter can look at.
pub(super) const ABSENT: &[Call] = &calls![
    SYS_clone3 SYS_memfd_secret
];

/// Refused without a line on the standard error: libraries try these calls, and go on without them.
pub(super) const QUIET: &[Call] = &calls![
    SYS_sched_setattr SYS_sched_setscheduler SYS_sched_setparam SYS_ioprio_set SYS_mbind SYS_set_mempolicy
    SYS_migrate_pages SYS_move_pages
];

/// These calls end the process: an add-on makes such a call only in an attack, and an attacker gets one try.
pub(super) const KILLED: &[&[Call]] = &[ATTACKS, OLDER_ATTACKS];

/// On every processor.
const ATTACKS: &[Call] = &calls![
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_process_madvise SYS_kcmp
    SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module SYS_delete_module SYS_bpf SYS_reboot
    SYS_swapon SYS_swapoff
    SYS_mount SYS_umount2 SYS_pivot_root SYS_move_mount SYS_open_tree SYS_fsopen SYS_fsconfig SYS_fsmount
    SYS_fspick SYS_mount_setattr SYS_setns SYS_open_by_handle_at
];

/// Older forms.
#[cfg(target_arch = "x86_64")]
const OLDER_ATTACKS: &[Call] = &calls![SYS_iopl SYS_ioperm SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_ATTACKS: &[Call] = &[];

/// Refused, and named. Calls that are on no list are refused as well, and named by their numbers.
pub(super) const REFUSED: &[&[Call]] = &[OTHERS, OLDER_OTHERS, CONDITIONAL];

/// On every processor.
const OTHERS: &[Call] = &calls![
    SYS_execveat SYS_setsid SYS_setpgid SYS_pidfd_open SYS_tkill SYS_pidfd_send_signal SYS_execve
    SYS_socket SYS_connect SYS_bind SYS_listen SYS_accept SYS_accept4
    SYS_unshare SYS_chroot SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup SYS_io_uring_enter
    SYS_io_uring_register SYS_add_key SYS_request_key SYS_keyctl
    SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop SYS_semctl SYS_semtimedop SYS_msgget
    SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive
    SYS_mq_notify SYS_mq_getsetattr
    SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat SYS_setxattr SYS_lsetxattr SYS_fsetxattr
    SYS_removexattr SYS_lremovexattr SYS_fremovexattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr
    SYS_llistxattr SYS_flistxattr SYS_mknodat
    SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_fanotify_init SYS_fanotify_mark
    SYS_name_to_handle_at
    SYS_seccomp SYS_capset SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid
    SYS_setfsuid SYS_setfsgid SYS_setgroups
    SYS_sethostname SYS_setdomainname SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex
    SYS_acct SYS_quotactl SYS_syslog SYS_vhangup SYS_lookup_dcookie
    SYS_vmsplice SYS_sync SYS_syncfs SYS_process_mrelease SYS_remap_file_pages SYS_ioprio_get
];

/// Older forms.
#[cfg(target_arch = "x86_64")]
const OLDER_OTHERS: &[Call] = &calls![
    SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat SYS_mknod SYS_inotify_init
    SYS_ustat SYS_sysfs SYS_uselib SYS__sysctl
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_OTHERS: &[Call] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_on_two_lists() {
        let lists = [ALLOWED, KILLED, &[CONDITIONAL, STARTING, ABSENT, QUIET, OTHERS, OLDER_OTHERS]];
        let mut numbers: Vec<_> = lists.into_iter().flatten().copied().flatten().collect();
        let all = numbers.len();
        numbers.sort_by_key(|call| call.1);
        numbers.dedup_by_key(|call| call.1);
        assert_eq!(numbers.len(), all);
    }
}
