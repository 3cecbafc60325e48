"""What several servers of one service do: say who they are, and fail as often as they are told."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import nearcall


@nearcall.service
class Fleet:
    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def pid(self) -> int:
        return os.getpid()

    @nearcall.idempotent
    def number(self) -> int:
        return 0

    def pids(self, times: int) -> Iterator[int]:
        for _ in range(times):
            yield os.getpid()

    @nearcall.oneway
    def note(self, key: str) -> None:
        self._seen[key] += 1

    def seen(self, key: str) -> int:
        return self._seen[key]

    @nearcall.idempotent
    def flaky(self, key: str, failures: int, pushback: str) -> str:
        """Fails so often, and then returns what the client says of how often that was."""
        return self._try(key, failures, pushback)

    def fragile(self, key: str, failures: int) -> str:
        """The same, and not to be repeated."""
        return self._try(key, failures, "")

    def _try(self, key: str, failures: int, pushback: str) -> str:
        self._seen[key] += 1
        context = nearcall.context()
        if self._seen[key] <= failures:
            if pushback:
                context.add_trailing_metadata([("grpc-retry-pushback-ms", pushback)])
            raise nearcall.Unavailable("not yet")
        return next((value for name, value in context.metadata.pairs() if name == "grpc-previous-rpc-attempts"), "")


def fleet() -> list[object]:
    return [Fleet()]


@nearcall.service
class Other:
    """A server that describes itself otherwise."""

    def other(self) -> int:
        return 0


def with_other() -> list[object]:
    return [Fleet(), Other()]


def grpcio() -> None:
    """A server of grpcio's: methods return the program's first argument, an integer, after as many failures as the
    second says.
    """
    import grpc

    number, failures = int(sys.argv[1]), int(sys.argv[2])
    lock = threading.Lock()

    def answer(_: bytes, context: Any) -> bytes:
        nonlocal failures
        with lock:
            failures -= 1
            fails = failures >= 0
        if fails:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return b"\x08" + bytes([number])

    class Any_(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(4), handlers=[Any_()])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(0)
