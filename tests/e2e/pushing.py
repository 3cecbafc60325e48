"""A server of ours or of grpcio that is unavailable the first time, and says when it will not be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

import nearcall

PATIENCE = 30.0


@contextmanager
def pushing(by: str, pushback: str, asked: list[float]) -> Iterator[str]:
    """Serves ``shop.v1.Shop``, and yields the address. ``asked`` gets the time whenever the server is asked."""

    def answered(context: Any) -> int:
        asked.append(time.monotonic())
        if len(asked) == 1:
            trailing = [("grpc-retry-pushback-ms", pushback)]
            if by == "grpcio":
                context.set_trailing_metadata(trailing)
                context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            context.add_trailing_metadata(trailing)
            raise nearcall.Unavailable("not yet")
        return len(asked)

    @nearcall.service(name="shop.v1.Shop")
    class Pushing:
        def find_all(self) -> int:
            return answered(nearcall.context())

    if by == "nearcall":
        with nearcall.Server(Pushing(), "grpc://127.0.0.1:0") as server:
            yield server.urls[0].removeprefix("grpc://")
        return
    handler: Any = grpc.unary_unary_rpc_method_handler(lambda _body, context: bytes([8, answered(context)]))
    theirs = grpc.server(ThreadPoolExecutor(1))
    theirs.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("shop.v1.Shop", {"FindAll": handler})])
    port = theirs.add_insecure_port("127.0.0.1:0")
    theirs.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        theirs.stop(None).wait(PATIENCE)
