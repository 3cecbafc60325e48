"""Ways in which a host could call its plugins without a plugin layer: all make the same call, which sends a text and
gets it back in upper case.

Each peer is a child process and a function that connects to it. ``python -m nearcall_lab.runtime_bench.plugin_peers
NAME DIRECTORY`` is the child. The child inherits pipes and socket pairs, as a host's child would.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

Call = Callable[[str], str]


@dataclass(frozen=True)
class Peer:
    """One of them."""

    label: str
    requires: str
    """Import name of a package that has to be installed."""
    child: Callable[[str], None]
    """Runs in the child's process, with a directory for its socket."""
    connect: Callable[[list[str], str], contextlib.AbstractContextManager[Call]]
    """Runs in the host's process, with the child's command and the directory: starts it and connects to it."""


@contextlib.contextmanager
def start_peer(name: str, directory: str, cpus: list[int]) -> Iterator[Call]:
    """Starts a peer's child on some CPUs; yields the function that calls it.

    Raises:
        ModuleNotFoundError: what it needs is not installed.
    """
    peer = PEERS[name]
    if importlib.util.find_spec(peer.requires) is None:
        raise ModuleNotFoundError(f"not installed: {peer.requires}")
    with contextlib.ExitStack() as stack:
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus)  # of this thread; the child's threads inherit it
        try:
            call = stack.enter_context(peer.connect([sys.executable, "-m", __name__, name, directory], directory))
        finally:
            os.sched_setaffinity(0, allowed)
        yield call


@contextlib.contextmanager
def _child(command: list[str], descriptors: tuple[int, ...] = ()) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A child process; the pipes to and from it."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=descriptors)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin, process.stdout
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):  # the child did not read everything
                stream.close()


def _service() -> Any:
    import nearcall

    class Plain:
        def filtered(self, text: str) -> str:
            return text.upper()

    return nearcall.service(Plain)


@contextlib.contextmanager
def _plain(command: list[str], directory: str) -> Iterator[Call]:
    import nearcall

    with nearcall.spawn(command, _service()) as service:
        yield service.filtered


def _plain_child(directory: str) -> None:
    import nearcall

    nearcall.serve(_service()(), "stdio:")


def _rpyc_child(directory: str) -> None:
    import rpyc
    from rpyc.utils.factory import connect_stdpipes

    class Service(rpyc.Service):  # type: ignore[misc]
        def exposed_filtered(self, text: str) -> str:
            return text.upper()

    connect_stdpipes(Service).serve_all()


@contextlib.contextmanager
def _rpyc(command: list[str], directory: str) -> Iterator[Call]:
    from rpyc.utils.factory import connect_pipes

    with _child(command) as (requests, replies), contextlib.closing(connect_pipes(replies, requests)) as connection:
        yield connection.root.filtered


def _pair_child(directory: str) -> None:
    connection: Connection[Any, Any] = Connection(int(sys.argv[3]))
    while True:
        connection.send(connection.recv().upper())


@contextlib.contextmanager
def _pair(command: list[str], directory: str) -> Iterator[Call]:
    ours, theirs = Pipe()

    def call(text: str) -> str:
        ours.send(text)
        return str(ours.recv())

    with ours, theirs, _child([*command, str(theirs.fileno())], (theirs.fileno(),)):
        yield call


def _json_child(directory: str) -> None:
    for line in sys.stdin:
        print(json.dumps({"text": json.loads(line)["text"].upper()}), flush=True)


@contextlib.contextmanager
def _json(command: list[str], directory: str) -> Iterator[Call]:
    with _child(command) as (requests, replies):

        def call(text: str) -> str:
            requests.write(json.dumps({"text": text}).encode() + b"\n")
            requests.flush()
            return str(json.loads(replies.readline())["text"])

        yield call


def _pyro_child(directory: str) -> None:
    import Pyro5.api

    class Service:
        def filtered(self, text: str) -> str:
            return text.upper()

    Pyro5.api.config.SERIALIZER = "marshal"  # its fastest serializer
    daemon = Pyro5.api.Daemon(unixsocket=os.path.join(directory, "pyro-peer.sock"))
    print(daemon.register(Pyro5.api.expose(Service)(), "plugin"), flush=True)
    daemon.requestLoop()


@contextlib.contextmanager
def _pyro(command: list[str], directory: str) -> Iterator[Call]:
    import Pyro5.api

    Pyro5.api.config.SERIALIZER = "marshal"
    with _child(command) as (_, replies), Pyro5.api.Proxy(replies.readline().decode().strip()) as proxy:
        proxy._pyroBind()
        yield proxy.filtered


def _grpc_child(directory: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    def filtered(request: bytes, context: Any) -> bytes:
        return request.decode().upper().encode()

    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {"Filtered": grpc.unary_unary_rpc_method_handler(filtered)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("plugin", handlers),))
    address = f"unix:{os.path.join(directory, 'grpc-peer.sock')}"
    server.add_insecure_port(address)
    server.start()
    print(address, flush=True)
    server.wait_for_termination()


@contextlib.contextmanager
def _grpc(command: list[str], directory: str) -> Iterator[Call]:
    import grpc

    with _child(command) as (_, replies), grpc.insecure_channel(replies.readline().decode().strip()) as channel:
        yield channel.unary_unary("/plugin/Filtered", str.encode, bytes.decode)


PEERS = {
    "plain": Peer("nearcall.spawn, without the plugin layer", "nearcall", _plain_child, _plain),
    "rpyc": Peer("RPyC on pipes", "rpyc", _rpyc_child, _rpyc),
    "multiprocessing": Peer("multiprocessing.Pipe", "multiprocessing", _pair_child, _pair),
    "json": Peer("subprocess, JSON lines", "json", _json_child, _json),
    "pyro5": Peer("Pyro5, UDS, marshal", "Pyro5", _pyro_child, _pyro),
    "grpcio": Peer("grpcio, UDS, text as bytes", "grpc", _grpc_child, _grpc),
}


if __name__ == "__main__":
    PEERS[sys.argv[1]].child(sys.argv[2])
