"""Server processes for the replicas."""

from __future__ import annotations

import multiprocessing
import selectors
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_START_LIMIT_S = 15.0
_START = multiprocessing.get_context("spawn")


@contextmanager
def server_process(serve: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """Runs ``serve(*arguments, ready)`` in a process of its own and yields what it passed to ``ready``.

    Raises `RuntimeError` if the server ends, or does not call ``ready`` for 15 seconds.
    """
    ours, theirs = _START.Pipe(duplex=False)
    process = _START.Process(target=_run, args=(serve, arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(_START_LIMIT_S):
            raise RuntimeError(f"{serve.__name__} was not ready within {_START_LIMIT_S:.0f} s")
        try:
            address = ours.recv()
        except EOFError as error:
            raise RuntimeError(f"{serve.__name__} ended before it was ready") from error
        yield address
    finally:
        process.terminate()
        process.join(2)
        if process.is_alive():
            process.kill()
            process.join()
        ours.close()


def _run(serve: Callable[..., None], arguments: tuple[Any, ...], pipe: Any) -> None:
    serve(*arguments, pipe.send)


@contextmanager
def foreign_server(python: Path, module: str, *arguments: str) -> Iterator[str]:
    """The same with another environment's Python: yields the first line that ``python -m module`` prints.

    It has to end when its standard input is closed. Raises `RuntimeError` as `server_process` does.
    """
    command = [str(python), "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(_START_LIMIT_S):
                raise RuntimeError(f"{module} was not ready within {_START_LIMIT_S:.0f} s")
        address = process.stdout.readline().decode().strip()
        if not address:
            last = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"{module} ended before it was ready: {last[-1] if last else 'no message'}")
        yield address
    finally:
        try:
            process.communicate(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
