"""How soon a new process can call: the import of nearcall alone, and everything up to the first reply."""

from __future__ import annotations

import os
import subprocess
import sys

IMPORT = """
import time
begun = time.perf_counter_ns()
import nearcall
print(time.perf_counter_ns() - begun)
"""
FIRST_REPLY = """
import os, time
begun = time.perf_counter_ns()
import nearcall

@nearcall.service
class Echo:
    def echo(self, data: bytes) -> bytes:
        return data

url = f"shm://nearcall-lab-{os.getpid()}"
with nearcall.Server(Echo(), url), nearcall.connect(url, Echo) as client:
    client.echo(b"")
    print(time.perf_counter_ns() - begun)
"""
"""The package imports its names when they are asked for, so that the import alone says little."""


def in_new_process(code: str) -> int:
    """The nanoseconds that a program prints, which do not include the interpreter's own start."""
    # With cached byte code, as for every import except the first one after an installation: compiling is not part of
    # importing.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return int(subprocess.run(command, capture_output=True, timeout=60, check=True, env=environment).stdout)
