"""System calls that change the system, evade limits, or reach parts of the kernel that nobody needs here."""

from __future__ import annotations

import os
import platform
import pty
import signal

import pytest

from .confined import outcome, run, start

x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of another processor")

KILLED = ["mount", "umount2", "pivot_root", "open_tree", "fsopen", "move_mount", "setns", "kexec_load", "init_module",
          "finit_module", "bpf", "reboot", "swapon"]  # fmt: skip
REFUSED = ["chroot", "unshare", "perf_event_open", "userfaultfd", "io_uring_setup", "add_key", "request_key", "keyctl",
           "shmget", "semget", "msgget", "mq_open", "fanotify_init", "seccomp", "personality", "sethostname", "syslog",
           "acct", "quotactl", "setuid", "capset"]  # fmt: skip


@pytest.mark.parametrize("name", KILLED)
def test_attacks_end_the_process(name: str, user: str) -> None:
    run(f"call(N['{name}'], 0, 0, 0, 0, 0)", user=user).killed(name)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, user: str) -> None:
    run(f"call(N['{name}'], 0, 0, 0, 0, 0)", user=user).refused(name)


def test_namespaces_by_clone(user: str) -> None:
    """Also where processes may be made."""
    for flag in (
        0x00008000,
        0x00002000,
        0x00020000,
        0x02000000,
        0x04000000,
        0x08000000,
        0x10000000,
        0x20000000,
        0x40000000,
    ):
        code = f"call(N['clone'], {flag} | 17, 0, 0, 0, 0)"
        run(code, {"subprocesses": True}, user=user).refused()
    run("call(N['unshare'], 0x10000000)", {"subprocesses": True}, user=user).refused("unshare")


def test_unknown_calls_are_missing(user: str) -> None:
    done = run("call(999)", user=user)
    done.refused("system call 999", errors=("ENOSYS",))


PRCTLS = {"parent's death": 1, "dumpable": 4, "capabilities": 24, "seccomp": 22, "memory": 35, "tracer": 0x59616D61,
          "speculation": 53, "ambient": 47, "subreaper": 36, "keep capabilities": 8, "secure bits": 28}  # fmt: skip


@pytest.mark.parametrize("option", PRCTLS)
def test_prctl_that_weakens(option: str, user: str) -> None:
    code = f"""
        if libc.prctl({PRCTLS[option]}, 1, 0, 0, 0) == -1:
            raise OSError(ctypes.get_errno(), "")"""
    run(code, user=user).refused("prctl")


def test_typing_into_the_terminal(user: str) -> None:
    """The terminal of the host is open in the process: what it types there, the host's shell would read."""
    ours, theirs = pty.openpty()
    try:
        for number in (0x5412, 0x541C, 0x540E, 0x5423):
            code = f"import fcntl; fcntl.ioctl(0, {number}, b'x')"
            done = outcome(start(code, {}, user=user, stdin=theirs))
            done.refused("ioctl")
        assert outcome(start("result = os.isatty(0)", {}, user=user, stdin=theirs)).result is True
    finally:
        os.close(ours)
        os.close(theirs)


def test_ioctl_that_hides_bits(user: str) -> None:
    ours, theirs = pty.openpty()
    try:
        code = "call(N['ioctl'], 0, (1 << 32) | 0x5412, ctypes.c_char_p(b'x'))"
        number = {"x86_64": 16, "aarch64": 29}[platform.machine()]
        outcome(start(code, {}, user=user, stdin=theirs, names={"N": {"ioctl": number}})).refused("ioctl")
    finally:
        os.close(ours)
        os.close(theirs)


@x86_64
def test_calls_of_32_bits(user: str) -> None:
    """Their numbers mean other calls: here 5, which is open."""
    done = run("result = run_machine_code(bytes.fromhex('b805000000 bb00000000 cd80 c3'))", user=user)
    done.killed(None)
    assert done.violation == "the sandbox ended it for a system call for another kind of processor"


@x86_64
def test_calls_of_x32(user: str) -> None:
    run("call(0x40000000 + 101, 0, 0, 0, 0)", user=user).refused("system call 1073741925", errors=("ENOSYS",))


@x86_64
def test_calls_by_machine_code(user: str) -> None:
    """The filter does not care where a call comes from: here ptrace, and chroot."""
    run("run_machine_code(bytes.fromhex('b865000000 0f05 c3'))", user=user).killed("ptrace")
    done = run("result = run_machine_code(bytes.fromhex('b8a1000000 31ff 0f05 c3'))", user=user)
    assert done.result == -1
    assert "refused chroot\n" in done.stderr


def test_the_handler_stays(user: str) -> None:
    """A process may not silence what names its attempts, and gains nothing if it blocks the signal."""
    run("import signal; signal.signal(signal.SIGSYS, signal.SIG_IGN)", user=user).refused("rt_sigaction")
    code = """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGSYS})
        os.chroot("/")"""
    done = run(code, user=user)
    assert done.returncode == -signal.SIGSYS
    assert done.violation is not None


def test_a_signal_that_pretends(user: str) -> None:
    """Sent by the process itself, it changes nothing."""
    code = "import signal; signal.raise_signal(signal.SIGSYS); result = 5"
    done = run(code, user=user)
    assert done.result == 5
    assert done.stderr == ""


def test_each_call_is_named_once(user: str) -> None:
    code = """
        for _ in range(1000):
            try:
                os.chroot("/")
            except PermissionError:
                result = "refused"
            libc.sync()"""
    done = run(code, user=user)
    assert done.result == "refused"
    assert done.stderr.count("\n") == 2, done


def test_refusals_in_threads(user: str) -> None:
    code = """
        import threading
        errors = []
        def attempt():
            try:
                os.chroot("/")
            except OSError as error:
                errors.append(error.errno)
        threads = [threading.Thread(target=attempt) for _ in range(20)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        result = errors"""
    assert run(code, user=user).result == [1] * 20


def test_no_rights(user: str) -> None:
    code = """
        head, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert libc.capget(head, sets) == 0
        result = list(sets), libc.prctl(39, 0, 0, 0, 0), [libc.prctl(23, n, 0, 0, 0) for n in range(3)]"""
    assert run(code, user=user).result == [[0] * 6, 1, [0] * 3]
