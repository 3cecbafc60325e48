"""Numbers of system calls that Python has no name for, on this processor."""

from __future__ import annotations

import platform

_X86_64 = {
    # fmt: off
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_open": 434, "pidfd_getfd": 438,
    "pidfd_send_signal": 424, "kexec_load": 246, "init_module": 175, "finit_module": 313, "bpf": 321,
    "reboot": 169, "mount": 165, "umount2": 166, "pivot_root": 155, "open_tree": 428, "fsopen": 430,
    "move_mount": 429, "setns": 308, "unshare": 272, "chroot": 161, "open_by_handle_at": 304,
    "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425, "add_key": 248, "request_key": 249,
    "keyctl": 250, "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "inotify_init1": 294,
    "fanotify_init": 300, "name_to_handle_at": 303, "seccomp": 317, "personality": 135, "tkill": 200,
    "tgkill": 234, "kill": 62, "rt_sigqueueinfo": 129, "execve": 59, "execveat": 322, "clone": 56,
    "clone3": 435, "memfd_create": 319, "getpid": 39, "prlimit64": 302, "setpriority": 141,
    "sched_setaffinity": 203, "openat2": 437, "landlock_create_ruleset": 444, "fchmodat": 268, "mknodat": 259,
    "swapon": 167, "kcmp": 312, "sethostname": 170, "syslog": 103, "acct": 163, "quotactl": 179,
    "process_madvise": 440, "memfd_secret": 447, "setuid": 105, "capset": 126, "futex": 202, "socket": 41,
    "sendto": 44, "connect": 42, "listen": 50, "fork": 57, "vfork": 58, "iopl": 172, "modify_ldt": 154,
    # fmt: on
}

_AARCH64 = {
    # fmt: off
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "pidfd_open": 434, "pidfd_getfd": 438,
    "pidfd_send_signal": 424, "kexec_load": 104, "init_module": 105, "finit_module": 273, "bpf": 280,
    "reboot": 142, "mount": 40, "umount2": 39, "pivot_root": 41, "open_tree": 428, "fsopen": 430,
    "move_mount": 429, "setns": 268, "unshare": 97, "chroot": 51, "open_by_handle_at": 265,
    "perf_event_open": 241, "userfaultfd": 282, "io_uring_setup": 425, "add_key": 217, "request_key": 218,
    "keyctl": 219, "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180, "inotify_init1": 26,
    "fanotify_init": 262, "name_to_handle_at": 264, "seccomp": 277, "personality": 92, "tkill": 130,
    "tgkill": 131, "kill": 129, "rt_sigqueueinfo": 138, "execve": 221, "execveat": 281, "clone": 220,
    "memfd_create": 279, "getpid": 172, "prlimit64": 261, "setpriority": 140, "sched_setaffinity": 122,
    "openat2": 437, "landlock_create_ruleset": 444, "fchmodat": 53, "mknodat": 33, "swapon": 224, "kcmp": 272, "clone3": 435,
    "sethostname": 161, "syslog": 116, "acct": 89, "quotactl": 60, "process_madvise": 440, "memfd_secret": 447,
    "setuid": 146, "capset": 91, "futex": 98, "socket": 198, "sendto": 206, "connect": 203, "listen": 201,
    # fmt: on
}

NUMBERS: dict[str, int] = {"x86_64": _X86_64, "aarch64": _AARCH64}[platform.machine()]
