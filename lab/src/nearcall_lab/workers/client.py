"""The client process: connects, makes timed calls, verifies every reply, returns raw nanoseconds; cell by cell."""

from __future__ import annotations

import importlib
import threading
import traceback
from typing import Any

import msgspec
import numpy as np

from nearcall_lab.contract import Stop
from nearcall_lab.failure import explain
from nearcall_lab.load.canary import canary_ns
from nearcall_lab.load.client import CallFailed, Load, Unsupported
from nearcall_lab.scenario.cell import Cell
from nearcall_lab.workers.boot import Boot, boot
from nearcall_lab.workers.duties import Duties, usage
from nearcall_lab.workers.protocol import PeerGone

_SERVER_START_S = 10.0


class Client:
    """Carries out the lab's requests, each a method."""

    def __init__(self, start: Boot) -> None:
        self._start = start
        self._channel = start.channel
        self._duties = Duties()
        self._load: Load | None = None
        self._here = ""
        """Address of the server in this process."""
        self._requests = self._failed = 0
        """Totals of the cells before this one: the server's counts include them."""

    def run(self) -> None:
        """Answer until the lab sends "stop" or closes the channel."""
        self._channel.send({"loaded": True})
        while True:
            try:
                request, _ = self._channel.receive()
            except PeerGone:
                return
            try:
                if self._answer(request):
                    return
            except PeerGone:
                return
            except Unsupported as reason:
                self._channel.send({"unsupported": str(reason)})
            except CallFailed as failure:
                self._channel.send({"error": str(failure)})
            except Exception as error:
                traceback.print_exc()
                try:
                    self._channel.send({"error": explain(error)})
                except PeerGone:
                    return

    def _answer(self, request: dict[str, Any]) -> bool:
        """True after the last one."""
        if request["do"] == "stop":
            self._close()
            self._channel.send({"stopped": True})
            return True
        if request["do"] == "arrived" and self._load is not None:
            self._load.idle(0.0)  # lets a server in this process's event loop receive
        known = self._duties.answer(request)
        self._channel.send(*(known or getattr(self, f"_do_{request['do']}")(request)))
        return False

    def _close(self) -> None:
        """Close the connections of the last cell."""
        if self._load is not None:
            self._load.close()
            self._requests += self._load.requests
            self._failed += self._load.failed
            self._load = None

    def _do_prepare(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        self._close()
        cell = msgspec.convert(request["cell"], Cell)
        address = request["address"]
        if cell.same_process and not self._start.mechanism.same_process:
            address = self._here = self._here or self._serve_here()
        spec = self._start.spec(address, self._duties)
        self._load = Load(cell, self._start.adapter, spec, request["process"])
        first = self._load.open()
        warmed_up = self._load.warm_up()
        self._load.tidy()
        return {
            "first_call_ns": first,
            "warmup_calls": self._load.warmup_calls,
            "warmed_up": warmed_up,
            "slots": len(self._load.slots),
        }, b""

    def _serve_here(self) -> str:
        """Start the adapter's server in a thread of this process, which ends with it."""
        address: list[str] = []
        started = threading.Event()

        def ready(where: str) -> None:
            address.append(where)
            started.set()

        def serve() -> None:
            try:
                self._start.adapter.serve(self._start.spec(duties=self._duties), ready, Stop())
            except Exception:
                traceback.print_exc()

        threading.Thread(target=serve, name="server", daemon=True).start()
        if not started.wait(_SERVER_START_S):
            raise CallFailed(f"the server in the client's process was not ready after {_SERVER_START_S:.0f} s")
        return address[0]

    def _do_canary(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        return {"ns": canary_ns()}, b""

    def _do_go(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        assert self._load is not None, "go before prepare"
        before = usage()
        self._load.timed(request["begin_ns"])
        after = usage()
        used = {name: after[name] - before[name] for name in before}
        return {"used": used, "waiting_s": self._load.waiting_ns() / 1e9}, b""

    def _do_results(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        assert self._load is not None, "results before prepare"
        outcome = self._load.outcome()
        answer = {
            "columns": list(outcome.columns),
            "rows": len(outcome.columns["done"]),
            "errors": dict(outcome.errors),
            "first_error": outcome.first_error,
            "due": outcome.due,
            "sent": outcome.sent,
            "dropped": outcome.dropped,
            "bursts": outcome.bursts,
            "requests": self._requests + self._load.requests,
            "failed": self._failed + self._load.failed,
            "secrets": sorted(outcome.secrets),
        }
        return answer, np.concatenate(list(outcome.columns.values())).astype("<i8").tobytes()

    def _do_idle(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        assert self._load is not None, "idle before prepare"
        self._load.idle(request["seconds"])
        return {"idle": True}, b""

    def _do_extra(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        assert self._load is not None, "extra before prepare"
        self._load.extra(request["step"])
        return {"extra": request["step"]}, b""

    # For the runtime's bench

    def _do_probe(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Run a function named ``module:function`` as ``function(spec, **arguments)``; its result must be JSON."""
        module, _, name = request["target"].partition(":")
        spec = self._start.spec(request["address"], self._duties)
        return {"result": getattr(importlib.import_module(module), name)(spec, **request["arguments"])}, b""


def main() -> None:
    """Entry point of the process."""
    Client(boot()).run()
