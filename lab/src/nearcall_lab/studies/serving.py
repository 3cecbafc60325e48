"""Server processes for the replicas."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_START_LIMIT_S = 15.0
_START = multiprocessing.get_context("spawn")


@contextmanager
def server_process(serve: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """Runs ``serve(*arguments, ready)`` in a process of its own and yields what it passed to ``ready``.

    Raises `RuntimeError` if the server ends or says nothing for 15 seconds.
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
