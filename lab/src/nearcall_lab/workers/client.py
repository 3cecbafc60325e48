"""The client process: connects, makes timed calls, verifies every reply, returns raw samples."""

from __future__ import annotations

import gc
import importlib
import resource
import time
import traceback
from array import array
from collections.abc import Callable
from typing import Any, cast

from nearcall_lab.contract import Session, Spec
from nearcall_lab.workers.boot import boot, explain
from nearcall_lab.workers.protocol import Channel, PeerGone
from nearcall_lab.workloads import BY_KEY, Workload, arguments, describe_mismatch, verifier


class WrongReply(Exception):
    """A reply whose length or content is not what the call must return."""


def ping_pong(
    call: Callable[[Any], Any], workload: Workload, seconds: float, max_calls: int, min_calls: int
) -> tuple[array[int], float]:
    """Closed loop, one call outstanding, for about `seconds`.

    Each sample is the time in nanoseconds between two readings of the monotonic clock around the call and nothing
    else. The reply is verified after the second reading; a wrong one raises `WrongReply`.
    Returns the samples and the loop's length in seconds.
    """
    clock = time.perf_counter_ns
    values = arguments(workload)
    count = len(values)
    verify = verifier(workload)
    samples = array("q", bytes(8 * max_calls))
    done = 0
    begin = clock()
    end = begin + int(seconds * 1e9)
    while done < max_calls:
        value = values[done % count]
        started = clock()
        reply = call(value)
        finished = clock()
        if not verify(value, reply):
            raise WrongReply(describe_mismatch(value, reply))
        samples[done] = finished - started
        done += 1
        if finished >= end and done >= min_calls:
            break
    return samples[:done], (clock() - begin) / 1e9


def _measure(session: Session, spec: Spec, request: dict[str, Any], channel: Channel) -> None:
    workload = BY_KEY[request["workload"]]
    call = session.call(workload.operation)
    before = spec.served.calls
    warm, _ = ping_pong(call, workload, request["warm_s"], request["max_calls"], request["min_calls"])
    gc.collect()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    samples, wall = ping_pong(call, workload, request["seconds"], request["max_calls"], request["min_calls"])
    after = resource.getrusage(resource.RUSAGE_SELF)
    channel.send(
        {
            "calls": len(warm) + len(samples),
            "served": spec.served.calls - before,
            "first_ns": warm[0],
            "wall_s": wall,
            "cpu_s": after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime,
            "involuntary": after.ru_nivcsw - usage.ru_nivcsw,
        },
        samples.tobytes(),
    )


def _probe(spec: Spec, request: dict[str, Any]) -> Any:
    """Run a function named ``module:function`` as ``function(spec, **arguments)``; its result must be JSON."""
    module, _, name = request["target"].partition(":")
    return getattr(importlib.import_module(module), name)(spec, **request["arguments"])


def main() -> None:
    """Entry point of the process."""
    start = boot()
    channel = start.channel
    channel.send({"loaded": True})
    session: Session | None = None
    spec = start.spec()
    while True:
        try:
            request, _ = channel.receive()
        except PeerGone:
            return
        try:
            if request["do"] == "connect":
                spec = start.spec(request["address"])
                begin = time.perf_counter_ns()
                session = cast(Session, start.adapter.connect(spec))
                session.open()
                channel.send({"connected_ns": time.perf_counter_ns() - begin})
            elif request["do"] == "measure":
                assert session is not None, "measure before connect"
                _measure(session, spec, request, channel)
            elif request["do"] == "probe":
                spec = start.spec(request["address"])
                channel.send({"result": _probe(spec, request)})
            elif request["do"] == "stop":
                if session is not None:
                    session.close()
                channel.send({"stopped": True})
                return
        except Exception as error:
            traceback.print_exc()
            try:
                channel.send({"error": explain(error)})
            except PeerGone:
                return


if __name__ == "__main__":
    main()
