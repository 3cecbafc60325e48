"""Attempts to use up memory, descriptors, threads, processes, disk and processor time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from .confined import ORDINARY, run
from .conftest import Place

MIB = 1 << 20


def test_memory(user: str) -> None:
    code = """
        held = []
        while True:
            held.append(bytearray(16 << 20))
            tell(result=len(held))"""
    done = run(code, {"memory": 512 * MIB}, user=user)
    # Its own limit is met first, which Python survives; that of the control group ends it.
    assert done.error == "MemoryError" or done.returncode == -signal.SIGKILL, done
    assert done.result <= 32


def test_memory_without_a_name(user: str) -> None:
    """Files in memory are counted by a control group only: without one each is limited, and so is their number."""
    code = """
        files = []
        while len(files) < 40:
            fd = os.memfd_create("bomb")
            for _ in range(16):
                os.write(fd, bytes(1 << 20))
            files.append(fd)
            tell(result=len(files))"""
    done = run(code, {"memory": 256 * MIB, "file_size": 16 * MIB, "open_files": 20}, user=user)
    if done.layers["cgroup_memory"][0] == "provided":
        assert done.returncode == -signal.SIGKILL, done
        assert done.result <= 16
    else:
        assert done.error == "EMFILE", done
        assert done.result < 20


def test_shared_memory(user: str) -> None:
    """Addresses are limited as well."""
    code = """
        import mmap
        held = []
        while len(held) < 100:
            held.append(mmap.mmap(-1, 1 << 30))
        result = len(held)"""
    done = run(code, {"memory": 256 * MIB}, user=user)
    assert done.error == "ENOMEM", done


def test_descriptors(user: str) -> None:
    code = """
        while True:
            result = os.dup(0)
            tell(result=result)"""
    done = run(code, {"open_files": 50}, user=user)
    done.refused(errors=("EMFILE",))
    assert done.result == 49


def test_threads(user: str) -> None:
    code = """
        import threading
        stop = threading.Event()
        threads = []
        try:
            while len(threads) < 300:
                thread = threading.Thread(target=stop.wait)
                thread.start()
                threads.append(thread)
        except RuntimeError as error:
            result = len(threads), str(error)
        stop.set()"""
    done = run(code, {"tasks": 20}, user=user)
    assert done.result == [19, "can't start new thread"], done


def test_processes(user: str) -> None:
    """Each child makes children in turn."""
    code = """
        import time
        refused = False
        for _ in range(30):
            try:
                if os.fork() == 0:
                    tell(result="made")
            except OSError:
                refused = True
                break
        if refused:
            os._exit(0)
        time.sleep(5)"""
    done = run(code, {"tasks": 10, "subprocesses": True}, user=user)
    assert done.returncode == 0, done
    assert done.error is None


def test_where_tasks_cannot_be_counted_alone(user: str) -> None:
    """Without a namespace and a control group all tasks of the user count: the limit is above what there is."""
    if user != ORDINARY:
        pytest.skip("the superuser is exempt from that limit, and has a control group")
    done = run(
        "import threading; threading.Thread(target=int).start(); result = 1",
        {"tasks": 8},
        user=user,
        lacking=["unshare"],
    )
    assert done.result == 1, done
    assert "all others of this user" in done.layers["limits"][1]


def test_a_file_has_a_length(place: Place) -> None:
    code = """
        with open(own + "/file", "wb", buffering=0) as file:
            for _ in range(10):
                file.write(bytes(1 << 20))"""
    policy = {"write": [str(place.own)], "file_size": 4 * MIB}
    done = run(code, policy, user=place.user, names=place.names)
    done.refused(errors=("EFBIG",))
    assert (place.own / "file").stat().st_size == 4 * MIB
    for more in (
        "os.truncate(own + '/file', 100 << 20)",
        "fd = os.open(own + '/file', os.O_RDWR); os.posix_fallocate(fd, 0, 100 << 20)",
    ):
        run(more, policy, user=place.user, names=place.names).refused(errors=("EFBIG",))


def test_processor_time(user: str) -> None:
    done = run("while True: pass", {"cpu_seconds": 1}, user=user)
    assert done.returncode == -signal.SIGXCPU
    assert done.violation == "it used up its processor time"


def test_processor_time_of_who_will_not_hear(user: str) -> None:
    done = run(
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", {"cpu_seconds": 1}, user=user
    )
    assert done.returncode == -signal.SIGKILL


def test_limits_are_not_raised(user: str) -> None:
    code = """
        import resource
        result = []
        for name in ("RLIMIT_NOFILE", "RLIMIT_DATA", "RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_CORE"):
            soft, hard = resource.getrlimit(getattr(resource, name))
            try:
                resource.setrlimit(getattr(resource, name), (soft, hard + 1))
            except (ValueError, OSError):
                result.append(name)"""
    assert len(run(code, user=user).result) == 5


def test_a_share_of_the_processor(user: str) -> None:
    done = run("result = 1", {"cpu_share": 0.5}, user=user)
    state, detail = done.layers["cgroup_cpu"]
    assert done.result == 1
    assert state in ("provided", "refused", "not_available"), detail
    if user == ORDINARY and os.geteuid() == 0 and state == "provided":
        pytest.fail("an ordinary user made a control group")


def test_groups_do_not_pile_up(user: str) -> None:
    first = run("result = 1", user=user).layers["cgroup_tasks"]
    if first[0] != "provided":
        pytest.skip(first[1])
    group = Path(first[1].removeprefix("limited by "))
    run("result = 1", user=user)
    assert not group.exists()


def test_the_disk_of_others_is_not_theirs_to_fill(place: Place) -> None:
    """Of all places that anybody may write to, none is open to it."""
    for directory in ("/tmp", "/var/tmp", "/dev/shm", tempfile.gettempdir()):
        run("open(directory + '/nearcall-bomb', 'w')", user=place.user, names={"directory": directory}).refused()


def test_the_host_is_alive() -> None:
    assert subprocess.run([sys.executable, "-c", "pass"], check=False).returncode == 0
