"""One client used by many threads in every way at once, while its server is attacked: nothing hangs or is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ..e2e.process import ROOT
from .frames import CANCEL, PING, credit, encode, frame
from .hammer import HUNG
from .raw import Gone
from .target import ALL, SECONDS, Scene, Server

USUAL = 1.0
"""Seconds of the short form."""
DEADLINE = 5.0 if SECONDS else 30.0
"""Seconds for each call. The short form runs beside other tests, where a thread may have a tenth of a CPU."""
LIMIT = (SECONDS or USUAL) + (HUNG + 1) * DEADLINE + 20
"""Seconds after which the hammer itself hangs, which would say so if one of its threads did."""


def harass(scene: Scene, over: threading.Event) -> None:
    """Peers that come, do not read, say what is malformed, and go."""
    while not over.is_set():
        with contextlib.suppress(Gone, TimeoutError, OSError):
            idle = scene.connect()
            idle.send(scene.call(idle, "blocks", encode([50_000])), credit((1 << 63) - (1 << 21)), seconds=0.1)
            idle.flood([frame(PING, bytes(1000), call=9)], 0.1, most=1 << 20)
            busy = scene.connect()
            for call in range(20):
                busy.send(scene.call(busy, "count", encode([1000]), call=call), frame(CANCEL, call=call), seconds=0.1)
            broken = scene.connect()
            broken.send(frame(99, b"malformed"), seconds=0.1)
        over.wait(0.1)
        scene.close()
        scene.opened.clear()


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.parametrize("transport", ALL)
def test_a_client_used_in_every_way_beside_attackers(
    transport: str, servers: Callable[[str, dict[str, Any]], Server]
) -> None:
    server = servers(transport, {})
    scene = Scene(server, transport)
    server.honest.begin()
    over = threading.Event()
    attackers = [threading.Thread(target=harass, args=(Scene(server, transport), over)) for _ in range(2)]
    for attacker in attackers:
        attacker.start()
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.hostile.hammer"]
    command += [scene.url, str(SECONDS or USUAL), str(DEADLINE)]
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as stacks:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stacks, text=True) as hammer:
            try:
                said, _ = hammer.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                server.broken = True
                where = server.stacks()
                hammer.kill()
                pytest.fail(f"over {transport} the hammer hangs altogether; the server: {where}")
            finally:
                over.set()
                for attacker in attackers:
                    attacker.join(20)
        stacks.seek(0)
        if hammer.returncode != 0:
            server.broken = True
            where = server.stacks()
            pytest.fail(f"over {transport}: {said} {stacks.read()[-6000:]}; the server: {where}")
    done = json.loads(said)["done"]
    report = server.honest.report()
    server.honest.rest()
    assert report["failures"] == 0, report
    assert {"echo", "counts", "leaves_a_stream", "mirrors", "pings", "looks", "replaces"} <= set(done), done
    assert time.monotonic() - begun < LIMIT
    assert os.path.exists(f"/proc/{server.pid}")
