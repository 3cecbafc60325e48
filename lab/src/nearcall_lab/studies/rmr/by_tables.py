"""One to many by a table of routes: nodes of nearcall's router, and programs of RMR."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from nearcall_lab.adapters.librmr import Rmr, absent, library, taken
from nearcall_lab.adapters.ports import free_port
from nearcall_lab.studies.rmr.by_messaging import own_nats_server
from nearcall_lab.studies.rmr.tally import PATIENCE_S, REPORT, Measure, Opened, Reports, Tally, each
from nearcall_lab.studies.serving import server_process

DATA, HOW_MANY = 1, 2
"""Types of messages. In RMR a question is for one receiver only if its type is: from `HOW_MANY` on."""
_HOST = "127.0.0.1"
_RETRY = 10


def between(kind: str) -> str:
    """What stands between the receivers in a table: each gets a copy, or they take turns."""
    return ";" if kind == "copies" else ","


def serve_node(url: str, ready: Callable[[Any], None]) -> None:
    """A node that counts."""
    from nearcall import route

    tally, node = Tally(), route.Node(url)
    node.on(DATA)(lambda message: tally.take())
    node.on(HOW_MANY)(lambda message: message.reply(tally.report()))
    serve_until_terminated(node, ready)


def serve_until_terminated(node: Any, ready: Callable[[Any], None]) -> None:
    """Ends with the process, which SIGTERM ends in good order: the file of the node's socket goes with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with node:
        ready(node.urls[0])
        while True:
            time.sleep(PATIENCE_S)


@contextmanager
def node_to(urls: Sequence[str], own: str, kind: str) -> Iterator[Opened]:
    """A node that sends to all of them."""
    from nearcall import route

    with route.Node(own) as node:
        node.install(f"newrt | start | t\nrte | {DATA} | {between(kind).join(urls)}\nnewrt | end | 1\n")
        node.ready(PATIENCE_S)

        def ask() -> Reports:
            replies = [node.call(HOW_MANY, to=url, timeout=PATIENCE_S).payload for url in urls]
            return [REPORT.unpack(reply) for reply in replies]

        yield each(lambda data: node.send(DATA, data)), ask


@contextmanager
def places(scheme: str) -> Iterator[Callable[[str], str]]:
    """Where a node of a name listens."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        if scheme == "nats":
            broker = stack.enter_context(own_nats_server(directory))
            yield lambda name: f"{broker}/{name}"
        elif scheme in ("shm", "unix"):
            base = f"unix://{directory}/" if scheme == "unix" else f"shm://nclab-{os.getpid()}-"
            yield lambda name: base + name
        else:
            yield lambda name: f"{scheme}://{_HOST}:0"


@contextmanager
def nodes(scheme: str, most: int, measure: Callable[[Opened, int], tuple[float, list[int]]]) -> Iterator[Measure]:
    """As many receivers as are needed at most; what measures with some of them."""
    with ExitStack() as stack:
        place = stack.enter_context(places(scheme))
        starting = [server_process(serve_node, place(f"r{number}")) for number in range(most)]
        urls = [stack.enter_context(one) for one in starting]

        def measured(kind: str, count: int, messages: int) -> tuple[float, list[int]]:
            with node_to(urls[:count], place("sender"), kind) as opened:
                return measure(opened, messages)

        yield measured


def serve_rmr(port: int, ready: Callable[[Any], None]) -> None:
    """A program of RMR that counts."""
    rmr, tally = Rmr(_HOST, port), Tally()
    ready(f"{_HOST}:{port}")
    message = rmr.alloc(rmr.context, 1024)
    while True:
        message = rmr.receive(rmr.context, message, 1000)
        fields = message.contents
        if fields.state:
            continue
        if fields.mtype == DATA:
            tally.take()
        else:
            message = rmr.reply(rmr.context, rmr.filled(message, fields.mtype, tally.report()))


@contextmanager
def programs(most: int, measure: Callable[[Opened, int], tuple[float, list[int]]]) -> Iterator[Measure]:
    """As `nodes`; the sender is made anew each time, since RMR reads its table once."""
    if library() is None:
        raise RuntimeError(absent())
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        starting = [server_process(serve_rmr, free_port(_HOST)) for _ in range(most)]
        receivers = [stack.enter_context(one) for one in starting]

        def measured(kind: str, count: int, messages: int) -> tuple[float, list[int]]:
            entries = [f"rte | {DATA} | {between(kind).join(receivers[:count])}"]
            entries += [f"rte | {HOW_MANY + number} | {place}" for number, place in enumerate(receivers[:count])]
            table = Path(directory) / f"{kind}-{count}.rt"
            table.write_text("\n".join(("newrt | start | t", *entries, f"newrt | end | {len(entries)}", "")))
            rmr = Rmr(_HOST, free_port(_HOST), table)
            rmr.wait_until_ready()
            message = rmr.alloc(rmr.context, 1024)

            def send(data: bytes) -> None:
                nonlocal message
                message = rmr.send(rmr.context, rmr.filled(message, DATA, data))
                while message.contents.state == _RETRY:
                    message = rmr.send(rmr.context, message)
                if message.contents.state:
                    raise OSError(f"rmr_send_msg: state {message.contents.state}")

            def ask() -> Reports:
                found: Reports = []
                for number in range(count):
                    question = rmr.filled(rmr.alloc(rmr.context, 1024), HOW_MANY + number, b"?")
                    reply = rmr.call(rmr.context, question, 2, int(PATIENCE_S * 1e3))
                    if not reply or reply.contents.state:
                        raise TimeoutError(f"no report within {PATIENCE_S:g} s")
                    found.append(REPORT.unpack(taken(reply)))
                return found

            try:
                return measure((each(send), ask), messages)
            finally:
                rmr.close()

        yield measured
