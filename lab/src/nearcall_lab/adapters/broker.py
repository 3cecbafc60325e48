"""A nats-server of a launch's own, for what goes by way of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from nearcall_lab.adapters.ports import free_port
from nearcall_lab.contract import Spec, Stop

_SERVER = "nats-server"
_PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
"""Where it may be: systems keep services where a user's PATH does not lead."""
_LARGEST = 64 << 20
"""Bytes of a message: what its documentation calls the most."""
_PATIENCE_S = 10.0


def absent() -> str:
    """Why none can run here, and what to do; empty where one can."""
    return "" if shutil.which(_SERVER, path=_PLACES) else f"{_SERVER} is not installed: make nats-server"


@contextlib.contextmanager
def nats_server(spec: Spec, stop: Stop) -> Iterator[str]:
    """Runs one where the server of a launch has to listen, and yields its URL. It ends at the request to stop: what
    waits for somebody to say goodbye must not keep it.

    Raises `FileNotFoundError` where there is none, and `TimeoutError` if it does not accept connections.
    """
    program = shutil.which(_SERVER, path=_PLACES)
    if program is None:
        raise FileNotFoundError(absent())
    host, port = spec.host, free_port(spec.host)
    settings = Path(spec.directory) / "nats.conf"
    settings.write_text(f"max_payload: {_LARGEST}\nmax_pending: {4 * _LARGEST}\n", encoding="utf-8")
    broker = subprocess.Popen(
        [program, "--addr", host, "--port", str(port), "--config", settings],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stop.on(broker.terminate)
    try:
        _wait_for(host, port)
        yield f"nats://{host}:{port}"
    finally:
        broker.terminate()
        broker.wait()


def _wait_for(host: str, port: int) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            socket.create_connection((host, port), _PATIENCE_S).close()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise TimeoutError(f"{_SERVER} did not accept connections within {_PATIENCE_S:g} s") from None
            time.sleep(0.005)
        else:
            return
