"""What a process was started with: variables and descriptors of its host."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from .confined import outcome, run, start

SECRET = "do-not-tell-anybody"
ENVIRONMENT = {"TOKEN": SECRET, "PATH": "/usr/bin", "LANG": "C.UTF-8", "EMPTY": ""}


def test_only_kept_variables_are_left(user: str) -> None:
    code = """
        libc.getenv.restype = ctypes.c_char_p
        import posix
        names = sorted({*os.environ, *map(os.fsdecode, posix.environ)})
        result = names, libc.getenv(b"TOKEN"), os.environ["PATH"], libc.getenv(b"PATH").decode()"""
    done = run(code, {"environment": ["PATH", "LANG"]}, user=user, env=ENVIRONMENT)
    names, token, by_python, by_c = done.result
    # The interpreter itself may add LC_CTYPE.
    assert set(names) - {"LC_CTYPE"} == {"LANG", "PATH"}
    assert (token, by_python, by_c) == (None, "/usr/bin", "/usr/bin")


def test_what_they_said_is_overwritten(user: str) -> None:
    """Also where the kernel put it when the program was started."""
    code = "tell(result='ready'); input()"
    process = start(code, {"environment": ["LANG"]}, user=user, env=ENVIRONMENT, stdin=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line:
                break
        shown = Path(f"/proc/{process.pid}/environ").read_bytes()
        process.communicate("\n")
    assert SECRET.encode() not in shown
    assert b"LANG=C.UTF-8" in shown


def test_descriptors_of_the_host(user: str) -> None:
    memory = os.memfd_create("host", 0)
    os.write(memory, b"host")
    ours, theirs = socket.socketpair()
    directory = os.open("/", os.O_RDONLY)
    inherited = [memory, theirs.fileno(), directory]
    code = """
        result = []
        for fd in fds:
            try:
                os.fstat(fd)
                result.append(fd)
            except OSError:
                pass"""
    try:
        done = run(code, user=user, names={"fds": inherited}, pass_fds=inherited)
        assert done.result == [], done
        kept = run(code, {"descriptors": [1, 2, memory]}, user=user, names={"fds": inherited}, pass_fds=inherited)
        assert kept.result == [memory], kept
    finally:
        for fd in (memory, directory):
            os.close(fd)
        ours.close()
        theirs.close()


def test_all_descriptors_below_a_thousand(user: str) -> None:
    code = """
        result = []
        for fd in range(1000):
            try:
                os.fstat(fd)
                result.append(fd)
            except OSError:
                pass"""
    assert run(code, {"descriptors": [1, 2], "open_files": None}, user=user).result == [1, 2]


def test_a_directory_that_is_kept_opens_nothing(user: str) -> None:
    directory = os.open("/", os.O_RDONLY)
    try:
        code = "os.open('etc/passwd', os.O_RDONLY, dir_fd=fd)"
        policy = {"descriptors": [1, 2, directory]}
        outcome(start(code, policy, user=user, names={"fd": directory}, pass_fds=[directory])).refused()
    finally:
        os.close(directory)
