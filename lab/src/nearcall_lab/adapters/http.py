"""HTTP as it is run in production: an ASGI application under granian or uvicorn; the client keeps its connection."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal

from nearcall_lab.adapters import certificates
from nearcall_lab.adapters.event_loops import run, until_stopped
from nearcall_lab.adapters.ports import accepting
from nearcall_lab.contract import Mechanism, Operation, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_CLIENT = "keep-alive client (urllib3), connects by an OPTIONS request; raw ASGI application, no framework"
_WHY = (
    "What its documentation installs for all it can do, uvicorn[standard], brings uvloop and httptools, which it then "
    "uses by itself; the plain row is what it runs on without them."
)


_TLS = "-tls"


def _row(name: str, label: str, variant: str, runs_on: str, needs: tuple[str, ...] = (), why: str = "") -> Mechanism:
    server = variant.removesuffix(_TLS)
    return Mechanism(
        *(name, label, "http", variant, (server, "urllib3", *needs), server),
        settings=f"one worker process, {runs_on}; {_CLIENT}",
        typed="JSON object, dataclass rebuilt on both sides",
        transport="TCP",
        operations=("echo", "quote", "wait", "count"),
        tuned=bool(why),
        why=why,
    )


MECHANISMS = (
    _row("http-uvicorn", "HTTP, uvicorn", "uvicorn", "h11 on asyncio"),
    _row(
        *("http-uvicorn-tuned", "HTTP, uvicorn, tuned", "uvicorn", "httptools on uvloop"),
        *(("httptools", "uvloop"), _WHY),
    ),
    _row("http-granian", "HTTP, granian", "granian", "its own HTTP in Rust, on asyncio"),
    _row("https-uvicorn", "HTTPS, uvicorn", f"uvicorn{_TLS}", "h11 on asyncio, TLS by Python's ssl"),
    _row("https-granian", "HTTPS, granian", f"granian{_TLS}", "its own HTTP in Rust, on asyncio, TLS by rustls"),
)

Application = Callable[
    [dict[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]
]


def application(spec: Spec) -> Application:
    """The service as an ASGI application."""
    count_call = spec.served.count

    async def body_of(receive: Callable[[], Awaitable[Any]]) -> bytes:
        event = await receive()
        body: bytes = event.get("body", b"")
        while event.get("more_body"):
            event = await receive()
            body += event.get("body", b"")
        return body

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        body = await body_of(receive)
        if scope["method"] == "OPTIONS":  # a client that connects, and asks for nothing
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
            return
        count_call()
        path = scope["path"]
        if path == "/count":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
            for value in range(json.loads(body)):
                await send({"type": "http.response.body", "body": b"%d\n" % value, "more_body": True})
            await send({"type": "http.response.body"})
            return
        if path == "/quote":
            body = json.dumps(vars(fill(Order(**json.loads(body))))).encode()
        elif path == "/wait":
            seconds = json.loads(body)
            await asyncio.sleep(seconds)
            body = json.dumps(vars(named(seconds))).encode()
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/octet-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    # Given the protocol by name: asyncio sets TCP_NODELAY only then, as it does where it makes the socket itself.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((spec.host, 0))
    scheme = "https" if spec.mechanism.variant.endswith(_TLS) else "http"
    address = f"{scheme}://{spec.host}:{listener.getsockname()[1]}"
    server = _uvicorn if spec.mechanism.variant.startswith("uvicorn") else _granian
    run(server(spec, listener, address, ready, stop), on_uvloop=spec.mechanism.tuned)


async def _uvicorn(spec: Spec, listener: socket.socket, address: str, ready: Ready, stop: Stop) -> None:
    import uvicorn

    # Said, since uvicorn takes whatever happens to be installed. The event loop is the one this coroutine runs in.
    parser: Literal["httptools", "h11"] = "httptools" if spec.mechanism.tuned else "h11"
    tls: dict[str, Any] = {}
    if spec.mechanism.variant.endswith(_TLS):
        made = certificates.make(spec)
        tls = {"ssl_certfile": str(made.cert), "ssl_keyfile": str(made.key)}
    config = uvicorn.Config(application(spec), http=parser, log_level="error", access_log=False, lifespan="off", **tls)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    ready(address)
    await until_stopped(stop)
    server.should_exit = True
    await serving


async def _granian(spec: Spec, listener: socket.socket, address: str, ready: Ready, stop: Stop) -> None:
    from granian.constants import Interfaces
    from granian.server.embed import Server

    port = listener.getsockname()[1]
    listener.close()  # it can only bind by itself
    tls: dict[str, Any] = {}
    if spec.mechanism.variant.endswith(_TLS):
        made = certificates.make(spec)
        tls = {"ssl_cert": made.cert, "ssl_key": made.key}
    server = Server(
        application(spec), address=spec.host, port=port, interface=Interfaces.ASGINL, log_enabled=False, **tls
    )
    serving = asyncio.create_task(server.serve())
    await accepting(spec.host, port)
    ready(address)
    await until_stopped(stop)
    server.stop()
    await serving


def connect(spec: Spec) -> SimpleSession:
    import urllib3

    port = int(spec.address.rsplit(":", 1)[1])
    pool: Any
    if spec.mechanism.variant.endswith(_TLS):
        trusted = str(certificates.of(spec).ca)
        pool = urllib3.HTTPSConnectionPool(spec.host, port, maxsize=1, retries=False, ca_certs=trusted)
    else:
        pool = urllib3.HTTPConnectionPool(spec.host, port, maxsize=1, retries=False)

    def post(path: str, body: bytes) -> bytes:
        response = pool.urlopen("POST", path, body=body)
        if response.status != 200:
            raise RuntimeError(f"HTTP status {response.status}")
        return bytes(response.data)

    def count(items: int) -> Iterator[int]:
        response = pool.urlopen("POST", "/count", body=b"%d" % items, preload_content=False)
        rest = b""
        for part in response.stream(65_536):
            *lines, rest = (rest + part).split(b"\n")
            yield from map(int, lines)
        response.release_conn()

    def quote(order: Order) -> Fill:
        return Fill(**json.loads(post("/quote", json.dumps(vars(order)).encode())))

    def wait(seconds: float) -> Named:
        return Named(**json.loads(post("/wait", json.dumps(seconds).encode())))

    def open_() -> None:
        # A pool connects with its first request; this one lets a connection be open before a call is made on it.
        response = pool.urlopen("OPTIONS", "/")
        if response.status != 204:
            raise RuntimeError(f"HTTP status {response.status}")

    calls: dict[Operation, Callable[[Any], Any]] = {
        "echo": lambda data: post("/echo", data),
        "quote": quote,
        "wait": wait,
    }
    return SimpleSession(calls, pool.close, open_, count)
