"""Servers of the libraries whose calls are profiled: ``python profiled_servers.py KIND``.

Each prints its address when it listens, and ends with its standard input.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def rpyc() -> str:
    import rpyc
    from rpyc.utils.server import ThreadedServer

    class Item:
        def __init__(self, number: int) -> None:
            self.exposed_number = number

        def exposed_price(self) -> int:
            return self.exposed_number * 2

    class Shop:
        def __init__(self) -> None:
            self.exposed_items = [Item(number) for number in range(5)]

    class Service(rpyc.Service):  # type: ignore[misc]
        def __init__(self) -> None:
            self.exposed_shop = Shop()

        def exposed_add(self, a: int, b: int) -> int:
            return a + b

        def exposed_twice(self, function: Callable[[int], int], value: int) -> int:
            return function(function(value))

        def exposed_fail(self) -> None:
            raise ValueError("on purpose")

    server = ThreadedServer(Service(), port=0, hostname="127.0.0.1")
    _in_thread(server.start)
    return str(server.port)


def pyro5() -> str:
    import Pyro5.api

    @Pyro5.api.expose  # type: ignore[untyped-decorator]
    class Service:
        def add(self, a: int, b: int) -> int:
            return a + b

        def items(self, n: int) -> Iterator[int]:
            yield from range(n)

        def fail(self) -> None:
            raise ValueError("on purpose")

    daemon = Pyro5.api.Daemon(host="127.0.0.1")
    uri = daemon.register(Service, "calc")
    _in_thread(daemon.requestLoop)
    return str(uri)


def xmlrpc() -> str:
    from xmlrpc.server import SimpleXMLRPCServer

    server = SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)
    server.register_function(lambda a, b: a + b, "add")
    server.register_multicall_functions()
    _in_thread(server.serve_forever)
    return f"http://127.0.0.1:{server.server_address[1]}"


def http() -> str:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            moved = self.path == "/moved"
            self.send_response(302 if moved else 200)
            if moved:
                self.send_header("location", "/items/1")
            body = b"" if moved else b"hello"
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    _in_thread(server.serve_forever)
    return f"http://127.0.0.1:{server.server_address[1]}"


def grpc() -> str:
    import grpc

    handlers = {
        "/calc.Calc/Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request),
        "/calc.Calc/Count": grpc.unary_stream_rpc_method_handler(
            lambda request, context: iter([b"item"] * int(request))
        ),
        "/calc.Calc/Fail": grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(grpc.StatusCode.NOT_FOUND, "on purpose")
        ),
        "/calc.Calc/Join": grpc.stream_unary_rpc_method_handler(lambda requests, context: b"".join(requests)),
        "/calc.Calc/Same": grpc.stream_stream_rpc_method_handler(lambda requests, context: requests),
    }

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return handlers.get(details.method)

    server = grpc.server(ThreadPoolExecutor(4), (Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    _kept.append(server)
    return f"127.0.0.1:{port}"


_kept: list[object] = []


def _in_thread(serve: Callable[[], object]) -> None:
    threading.Thread(target=serve, daemon=True).start()


if __name__ == "__main__":
    print({"rpyc": rpyc, "pyro5": pyro5, "xmlrpc": xmlrpc, "http": http, "grpc": grpc}[sys.argv[1]](), flush=True)
    sys.stdin.read()
