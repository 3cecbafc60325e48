"""``python -m nearcall_lab.hosts.agent``: runs on another machine and holds the server of one launch for the lab.

It gets requests on its standard input and answers on its standard output, in the lines of `workers.protocol`. It ends
the server and all that belongs to it when its input ends, or when the lab has been silent for longer than the lease:
a connection that breaks somewhere on its way ends nothing here by itself.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import socket
import sys
import threading
import time
from types import FrameType
from typing import Any

import msgspec

from nearcall_lab.engine.meter import Meter
from nearcall_lab.engine.usage import traces_of_connections
from nearcall_lab.environment import capture
from nearcall_lab.hosts.round_trips import answer_round_trips, listener
from nearcall_lab.placement import choose
from nearcall_lab.registry import Entrant, entrants_of
from nearcall_lab.workers.crew import Crew
from nearcall_lab.workers.protocol import Channel, PeerGone, Timeout
from nearcall_lab.workers.worker import LaunchFailed, Unsupported

_LOOK_S = 0.25
_LOG_CHARACTERS = 100_000


class Agent:
    """Carries out the lab's requests, each a method."""

    def __init__(self, channel: Channel, lease: Lease) -> None:
        self._channel = channel
        self._lease = lease
        self._crew: Crew
        self._meter: Meter
        self._clock: socket.socket
        self._token = b""

    def run(self) -> None:
        """Until the lab says "stop", or is gone."""
        request = self._next()
        self._lease.seconds = float(request["lease_s"])
        crew = self._prepared(request)
        try:
            with crew:
                self._crew, self._meter = crew, Meter(crew)
                self._started(request)
                self._serve()
        except LaunchFailed as failure:
            self._tell_failure(failure)
            return
        self._channel.send({"stopped": True, "left_behind": crew.left_behind})

    def _prepared(self, request: dict[str, Any]) -> Crew:
        entrant = _entrant(request["module"], request["mechanism"])
        return Crew(
            entrant,
            choose(request["placement"]),
            clients=0,
            max_message=request["max_message"],
            keep_logs=True,
            host=request["host"],
        )

    def _started(self, request: dict[str, Any]) -> None:
        self._clock, self._token = listener(request["host"]), secrets.token_bytes(32)
        self._channel.send(
            {
                "ready": self._crew.address,
                "secret": self._crew.secret,
                "clock_port": self._clock.getsockname()[1],
                "clock_token": self._token.hex(),
                "placement": _described(self._crew),
                "environment": msgspec.to_builtins(capture()),
            }
        )

    def _serve(self) -> None:
        told = False
        while True:
            try:
                request = self._next(_LOOK_S)
            except Timeout:
                if not told:
                    told = self._look_at_server()
                continue
            if request["do"] == "stop":
                return
            try:
                answer, blob = getattr(self, f"_do_{request['do']}")(request)
            except LaunchFailed as failure:
                kind = "unsupported" if isinstance(failure, Unsupported) else "error"
                answer, blob = {kind: str(failure)}, b""
            self._channel.send(answer, blob)

    def _next(self, seconds: float | None = None) -> dict[str, Any]:
        """The next request. Raises `Timeout` after `seconds`. Every message renews the lease."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            request, _ = self._channel.receive(None if until is None else max(0.0, until - time.monotonic()))
            self._lease.renew()
            if request["do"] != "beat":
                return request

    def _look_at_server(self) -> bool:
        """Tell the lab at once if the server has ended."""
        try:
            assert self._crew.server is not None
            self._crew.server.must_live()
        except LaunchFailed as failure:
            self._channel.send({"gone": str(failure)})
            return True
        return False

    def _tell_failure(self, failure: LaunchFailed) -> None:
        kind = "unsupported" if isinstance(failure, Unsupported) else "error"
        log = ""
        if failure.logs is not None:
            for path in failure.logs.glob("*.log"):
                log += path.read_text(errors="replace")[-_LOG_CHARACTERS:]
            shutil.rmtree(failure.logs, ignore_errors=True)
        self._channel.send({kind: str(failure)}, log.encode())

    def _do_ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        assert self._crew.server is not None
        return self._crew.server.ask(request["message"], request["timeout"])

    def _do_traces(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        assert self._crew.server is not None
        return {"traces": traces_of_connections(self._crew.server.process.pid)}, b""

    def _do_begin(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        self._meter.begin()
        return {"began": True}, b""

    def _do_conclude(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        return {"used": msgspec.to_builtins(self._meter.conclude([]))}, b""

    def _do_log(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        assert self._crew.server is not None
        return {"log": True}, self._crew.server.log.read_bytes()[-_LOG_CHARACTERS:]

    def _do_clock(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        answer_round_trips(self._clock, self._token, request["rounds"])
        return {"answered": True}, b""


class Lease:
    """Ends this process by a signal when the lab is gone or silent, whatever it waits for then."""

    def __init__(self, descriptor: int) -> None:
        self.seconds = 60.0
        self._descriptor = descriptor
        self._renewed = time.monotonic()
        threading.Thread(target=self._watch, name="lease", daemon=True).start()

    def renew(self) -> None:
        """The lab was heard."""
        self._renewed = time.monotonic()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLRDHUP | select.POLLHUP)
        while not poll.poll(_LOOK_S * 1000):
            if time.monotonic() - self._renewed > self.seconds:
                break
        os.kill(os.getpid(), signal.SIGTERM)


def _entrant(module: str, name: str) -> Entrant:
    """The mechanism of that name. Raises `LaunchFailed`."""
    try:
        found = {entrant.mechanism.name: entrant for entrant in entrants_of(module)}
    except Exception as error:
        raise LaunchFailed(f"the adapter does not load there: {type(error).__name__}: {error}") from None
    if found[name].problem:
        raise LaunchFailed(f"{name} there: {found[name].problem}")
    return found[name]


def _described(crew: Crew) -> str:
    placement = crew.placement
    return (
        f"server pinned to CPU {placement.server[0]}" if placement.mode in ("apart", "same") else placement.describe()
    )


def _interrupted(number: int, frame: FrameType | None) -> None:
    for kind in (signal.SIGTERM, signal.SIGHUP):  # what is being ended must not be interrupted again
        signal.signal(kind, signal.SIG_IGN)
    raise PeerGone("ended by a signal")


def main() -> None:
    """Entry point of the process."""
    for kind in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, _interrupted)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever an adapter prints must not be taken for an answer.
    lab = os.dup(0)
    channel = Channel(lab, os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    with contextlib.suppress(PeerGone):
        try:
            Agent(channel, Lease(lab)).run()
        except LaunchFailed as failure:
            channel.send({"error": str(failure)})
    sys.stdout.flush()


if __name__ == "__main__":
    main()
