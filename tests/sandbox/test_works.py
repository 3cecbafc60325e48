"""What a confined process must still be able to do."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import nearcall
from nearcall.sandbox import violation

from .confined import ROOT, run
from .conftest import Place
from .services import Listener, Work

WORKS = {
    "imports": """
        import argparse, asyncio, bz2, collections, concurrent.futures, csv, ctypes, datetime, decimal, email
        import fractions, hashlib, http.client, io, itertools, json, locale, logging, lzma, multiprocessing, pickle
        import queue, sqlite3, ssl, statistics, struct, subprocess, tempfile, threading, typing, unittest
        import urllib.request, uuid, wave, zlib, zoneinfo, encodings.idna
        result = True""",
    "numpy": """
        import numpy as np
        a = np.random.default_rng(1).random((400, 400))
        result = bool(np.allclose(np.linalg.inv(a) @ a, np.eye(400)) and abs(np.fft.fft(a)).sum() > 0)""",
    "threads": """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(20) as pool:
            result = sum(pool.map(lambda n: n * n, range(1000))) == 332833500""",
    "asyncio": """
        import asyncio
        async def main():
            async with asyncio.timeout(10):
                await asyncio.to_thread(int)
                one, other = asyncio.Queue(), asyncio.Event()
                asyncio.get_running_loop().call_later(0.001, other.set)
                await other.wait()
                return sum(await asyncio.gather(*(asyncio.sleep(0.001, n) for n in range(100))))
        result = asyncio.run(main()) == 4950""",
    "uvloop": """
        import asyncio, uvloop
        async def main():
            await asyncio.sleep(0.001)
            return await asyncio.to_thread(lambda: 5)
        result = uvloop.run(main()) == 5""",
    "time": """
        import datetime, time, zoneinfo
        time.sleep(0.001)
        then = datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
        result = min(time.time(), time.monotonic()) > 0 and bool(time.localtime()) and bool(then)""",
    "random": """
        import random, secrets, uuid
        random.seed()
        result = len(secrets.token_bytes(16)) == 16 and bool(uuid.uuid4()) and len(os.urandom(3)) == 3""",
    "memory": """
        import mmap
        held = [bytearray(1 << 20) for _ in range(100)]
        shared = mmap.mmap(-1, 1 << 20)
        shared.write(b"x")
        del held
        result = True""",
    "callbacks of C": """
        compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
        numbers = (ctypes.c_int * 3)(3, 1, 2)
        libc.qsort(numbers, 3, 4, compare(lambda a, b: a[0] - b[0]))
        result = list(numbers) == [1, 2, 3]""",
    "signals of its own": """
        import signal
        fired = []
        signal.signal(signal.SIGALRM, lambda *_: fired.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        while not fired:
            signal.pause()
        result = True""",
    "failing in words": """
        import faulthandler, traceback
        faulthandler.enable()
        try:
            1 / 0
        except ZeroDivisionError:
            result = "ZeroDivisionError" in traceback.format_exc()""",
    "its own limits, lowered": """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        result = resource.getrlimit(resource.RLIMIT_NOFILE) == (100, 100)""",
}


@pytest.mark.parametrize("what", WORKS)
def test_works(what: str, user: str) -> None:
    if what == "asyncio" and sys.version_info < (3, 11):
        pytest.skip("asyncio.timeout is newer")
    done = run(WORKS[what], user=user)
    assert done.result is True, done
    # libuv looks for io_uring, and does without.
    assert done.violation is None or (what, done.violation) == ("uvloop", "the sandbox refused io_uring_setup")


def test_files_of_its_own(place: Place) -> None:
    code = """
        import shelve, sqlite3, tempfile
        tempfile.tempdir = own
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
        with tempfile.TemporaryDirectory() as directory:
            open(directory + "/file", "w").close()
        with sqlite3.connect(own + "/base") as base:
            base.execute("create table t (x)")
            base.execute("insert into t values (5)")
        with open(own + "/module.py", "w") as file:
            file.write("VALUE = 5")
        import sys
        sys.path.append(own)
        import module
        result = base.execute("select x from t").fetchone()[0] == module.VALUE"""
    done = run(code, {"write": [str(place.own)]}, user=place.user, names=place.names)
    assert done.result is True, done
    # SQLite gives its files to the owner of the base, if the superuser runs it, and does without.
    assert done.violation in (None, "the sandbox refused fchown")


class Ears(Listener):
    """Listens."""

    def __init__(self) -> None:
        self.heard_texts: list[str] = []

    def heard(self, text: str) -> int:
        self.heard_texts.append(text)
        return len(self.heard_texts)


def test_calls_through_shared_memory(tmp_path: Path) -> None:
    """A service in a confined process: short and long messages, arrays, streams, coroutines, callbacks."""
    said = tmp_path / "stderr"
    program = [sys.executable, "-c", "from tests.sandbox.serving import main; main()"]
    with open(said, "wb") as stderr:
        child = nearcall.spawn(program, Work, cwd=ROOT, stderr=stderr)
    with child as work:
        assert work.add(1, 2) == 3
        long = bytes(range(256)) * 40_000
        for _ in range(3):
            assert work.echo(long) == long
        array = nearcall.empty((1000, 1000), np.float64)
        array[:] = 1.5
        assert (work.double(array) == 3).all()
        assert list(work.count(1000)) == list(range(1000))
        assert work.slowly("text") == "text"
        ears = Ears()
        assert [work.tell(ears, text) for text in ("a", "b")] == [1, 2]
        with pytest.raises(nearcall.RpcError, match=r"Permission|denied"):
            work.read("/etc/passwd")
        assert work.add(1, 2) == 3
    assert child.process.returncode == 0
    # nearcall itself is refused nothing. What it says of the failed handler is the only thing said.
    assert violation(0, said.read_text()) is None
