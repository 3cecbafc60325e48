"""The server of one launch on another machine, as the lab sees it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from nearcall_lab.hosts import ship
from nearcall_lab.hosts.clock import ClockJumped, Comparison, Reading
from nearcall_lab.hosts.connection import LEASE_S, Connection, Session
from nearcall_lab.hosts.problem import HostFailed, Step
from nearcall_lab.hosts.round_trips import ROUNDS, NoClock, ask
from nearcall_lab.registry import Entrant
from nearcall_lab.workers.crew import Crew
from nearcall_lab.workers.protocol import PeerGone, Timeout
from nearcall_lab.workers.worker import START_TIMEOUT_S, LaunchFailed, Part, Unsupported

_LOOK_S = 0.25
_GRACE_S = 15.0
"""Beyond a step's own limit: for the way there and back, and a connection that is slow for a while."""
_START_S = 30.0
"""An interpreter and its imports, on a machine that has not read them before."""
_END_S = 10.0


class Server:
    """See `workers.crew.FarServer`. Raises `LaunchFailed`, or its subclass `HostFailed`."""

    def __init__(self, connection: Connection, session: Session, entrant: Entrant, crew: Crew) -> None:
        self.role = "server"
        self.host = connection.address
        self.environment: dict[str, Any] = {}
        self._connection = connection
        self._gone = ""
        self._clock: Reading | None = None
        self._no_clock = ""
        self.comparison: Comparison | None = None
        self._session = session
        side = entrant.sides[1] if entrant.sides else entrant
        request = {
            "do": "start",
            "lease_s": LEASE_S,
            "module": ship.module_there(side, connection.source),
            "mechanism": side.mechanism.name,
            "placement": crew.placement.mode,
            "max_message": crew.max_message,
            "host": self.host,
        }
        self._keep_log = crew.keep_log
        started, _ = self._exchange(request, START_TIMEOUT_S + _START_S, "start")
        self.address, self.secret = str(started["ready"]), int(started["secret"])
        self.placement = str(started["placement"])
        self.environment = started["environment"]
        self._clock_at = (self.host, int(started["clock_port"])), bytes.fromhex(started["clock_token"])

    def ask(
        self, message: dict[str, Any] | None, timeout: float, beside: Sequence[Part] = ()
    ) -> tuple[dict[str, Any], bytes]:
        """A request to the server's process, and its answer."""
        return self._exchange({"do": "ask", "message": message, "timeout": timeout}, timeout, "measure", beside)

    def must_live(self, note: str = "") -> None:
        """Raise if the server's process has ended, or the connection is gone."""
        self._listen(0.0)
        if self._gone:
            raise LaunchFailed(f"{self._gone}{note}")

    def gone_within(self, seconds: float) -> None:
        """Wait that long at most for the process to end; the news of it need some time to come."""
        self._listen(seconds + 2 * _LOOK_S)

    def traces(self) -> int:
        """What a connection adds to the server's process."""
        return int(self._exchange({"do": "traces"}, _GRACE_S, "measure")[0]["traces"])

    def begin(self) -> None:
        """The timed part begins."""
        self._clock = self._read_clock()
        self._exchange({"do": "begin"}, _GRACE_S, "measure")

    def conclude(self) -> dict[str, Any]:
        """It is over."""
        used: dict[str, Any] = self._exchange({"do": "conclude"}, _GRACE_S, "measure")[0]["used"]
        before, after = self._clock, self._read_clock()
        if before is not None and after is not None:
            try:
                self.comparison = Comparison(before, after)
            except ClockJumped as error:
                raise HostFailed(self._connection.host, "compare clocks", str(error), "the launch is void") from None
            record = self.comparison.record()
            used["clock"] = {name: getattr(record, name) for name in record.__struct_fields__}
        return used

    def log(self) -> bytes:
        """What the server's process has written so far."""
        try:
            return self._exchange({"do": "log"}, 0.0, "measure")[1]
        except LaunchFailed:
            return b""

    def here_ns(self, stamps_ns: Any) -> Any:
        """Stamps of its clock as this machine's."""
        if self.comparison is None:
            todo = "one-way messages need it; calls do not"
            raise HostFailed(self._connection.host, "compare clocks", self._no_clock or "not compared", todo)
        return self.comparison.here(stamps_ns)

    def end(self, ask_first: bool) -> list[str]:
        """End the server there and wait for it. Returns what had to be ended by force, or was left."""
        left: list[str] = []
        try:
            if ask_first:
                answer, _ = self._exchange({"do": "stop"}, _END_S, "measure")
                left = [f"{name} at {self._connection.host}" for name in answer["left_behind"]]
        except LaunchFailed as failure:
            left = [f"unknown: {failure}"]
        self._connection.end(self._session)
        return left

    def _read_clock(self) -> Reading | None:
        self._tell({"do": "clock", "rounds": ROUNDS}, "compare clocks")
        try:
            reading = ask(*self._clock_at)
        except NoClock as error:
            self._no_clock, reading = str(error), None
        self._answer(_GRACE_S, "compare clocks")
        return reading

    def _tell(self, request: dict[str, Any], step: Step) -> None:
        try:
            self._session.tell(request)
        except PeerGone:
            raise self._session.broken(step) from None

    def _exchange(
        self, request: dict[str, Any], timeout: float, step: Step, beside: Sequence[Part] = ()
    ) -> tuple[dict[str, Any], bytes]:
        self._tell(request, step)
        return self._answer(timeout + _GRACE_S, step, beside)

    def _answer(self, timeout: float, step: Step, beside: Sequence[Part] = ()) -> tuple[dict[str, Any], bytes]:
        until = time.monotonic() + timeout
        while True:
            try:
                answer, blob = self._session.channel.receive(min(_LOOK_S, max(0.0, until - time.monotonic())))
            except PeerGone:
                raise self._session.broken(step) from None
            except ValueError as error:
                raise HostFailed(self._connection.host, step, f"its answer cannot be read: {error}") from None
            except Timeout:
                for other in beside:
                    other.must_live()
                if time.monotonic() >= until:
                    what = f"no answer within {timeout:.0f} s"
                    raise HostFailed(self._connection.host, step, what, "is that machine overloaded?") from None
                continue
            if "gone" in answer:
                self._gone = str(answer["gone"])
                raise LaunchFailed(self._gone)
            if "unsupported" in answer:
                raise Unsupported(str(answer["unsupported"]))
            if "error" in answer:
                if blob:
                    self._keep_log("server", blob)
                raise LaunchFailed(f"{answer['error']} (at {self._connection.host})")
            return answer, blob

    def _listen(self, seconds: float) -> None:
        """Whether something came that nobody asked for."""
        try:
            message, _ = self._session.channel.receive(seconds)
            self._gone = self._gone or str(message.get("gone", ""))
        except Timeout:
            pass
        except (PeerGone, ValueError):
            self._gone = self._gone or str(self._session.broken("measure"))
