"""Attempts to start programs and processes, and to look into others, signal and slow them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .confined import ROOTS, run, run_free
from .conftest import Place

HOST = {"host": os.getpid()}

FORKS = {
    "fork": ("os.fork()", "fork"),
    "subprocess": ("import subprocess; subprocess.run(['/bin/true'])", "popen"),
    "posix_spawn": ("os.posix_spawn('/bin/true', ['true'], {})", "posix_spawn"),
    "system": ("os.system('true')", "system"),
    "exec": ("os.execv('/bin/true', ['true'])", "exec"),
    "multiprocessing": ("import multiprocessing as m; m.get_context('fork').Process(target=int).start()", "fork"),
    "execve": ("call(N['execve'], 0, 0, 0)", "execve"),
}
# There is an error, but no line: libraries block signals while they make a process.
RAW_FORKS = {
    "clone": "call(N['clone'], 17, 0, 0, 0, 0)",
    "clone that hides bits": "call(N['clone'], (1 << 32) | 17, 0, 0, 0, 0)",
    "a process in the same memory": "call(N['clone'], 0x4111, 0, 0, 0, 0)",
    "a thread with users of its own": "call(N['clone'], 0x10000000 | 0x10f00, 0, 0, 0, 0)",
    "fork of C": "if libc.fork() == -1: raise OSError(ctypes.get_errno(), '')",
}


@pytest.mark.parametrize("attempt", FORKS)
def test_no_process_and_no_program(attempt: str, user: str) -> None:
    code, name = FORKS[attempt]
    run(code, user=user).refused(name)


@pytest.mark.parametrize("attempt", RAW_FORKS)
def test_no_process(attempt: str, user: str) -> None:
    run(RAW_FORKS[attempt], user=user).refused()


def test_a_refused_program_is_told_in_words(user: str) -> None:
    code = """
        import subprocess
        try:
            subprocess.run(["/bin/true"])
        except PermissionError as error:
            result = str(error)"""
    assert "the sandbox refuses subprocess.Popen: Policy.execute" in run(code, user=user).result


def test_processes_by_clone3(user: str) -> None:
    """As on an old kernel, so that the C library takes the call whose arguments can be looked at."""
    run("call(N['clone3'], ctypes.create_string_buffer(88), 88)", user=user).refused(errors=("ENOSYS",))


def test_a_program_from_memory(user: str) -> None:
    code = """
        fd = os.memfd_create("program", 0)
        os.write(fd, open(program, "rb").read())
        os.execve(fd, ['true'], {})"""
    policy = {"read": ["/usr/bin"]}
    done = run(code, policy, user=user, names={"program": "/usr/bin/true"})
    done.refused("exec")
    by_call = code.replace("os.execve(fd, ['true'], {})", "call(N['execveat'], fd, ctypes.c_char_p(b''), 0, 0, 0x1000)")
    run(by_call, policy, user=user, names={"program": "/usr/bin/true"}).refused("execveat")


def test_listed_programs_only(place: Place) -> None:
    for name in ("true", "id"):
        assert shutil.which(name, path="/usr/bin")
    policy = {"execute": ["/usr/bin/true"], "subprocesses": True}
    code = "import subprocess; result = subprocess.run([program]).returncode"
    done = run(code, policy, user=place.user, names={"program": "/usr/bin/true"})
    assert done.result == 0, done
    run(code, policy, user=place.user, names={"program": "/usr/bin/id"}).refused()
    run("os.execv('/usr/bin/id', ['id'])", policy, user=place.user).refused()
    # A copy of it is another program.
    copy = """
        import shutil, subprocess
        shutil.copyfile("/usr/bin/true", own + "/true")
        subprocess.run([own + "/true"])"""
    run(copy, {**policy, "write": [str(place.own)], "read": ["/usr/bin"]}, user=place.user, names=place.names).refused()


def test_a_started_program_is_confined_as_well(place: Place) -> None:
    policy = {"execute": ["/usr/bin/cat"], "subprocesses": True}
    code = """
        import subprocess
        result = subprocess.run(["/usr/bin/cat", secret], capture_output=True).returncode"""
    assert run(code, policy, user=place.user, names=place.names).result == 1
    assert run_free(code, user=place.user, names=place.names).result == 0


def test_a_program_with_special_rights_has_none(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only the superuser can make such a program")
    if place.user == ROOTS:
        pytest.skip("an ordinary user would gain something")
    program = place.outside / "id"
    shutil.copyfile("/usr/bin/id", program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    code = """
        import subprocess
        result = subprocess.run([outside + "/id", "-u"], capture_output=True, text=True).stdout.strip()"""
    assert run_free(code, user=place.user, names=place.names).result == "0"
    policy = {"execute": [str(place.outside)], "subprocesses": True}
    assert run(code, policy, user=place.user, names=place.names).result != "0"


KILLED = {
    "ptrace": "call(N['ptrace'], 16, host, 0, 0)",
    "process_vm_readv": "call(N['process_vm_readv'], host, 0, 0, 0, 0, 0)",
    "process_vm_writev": "call(N['process_vm_writev'], host, 0, 0, 0, 0, 0)",
    "pidfd_getfd": "call(N['pidfd_getfd'], 0, 0, 0)",
    "kcmp": "call(N['kcmp'], host, os.getpid(), 0, 0, 0)",
    "process_madvise": "call(N['process_madvise'], 0, 0, 0, 0, 0)",
}


@pytest.mark.parametrize("name", KILLED)
def test_looking_into_others(name: str, user: str) -> None:
    run(KILLED[name], user=user, names=HOST).killed(name)


SIGNALS = {
    "kill": ("os.kill(host, 0)", "kill"),
    "kill all": ("os.kill(-1, 0)", "kill"),
    "kill the group": ("os.kill(0, 0)", "kill"),
    "tgkill": ("call(N['tgkill'], host, host, 0)", "tgkill"),
    "tkill": ("call(N['tkill'], host, 0)", "tkill"),
    "queue": ("call(N['rt_sigqueueinfo'], host, 0, ctypes.create_string_buffer(128))", "rt_sigqueueinfo"),
    "by descriptor": ("call(N['pidfd_send_signal'], 0, 0, 0, 0)", "pidfd_send_signal"),
    "descriptor": ("os.pidfd_open(host)", "pidfd_open"),
    "by a socket": (
        "import fcntl, socket; one, other = socket.socketpair(); fcntl.fcntl(one, fcntl.F_SETOWN, host)",
        "fcntl",
    ),
}


@pytest.mark.parametrize("attempt", SIGNALS)
def test_signals_to_others(attempt: str, user: str) -> None:
    code, name = SIGNALS[attempt]
    run(code, user=user, names=HOST).refused(name)


def test_signals_stay_inside_where_processes_may_be_made(user: str) -> None:
    """Then it is Landlock that decides."""
    policy = {"subprocesses": True}
    run("os.kill(host, 0)", policy, user=user, names=HOST).refused(errors=("EPERM", "ESRCH"))
    code = """
        import signal
        child = os.fork()
        if child == 0:
            signal.pause()
        os.kill(child, signal.SIGKILL)
        result = os.waitpid(child, 0)[1]"""
    assert run(code, policy, user=user).result == signal.SIGKILL


def test_signals_if_the_policy_allows_them(user: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        same = user == ROOTS or os.geteuid() != 0
        done = run("os.kill(other, 0)", {"signals": True}, user=user, names={"other": other.pid})
        assert done.error == (None if same else "EPERM")


def test_signals_to_itself(user: str) -> None:
    code = """
        import signal, threading
        signal.signal(signal.SIGUSR1, lambda *_: None)
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        result = True"""
    assert run(code, user=user).result is True


SLOWING = {
    "limits": ("import resource; resource.prlimit(host, resource.RLIMIT_NOFILE, (0, 0))", "prlimit64"),
    "limits that are looked at": ("import resource; resource.prlimit(host, resource.RLIMIT_NOFILE)", "prlimit64"),
    "priority": ("os.setpriority(os.PRIO_PROCESS, host, 19)", "setpriority"),
    "priority of all": ("os.setpriority(os.PRIO_USER, 0, 19)", "setpriority"),
    "processors": ("os.sched_setaffinity(host, {0})", "sched_setaffinity"),
}


@pytest.mark.parametrize("attempt", SLOWING)
def test_slowing_others(attempt: str, user: str) -> None:
    code, name = SLOWING[attempt]
    run(code, user=user, names=HOST).refused(name)
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


def test_the_group_stays_its_own(user: str) -> None:
    """Whoever stops the group of processes also stops this one."""
    run("os.setsid()", user=user).refused("setsid")
    run("os.setpgid(0, 0)", user=user).refused("setpgid")


def test_this_host_is_unharmed(place: Place) -> None:
    assert Path(f"/proc/{os.getpid()}").exists()
    assert os.sched_getaffinity(0)
