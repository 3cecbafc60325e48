"""One to many by ZeroMQ, NATS and iceoryx2, each in its own way."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from nearcall_lab.adapters.broker import nats_server
from nearcall_lab.contract import Mechanism, Spec, Stop
from nearcall_lab.studies.rmr.tally import PATIENCE_S, REPORT, Opened, Reports, Tally, each
from nearcall_lab.studies.serving import server_process

_ASK = b""
"""ZeroMQ's messages have no type: an empty one is the question."""


def serve_zmq(kind: str, url: str, reports: str, number: int, ready: Callable[[Any], None]) -> None:
    """A socket that pulls, or one that has subscribed."""
    import zmq

    tally, context = Tally(), zmq.Context()
    inbox, answers = context.socket(zmq.SUB if kind == "copies" else zmq.PULL), context.socket(zmq.PUSH)
    if kind == "copies":
        inbox.subscribe(b"")
    inbox.connect(url)
    answers.connect(reports)
    ready(url)
    while True:
        if inbox.recv() == _ASK:
            answers.send_multipart((b"%d" % number, tally.report()))
        else:
            tally.take()


@contextmanager
def by_zmq(kind: str, count: int) -> Iterator[Opened]:
    """The receivers connect to the sender's socket."""
    import zmq

    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        url, reports = f"ipc://{directory}/data", f"ipc://{directory}/reports"
        context = zmq.Context()
        stack.callback(partial(context.destroy, linger=0))
        outbox, answers = context.socket(zmq.XPUB if kind == "copies" else zmq.PUSH), context.socket(zmq.PULL)
        if kind == "copies":
            outbox.setsockopt(zmq.XPUB_NODROP, 1)  # it waits for the slowest, where PUB drops and tells nobody
            outbox.setsockopt(zmq.XPUB_VERBOSE, 1)  # it tells of each subscription, also of a second equal one
        for waiting in (outbox, answers):
            waiting.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1e3))
        connected = outbox.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        connected.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1e3))
        outbox.bind(url)
        answers.bind(reports)
        for number in range(count):
            stack.enter_context(server_process(serve_zmq, kind, url, reports, number))
        for _ in range(count):
            connected.recv_multipart()  # whoever is not connected yet gets no turn
        outbox.disable_monitor()
        if kind == "copies":
            for _ in range(count):
                outbox.recv()  # the subscriptions: what is published before them is lost

        def ask() -> Reports:
            found: dict[bytes, tuple[int, int]] = {}
            deadline = time.monotonic() + PATIENCE_S
            # Who takes turns is passed over while its queue is full, also by a question: another is asked twice then.
            # All was sent before, so that the first answer of each counts all that it had.
            while len(found) < count:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(found)} of {count} receivers have reported within {PATIENCE_S:g} s")
                outbox.send(_ASK)
                for _ in range(count if kind == "copies" else 1):
                    who, report = answers.recv_multipart()
                    found.setdefault(who, REPORT.unpack(report))
            return list(found.values())

        yield each(outbox.send), ask


def own_nats_server(directory: str) -> AbstractContextManager[str]:
    """A nats-server without a launch of the lab's, as its URL."""
    return nats_server(Spec(Mechanism("nats", "nats", "messaging"), directory, ""), Stop())


def serve_nats(kind: str, url: str, number: int, ready: Callable[[Any], None]) -> None:
    """A subscriber, or a member of a queue group."""
    import nats

    async def serve() -> None:
        tally, client = Tally(), await nats.connect(url)

        async def data(message: Any) -> None:
            tally.take()

        unlimited = {"pending_msgs_limit": 0, "pending_bytes_limit": 0}
        group = "" if kind == "copies" else "group"
        taking = await client.subscribe("data", queue=group, cb=data, **unlimited)

        async def answer(message: Any) -> None:
            while taking.pending_msgs:  # each subscription has a task of its own
                await asyncio.sleep(0)
            await message.respond(tally.report())

        await client.subscribe(f"reports.{number}", cb=answer)
        await client.flush()
        ready(url)
        await asyncio.Event().wait()

    asyncio.run(serve())


@contextmanager
def by_nats(kind: str, count: int) -> Iterator[Opened]:
    """A subject that all subscribe to, or one whose messages a queue group shares."""
    import nats

    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        url = stack.enter_context(own_nats_server(directory))
        for number in range(count):
            stack.enter_context(server_process(serve_nats, kind, url, number))
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        client = loop.run_until_complete(nats.connect(url))

        async def publish(data: bytes, messages: int) -> None:
            for _ in range(messages):
                await client.publish("data", data)

        async def reports() -> Reports:
            return [
                REPORT.unpack((await client.request(f"reports.{number}", b"", timeout=PATIENCE_S)).data)
                for number in range(count)
            ]

        try:
            yield (
                lambda data, messages: loop.run_until_complete(publish(data, messages)),
                lambda: loop.run_until_complete(reports()),
            )
        finally:
            loop.run_until_complete(client.close())


def _samples(directory: str) -> tuple[Any, Any]:
    """A node of iceoryx2, and the service that all use."""
    import iceoryx2 as iox2

    from nearcall_lab.adapters.iceoryx2 import node_of

    node = node_of(f"nclab{os.path.basename(directory)}_", directory)
    service = (
        node.service_builder(iox2.ServiceName.new("lab/fan-out"))
        .publish_subscribe(iox2.Slice[ctypes.c_uint8])
        .enable_safe_overflow(False)
        .subscriber_max_buffer_size(256)
        .max_subscribers(16)
        .open_or_create()
    )
    return node, service


def serve_iceoryx2(directory: str, reports: str, ready: Callable[[Any], None]) -> None:
    """A subscriber; its binding has no wait for a sample, so it polls, and lets others run while there is none."""
    _node, service = _samples(directory)  # its ports live only as long as the node
    inbox, tally = service.subscriber_builder().create(), Tally()
    answers = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ready(reports)
    while True:
        sample = inbox.receive()
        if sample is None:
            os.sched_yield()
            continue
        last = sample.payload().len() == 1
        sample.delete()
        if last:
            answers.sendto(tally.report(), reports)
        else:
            tally.take()


@contextmanager
def by_iceoryx2(kind: str, count: int) -> Iterator[Opened]:
    """Publish and subscribe; nothing there takes turns."""
    import iceoryx2 as iox2

    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        reports = f"{directory}/reports"
        answers = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        answers.bind(reports)
        answers.settimeout(PATIENCE_S)
        _node, service = _samples(directory)
        publisher = (
            service.publisher_builder()
            .initial_max_slice_len(4_096)
            .backpressure_strategy(iox2.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )
        stack.callback(publisher.delete)
        for _ in range(count):
            stack.enter_context(server_process(serve_iceoryx2, directory, reports))

        def send(data: bytes) -> None:
            sample = publisher.loan_slice_uninit(len(data))
            ctypes.memmove(sample.payload().as_ptr(), data, len(data))
            sample.assume_init().send()

        def ask() -> Reports:
            send(b"?")
            return [REPORT.unpack(answers.recv(REPORT.size)) for _ in range(count)]

        yield each(send), ask
