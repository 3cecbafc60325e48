"""An honest client in a process of its own, whose program is :func:`main`, with arguments ``URL TOKEN``.

From ``begin`` to ``rest`` it calls about a thousand times a second, and measures each call. What it is asked for, it
answers with a line of JSON: ``begin`` forgets what was measured before, ``report LATER`` tells it, ``newcomer`` lets
another client connect and call.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import nearcall

from ..e2e.warm import WarmProcess
from .services import SECRET, TOKEN, served_at

PACE = 0.001
"""Seconds between two calls."""
LONGEST = 20.0
"""Seconds that one call may take: more than any test waits."""
DATA = SECRET[:15]
SECRETS = [SECRET * (1 << n) for n in range(6)]
_PR_SET_PDEATHSIG = 1


@dataclass
class Record:
    """What was measured since the last ``begin``."""

    took: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    since: float | None = None
    """When the call under way was begun."""

    def told(self, later: int = 0) -> dict[str, Any]:
        """All that is asked of it; ``but_for`` is the longest call but for so many that were longer still."""
        took = sorted(self.took)
        # The one that is under way may be the longest of all.
        since = self.since
        waiting = 0.0 if since is None else time.monotonic() - since

        def at(part: float) -> float:
            return took[int(part * (len(took) - 1))] if took else waiting

        return {
            "calls": len(took),
            "p50": at(0.5),
            "p99": at(0.99),
            "later_than_p99": max(0, len(took) - 1 - int(0.99 * (len(took) - 1))),
            "longest": max(at(1.0), waiting),
            "but_for": took[-1 - later] if later < len(took) else 0.0,
            "failures": len(self.failures),
            "first_failures": self.failures[:3],
        }


def _connect(url: str, with_token: bool, timeout: float) -> Any:
    interceptors = [nearcall.auth.token(TOKEN)] if with_token else []
    return nearcall.connect(url, served_at(url), timeout=timeout, handshake_timeout=timeout, interceptors=interceptors)


class Honest:
    """The client."""

    def __init__(self, url: str, with_token: bool) -> None:
        self._url, self._with_token = url, with_token
        self._service = _connect(url, with_token, LONGEST).service
        self.record = Record()
        self.may_call = threading.Event()
        threading.Thread(target=self._call, daemon=True).start()

    def _call(self) -> None:
        number = 0
        while True:
            # Between two attacks it would only take the processor's time from others.
            self.may_call.wait()
            number += 1
            # What it says now and then must stay between it and the server.
            data = DATA if number % 16 else SECRETS[number // 16 % len(SECRETS)]
            record = self.record
            record.since = begun = time.monotonic()
            try:
                if self._service.echo(data) != data:
                    record.failures.append("a wrong answer")
            except Exception as error:
                record.failures.append(f"{type(error).__name__}: {error}"[:300])
            record.since = None
            record.took.append(time.monotonic() - begun)
            time.sleep(PACE)

    def newcomer(self) -> dict[str, Any]:
        begun = time.monotonic()
        try:
            with _connect(self._url, self._with_token, 5.0) as target:
                assert target.echo(DATA) == DATA
        except Exception as error:
            return {"failure": f"{type(error).__name__}: {error}"[:300], "took": time.monotonic() - begun}
        return {"failure": None, "took": time.monotonic() - begun}


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    honest = Honest(sys.argv[1], sys.argv[2] == "True")
    print("{}", flush=True)
    for line in sys.stdin:
        answer: dict[str, Any] = {}
        if line == "begin\n":
            honest.record = Record()
            honest.may_call.set()
        elif line == "rest\n":
            honest.may_call.clear()
        elif line.startswith("report "):
            answer = honest.record.told(int(line.split()[1]))
        else:
            answer = honest.newcomer()
        print(json.dumps(answer), flush=True)
    os._exit(0)  # whatever its calls do


class HonestProcess:
    """The honest client, as a test sees it."""

    def __init__(self, url: str, with_token: bool) -> None:
        program = "from tests.hostile.honest import main; main()"
        self._process = WarmProcess(program, url, str(with_token), text=False)
        self._read(20.0)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            raise TimeoutError(f"the honest client says nothing for {seconds:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the honest client ended with {self._process.wait(10)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, what: str, seconds: float = 10.0) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n".encode())
        self._process.stdin.flush()
        return self._read(seconds)

    def begin(self) -> None:
        self._ask("begin")

    def rest(self) -> None:
        self._ask("rest")

    def report(self, later: int = 0) -> dict[str, Any]:
        return self._ask(f"report {later}")

    def newcomer(self) -> dict[str, Any]:
        return self._ask("newcomer")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
