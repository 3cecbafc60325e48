"""However a program ends, it ends: no hang, no abort, and nothing left at the peer."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from ..e2e.process import ROOT, ServerProcess
from .observing import Holdings, comes_back_to

# The end of the interpreter is drawn out, so that daemon threads come back from where they were in the middle of it.
PRELUDE = """
import sys, threading, time
import nearcall
from collections.abc import Iterator
from tests.survival.services import SMALL, Laborious, Target

class DrawnOut:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)

drawn_out = DrawnOut()
url = sys.argv[1]

def daemon(run):
    threading.Thread(target=run, daemon=True).start()

def numbers():
    while True:
        time.sleep(0.05)
        yield 1

def forever(call):
    while True:
        call()
"""

PROGRAMS = {
    "nothing": "",
    "calls": """
target = nearcall.connect(url, Target)
for _ in range(3):
    daemon(lambda: forever(lambda: target.echo(SMALL)))
""",
    "calls that convert": """
target = nearcall.connect(url, Target)
for _ in range(3):
    daemon(lambda: forever(lambda: target.convert({"a": [1, 2], "b": list(range(50))})))
""",
    "a conversion": """
target = nearcall.connect(url, Target)
Laborious.lasts = 0.2
daemon(lambda: forever(lambda: target.laborious(1)))
""",
    "a conversion of an item": """
target = nearcall.connect(url, Target)
Laborious.lasts = 0.2
daemon(lambda: list(target.laborious_items()))
""",
    "a conversion in an event loop": """
import asyncio
async def main():
    target = await nearcall.aio.connect(url, Target)
    Laborious.lasts = 0.2
    while True:
        await target.laborious(1)
daemon(lambda: asyncio.run(main()))
""",
    "a stream from the server": """
target = nearcall.connect(url, Target)
daemon(lambda: sum(target.endless("exit")))
""",
    "a slow stream to the server": """
target = nearcall.connect(url, Target)
daemon(lambda: target.total(numbers()))
""",
    "streams both ways": """
target = nearcall.connect(url, Target)
daemon(lambda: sum(target.doubled(numbers())))
""",
    "an interceptor": """
def slow(call, proceed):
    time.sleep(0.05)
    return proceed(call)
target = nearcall.connect(url, Target, interceptors=[slow])
for _ in range(3):
    daemon(lambda: forever(lambda: target.echo(SMALL)))
""",
    "a client that waits for a server": """
target = nearcall.connect(url, Target)
daemon(lambda: forever(lambda: nearcall.connect("shm://nobody-is-here", Target, wait_for_ready=True)))
""",
    "an asyncio client in a thread": """
import asyncio
async def main():
    target = await nearcall.aio.connect(url, Target)
    while True:
        await target.echo(SMALL)
daemon(lambda: asyncio.run(main()))
""",
}

HANDLERS = """
@nearcall.service
class Sleepy:
    def nap(self) -> int:
        time.sleep(0.3)
        return 1

    async def nap_in_loop(self) -> int:
        time.sleep(0.3)
        return 1

    def items(self) -> Iterator[int]:
        time.sleep(0.3)
        yield 1

    def total(self, numbers: Iterator[int]) -> int:
        return sum(number for number in numbers if not time.sleep(0.05))

    @nearcall.oneway
    def log(self) -> None:
        time.sleep(0.3)

def quietly(call):
    try:
        call()
    except nearcall.RpcError:
        pass

scheme = url.partition("://")[0]
mine = {"shm": url + "-mine", "unix": url + "-mine", "tcp": "tcp://127.0.0.1:0"}[scheme]
server = nearcall.Server(Sleepy(), mine).start()
client = nearcall.connect(server.urls[0], Sleepy).service
daemon(lambda: quietly(client.nap))
daemon(lambda: quietly(client.nap_in_loop))
daemon(lambda: quietly(lambda: list(client.items())))
daemon(lambda: quietly(lambda: client.total(numbers())))
client.log()
"""


def run(code: str, url: str) -> None:
    program = PRELUDE + code + "\ntime.sleep(0.1)\nprint('over', flush=True)\n"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", program, url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("over\n", "", 0)


@pytest.mark.parametrize("transport", ["shm"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_daemon_threads_in_the_middle_of(name: str, server: ServerProcess) -> None:
    before = Holdings.of(server.pid)
    run(PROGRAMS[name], server.url)
    comes_back_to(server.pid, before)


@pytest.mark.slow
def test_handlers_that_are_still_running(server: ServerProcess) -> None:
    run(HANDLERS, server.url)


INTERRUPTED = {
    "a call": "target.nap(3)",
    "a stream": "sum(target.endless('interrupted'))",
    "a stream to the server": "target.total(iter(lambda: 1, 2))",
    "connecting": "nearcall.connect('shm://nobody-is-here', Target, wait_for_ready=True, handshake_timeout=30)",
    "asyncio": "asyncio.run(nap())",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERRUPTED)
def test_ctrl_c_during(name: str, server: ServerProcess) -> None:
    code = f"""
import asyncio, sys
import nearcall
from tests.survival.services import Target
async def nap():
    # asyncio itself does not tidy up when it is interrupted before it runs something.
    print("ready", flush=True)
    async with nearcall.aio.connect(sys.argv[1], Target) as target:
        await target.nap(3)
target = nearcall.connect(sys.argv[1], Target)
target.pid()
try:
    {"" if name == "asyncio" else 'print("ready", flush=True)'}
    {INTERRUPTED[name]}
except KeyboardInterrupt:
    print(target.pid(), flush=True)
"""
    command = [sys.executable, "-X", "faulthandler", "-W", "error", "-c", code, server.url]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (out, err, process.returncode) == (f"{server.pid}\n", "", 0)
