"""The server process: runs one adapter's `serve` until the lab sends "stop" or has ended."""

from __future__ import annotations

import os
import threading
import traceback

from nearcall_lab.contract import Stop
from nearcall_lab.failure import explain
from nearcall_lab.workers.boot import boot
from nearcall_lab.workers.duties import Duties
from nearcall_lab.workers.protocol import Channel, PeerGone

_GRACE_S = 1.0
"""Seconds within which `serve` has to return after the request to stop."""


def _control(channel: Channel, duties: Duties, stop: Stop, finished: threading.Event) -> None:
    """Answer the lab's questions. Blocks in a read between them, so it never competes for the interpreter lock."""
    try:
        while True:
            request, _ = channel.receive()
            if request["do"] == "stop":
                break
            answer = duties.answer(request)
            channel.send(*answer) if answer else channel.send({"error": f"unknown request {request['do']!r}"})
    except PeerGone:
        pass
    stop.set()
    clean = finished.wait(_GRACE_S)
    os._exit(0 if clean else 4)


def main() -> None:
    """Entry point of the process."""
    start = boot()
    duties = Duties()
    spec = start.spec(duties=duties)
    stop = Stop()
    finished = threading.Event()

    def ready(address: str) -> None:
        start.channel.send({"ready": address})
        threading.Thread(
            target=_control, args=(start.channel, duties, stop, finished), name="lab-control", daemon=True
        ).start()

    try:
        start.adapter.serve(spec, ready, stop)
    except BaseException as error:
        traceback.print_exc()
        if not stop.is_set():
            start.channel.send({"error": explain(error)})
            os._exit(1)
    finally:
        finished.set()
    stop.wait()
    threading.Event().wait(_GRACE_S)  # the control thread ends the process
