"""Clients for hostile servers; the program is :func:`main`.

It reads orders as lines of JSON and answers each with a line. Each client is a fork of this process, which has
everything imported and no threads, so that a hundred of them take seconds. What a client does is a function here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import numpy as np

import nearcall

from ..e2e.warm import WarmProcess
from .services import served_at

_PR_SET_PDEATHSIG = 1
DEADLINE = 0.25
"""Seconds that each call has."""
HANDSHAKE = 0.25
MANY = 50
"""How often one client connects, where that is all it does."""
CHILD = "child://"
"""A URL that begins so leads to a child at whose standard input there is what listens at the path behind it."""
STARTED = 2.0
"""Seconds that a child has until it must serve."""
RELAY = """
import os, socket, sys, threading
there = socket.socket(socket.AF_UNIX)
there.connect(sys.argv[1])
here = socket.socket(fileno=0)
def pump(origin, to):
    try:
        while data := origin.recv(1 << 16):
            to.sendall(data)
    except OSError:
        pass
    os._exit(0)
threading.Thread(target=pump, args=(here, there)).start()
pump(there, here)
"""
LATEST = 15.0
"""Seconds after which a client is taken to hang."""


class Diary:
    """What a client went through."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str, float]] = []
        """What was tried, how it ended, and the seconds it took."""
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def trying(self, what: str) -> Iterator[None]:
        begun, how = time.monotonic(), "ok"
        try:
            yield
        except nearcall.RpcError as error:
            how = f"RpcError {type(error).__name__}: {str(error)[:600]}"
        except StopIteration:
            how = "ok, the end"
        except Exception as error:
            how = f"{type(error).__name__}: {str(error)[:600]}"
        with self._lock:
            self.outcomes.append((what, how, time.monotonic() - begun))


class Ticker(threading.Thread):
    """How long other threads of the process had to wait for the interpreter."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0

    def run(self) -> None:
        while True:
            begun = time.monotonic()
            time.sleep(0.001)
            self.longest = max(self.longest, time.monotonic() - begun - 0.001)


def _connect(url: str, cls: type | None, handshake: float = HANDSHAKE) -> Any:
    if url.startswith(CHILD):
        return nearcall.spawn(_child(url), cls, timeout=DEADLINE, handshake_timeout=STARTED, grace=0.1)
    return nearcall.connect(url, cls, timeout=DEADLINE, handshake_timeout=handshake)


def _connect_in_loop(url: str) -> Any:
    cls = served_at(url)
    if url.startswith(CHILD):
        return nearcall.aio.spawn(_child(url), cls, timeout=DEADLINE, handshake_timeout=STARTED, grace=0.1)
    return nearcall.aio.connect(url, cls, timeout=DEADLINE, handshake_timeout=HANDSHAKE)


def _child(url: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", RELAY, url.removeprefix(CHILD)]


def _connected(url: str, diary: Diary, handshake: float = HANDSHAKE) -> Any:
    with diary.trying("connect"):
        return _connect(url, served_at(url), handshake)
    return None


def _closed(client: Any, diary: Diary) -> None:
    with diary.trying("look"):
        assert isinstance(client.closed, bool)
        assert repr(client)
    with diary.trying("close"):
        client.close()


def connects(url: str, diary: Diary) -> None:
    client = _connected(url, diary)
    if client is not None:
        _closed(client, diary)


def connects_dynamically(url: str, diary: Diary) -> None:
    client: Any = None
    with diary.trying("connect"):
        client = _connect(url, None)
    if client is not None:
        with diary.trying("describe"):
            assert repr(client.service)
            dir(client.service)
            assert isinstance(client.description, dict)
        _closed(client, diary)


def connects_many_times(url: str, diary: Diary) -> None:
    for _ in range(MANY):
        connects(url, diary)
        connects_dynamically(url, diary)


def connects_in_a_loop(url: str, diary: Diary) -> None:
    async def main() -> None:
        with diary.trying("connect"):
            async with _connect_in_loop(url) as target:
                with diary.trying("call"):
                    await target.echo(b"x")

    asyncio.run(main())


def uses(url: str, diary: Diary) -> None:
    """One call of each kind, in turn."""
    client = _connected(url, diary)
    if client is None:
        return
    target = client.service
    with diary.trying("call"):
        target.echo(b"x")
    with diary.trying("call of 1 MB"):
        target.length(memoryview(bytes(1 << 20)))
    with diary.trying("array"):
        target.array(np.zeros(3))
    with diary.trying("values"):
        target.many([1, "x"])
    with diary.trying("anything"):
        target.anything({"x": 1})
    with diary.trying("stream"):
        list(zip(target.count(3), range(5), strict=False))
    with diary.trying("upload"):
        target.total(iter([b"x"] * 5))
    with diary.trying("both"):
        for _ in zip(target.mirrored(iter([b"x"] * 5)), range(5), strict=False):
            pass
    with diary.trying("one-way"):
        target.note(b"x")
    with diary.trying("ping"):
        client.ping(DEADLINE)
    _closed(client, diary)


def uses_in_threads(url: str, diary: Diary) -> None:
    """Four threads call; another looks. A handshake may take much longer than a call."""
    client = _connected(url, diary, handshake=16 * HANDSHAKE)
    if client is None:
        return
    target = client.service

    def call() -> None:
        for _ in range(3):
            with diary.trying("call in a thread"):
                target.echo(b"x")

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with diary.trying("look"):
            assert isinstance(client.closed, bool)
            assert repr(client)
        time.sleep(0.01)
    _closed(client, diary)


def uses_in_a_loop(url: str, diary: Diary) -> None:
    async def main() -> None:
        with diary.trying("connect"):
            async with _connect_in_loop(url) as target:
                for _ in range(2):
                    with diary.trying("call in a task"):
                        await target.echo(b"x")
                with diary.trying("stream in a task"):
                    async for _ in target.count(3):
                        pass

    asyncio.run(main())


def sends_much(url: str, diary: Diary) -> None:
    client = _connected(url, diary)
    if client is None:
        return
    for _ in range(3):
        with diary.trying("call of 8 MB"):
            client.service.echo(bytes(8 << 20))
        with diary.trying("one-way call of 8 MB"):
            client.service.note(bytes(8 << 20))
    with diary.trying("upload"):
        client.service.total(bytes(1 << 20) for _ in range(50))
    _closed(client, diary)


def uploads_much(url: str, diary: Diary) -> None:
    client = _connected(url, diary)
    if client is None:
        return
    with diary.trying("upload"):
        client.service.total(bytes(1 << 20) for _ in range(50))
    _closed(client, diary)


def reads_slowly(url: str, diary: Diary) -> None:
    """Takes one item of a stream, and then none for a while."""
    client = _connected(url, diary)
    if client is None:
        return
    with diary.trying("stream"), nearcall.timeout(3.0):
        stream = client.service.blocks(1)
        next(stream)
        time.sleep(1.5)
        stream.close()
    _closed(client, diary)


def reads_all(url: str, diary: Diary) -> None:
    """Takes the items of a stream for as long as there are any."""
    client = _connected(url, diary)
    if client is None:
        return
    with diary.trying("items"):
        for _ in client.service.blocks(1):
            pass
    _closed(client, diary)


def reads_all_in_a_loop(url: str, diary: Diary) -> None:
    async def main() -> None:
        with diary.trying("connect"):
            async with _connect_in_loop(url) as target:
                with diary.trying("items in a task"):
                    async for _ in target.blocks(1):
                        pass

    asyncio.run(main())


def reads_in_a_loop_beside_others(url: str, diary: Diary) -> None:
    """A task whose call has no deadline worth the name; another one gives it up."""

    async def main() -> None:
        with diary.trying("connect"):
            async with _connect_in_loop(url) as target:

                async def read() -> None:
                    with nearcall.timeout(2 * LATEST):
                        async for _ in target.blocks(1):
                            pass

                with diary.trying("items in a task"), contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(read(), DEADLINE)

    asyncio.run(main())


SCRIPTS: dict[str, Callable[[str, Diary], None]] = {
    one.__name__: one
    for one in (
        connects,
        connects_dynamically,
        connects_many_times,
        connects_in_a_loop,
        uses,
        uses_in_threads,
        uses_in_a_loop,
        sends_much,
        uploads_much,
        reads_slowly,
        reads_all,
        reads_all_in_a_loop,
        reads_in_a_loop_beside_others,
    )
}


def _resident(what: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(what))


def _be(order: dict[str, Any], out: int, stacks: int) -> None:
    faulthandler.enable(file=stacks, all_threads=True)
    ticker = Ticker()
    ticker.start()
    diary = Diary()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = _resident("VmRSS")
    SCRIPTS[order["script"]](order["url"], diary)
    gc.collect()
    told = {"outcomes": diary.outcomes, "pause": ticker.longest, "grown": _resident("VmHWM") - before}
    os.write(out, json.dumps(told).encode() + b"\n")


def _run(order: dict[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as stacks:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                os.close(reader)
                _be(order, writer, stacks.fileno())
                status = 0
            except BaseException as error:
                print(f"a victim failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        os.close(writer)
        told, end = b"", time.monotonic() + LATEST
        while not told.endswith(b"\n"):
            if not select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
                break
            more = os.read(reader, 1 << 16)
            if not more:
                break
            told += more
        os.close(reader)
        answer: dict[str, Any] = {}
        if told.endswith(b"\n"):
            answer = json.loads(told)
        elif time.monotonic() >= end:
            # Says where each of its threads is, and ends.
            answer["hung"] = True
            os.kill(child, signal.SIGABRT)
        answer["status"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        stacks.seek(0)
        answer["stacks"] = stacks.read().decode(errors="replace")[-6000:]
    return answer


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    print(flush=True)
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)


class Victims:
    """The process that makes clients, as a test sees it; use it in a ``with`` statement."""

    def __init__(self) -> None:
        self._process = WarmProcess("from tests.hostile.victim import main; main()")
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def run(self, script: str, url: str) -> dict[str, Any]:
        """What a client went through."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"script": script, "url": url}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the maker of victims ended with {self._process.wait(10)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Victims:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._process.communicate("", timeout=20)
        finally:
            self._process.kill()
            self._process.wait(10)
