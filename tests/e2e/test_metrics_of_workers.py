"""The page of Prometheus while workers leave, die, and are replaced: what was counted never becomes less."""

from __future__ import annotations

import os
import re
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nearcall

from .ports import own_port
from .test_reload import serving
from .test_workers import PATIENCE, until
from .workers_program import is_alive

CODE = """
import os, time
import nearcall

@nearcall.service
class Versioned:
    def pid(self) -> int:
        return os.getpid()

    def hold(self, begun: str, go_on: str) -> None:
        open(begun, "w").close()
        while not os.path.exists(go_on):
            time.sleep(0.005)

metrics = nearcall.observe.prometheus()

def lifespan(server):
    with nearcall.observe.prometheus_page(server, "ADDRESS"):
        yield
"""
LOOKS = 40
"""Each over a connection of its own, which any worker may get that listens."""


class Page:
    def __init__(self) -> None:
        self.address = f"127.0.0.1:{own_port()}"

    def read(self) -> str:
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=PATIENCE) as page:
                    text: str = page.read().decode()
                    return text
            except urllib.error.HTTPError:
                raise
            except (ConnectionError, urllib.error.URLError):
                threading.Event().wait(0.002)  # a worker that leaves has closed its socket just now, or nobody listens

    def sum(self, name: str) -> float:
        return sum(float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", self.read(), re.MULTILINE))

    def begun(self) -> float:
        return self.sum("nearcall_server_started_total")

    def ended(self) -> float:
        return self.sum("nearcall_server_handled_total")

    def workers(self) -> set[str]:
        """Those that answer: their gauges are there."""
        return set(re.findall(r'^process_start_time_seconds{worker="(\d+)"}', self.read(), re.MULTILINE))


def one_each(url: str, stack: ExitStack) -> dict[int, Any]:
    """A client at each of two workers, by their pids: they are handed out in turn."""
    clients: list[Any] = [stack.enter_context(nearcall.connect(url)) for _ in range(2)]
    found = {client.pid(): client for client in clients}
    assert len(found) == 2
    return found


def arguments(url: str) -> list[str]:
    return [url, "--workers", "2", "--grace", str(PATIENCE), "--interceptor", "versioned:metrics"]


def always(looked: Callable[[], float], expected: float) -> None:
    assert [looked() for _ in range(LOOKS)] == [expected] * LOOKS


def test_while_workers_finish_their_calls_and_their_successors_serve(tmp_path: Path, key: str) -> None:
    page, url = Page(), f"shm://{key}"
    held, go_on = tmp_path / "held", tmp_path / "go-on"
    with (
        serving(tmp_path, *arguments(url), code=CODE.replace("ADDRESS", page.address)) as command,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as stack,
    ):
        stack.callback(go_on.touch)
        old = one_each(url, stack)
        for client in old.values():
            for _ in range(5):
                client.pid()
        pid, client = next(iter(old.items()))
        holding = pool.submit(client.hold, str(held), str(go_on))
        until(held.exists, "the call")
        always(page.begun, 13)
        for turn in range(2):
            command.reload()
            replaced = turn + 1
            until(lambda: command.log.read_text().count("all workers are replaced") == replaced, "it")  # noqa: B023
            assert is_alive(pid)
            always(page.begun, 13 + 2 * turn)
            one_each(url, stack)
            always(page.begun, 13 + 2 * turn + 2)
        until(lambda: page.workers() == {"0", "1"}, "the gauges")
        assert page.ended() == page.begun() - 1
        go_on.touch()
        holding.result(PATIENCE)
        until(lambda: not is_alive(pid), "its end")
        until(lambda: page.ended() == 17, "what it has counted at last")
        always(page.begun, 17)


def test_when_a_worker_dies(tmp_path: Path, key: str) -> None:
    page, url = Page(), f"shm://{key}"
    with (
        serving(tmp_path, *arguments(url), code=CODE.replace("ADDRESS", page.address)) as command,
        ExitStack() as stack,
    ):
        pids = one_each(url, stack)
        always(page.begun, 2)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        until(lambda: command.log.read_text().count("ended by SIGKILL") == 2, "their ends")
        # Nobody may listen for a moment, and then those that are there know of the dead.
        always(page.begun, 2)
        until(lambda: page.workers() == {"0", "1"}, "the new ones")
        one_each(url, stack)
        always(page.begun, 4)
