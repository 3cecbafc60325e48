"""What nearcall is usually asked to do: a profiled build is made after watching this work.

The compiler then lays out the code by what ran how often, and makes small what did not run at all. So this has some of
everything that should be fast, over every transport, from threads and event loops, and most of what is called most. It
is not a benchmark, and none of the benchmarks' programs is part of it::

    python tools/usual_work.py              # with the nearcall of this interpreter; 15 seconds in a build that counts
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import nearcall
from nearcall import route

ROUNDS = 2
"""How often all of it is done. Some kinds of calls come much more often in a round."""


@dataclass
class Place:
    name: str
    latitude: float
    longitude: float
    visits: int
    labels: list[str]


@nearcall.service
class Ear(Protocol):
    """What a caller passes, to be called back."""

    def heard(self, text: str) -> int: ...
    @nearcall.oneway
    def told(self, text: str) -> None: ...


@nearcall.service
class Atlas:
    """Handlers in threads."""

    def __init__(self) -> None:
        self.news: nearcall.Topic[str] = nearcall.Topic()

    def nothing(self) -> None: ...
    def echo(self, data: bytes) -> bytes:
        return data

    def view(self, data: memoryview) -> memoryview:
        return data

    def add(self, a: int, b: int = 1) -> int:
        return a + b

    def spelled(self, name: str) -> str:
        return name

    def moved(self, place: Place, by: float) -> Place:
        return Place(place.name, place.latitude + by, place.longitude, place.visits + 1, place.labels)

    def all(self, places: list[Place]) -> dict[str, Place]:
        return {place.name: place for place in places}

    def lighter(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return image

    @nearcall.oneway
    def note(self, text: str) -> None: ...
    def missing(self, name: str) -> Place:
        raise nearcall.NotFound(f"there is no {name}")

    def count(self, to: int) -> Iterator[int]:
        yield from range(to)

    def pieces(self, number: int, data: bytes) -> Iterator[bytes]:
        for _ in range(number):
            yield data

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    def answered(self, numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            yield number + 1

    def watch(self) -> Iterator[str]:
        return self.news.subscribe()

    def publish(self, text: str) -> int:
        return self.news.publish(text)


@nearcall.service
class AsyncAtlas:
    """Handlers in an event loop."""

    async def echo(self, data: bytes) -> bytes:
        return data

    async def moved(self, place: Place, by: float) -> Place:
        return Place(place.name, place.latitude + by, place.longitude, place.visits + 1, place.labels)

    async def later(self, number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def count(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    async def answered(self, numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for number in numbers:
            yield number + 1


@nearcall.service
class Room:
    """What gRPC has not: objects both ways, and values of any type."""

    def loose(self, values: dict[str, Any]) -> Any:
        return values

    def ask(self, ear: Ear, text: str) -> int:
        ear.told(text)
        return ear.heard(text)

    def ear(self) -> Ear:
        return Listener()


class Listener(Ear):
    def heard(self, text: str) -> int:
        return len(text)

    def told(self, text: str) -> None: ...


@route.message(2)
@dataclass
class Measurement:
    cell: int
    values: list[float]


PLACE = Place("Tromsø", 69.65, 18.96, 12, ["north", "sea"])
HTTP = ("grpc", "http")
ROUTES = "usual-routes"


def repeat(times: int, call: Callable[..., object], *arguments: object) -> None:
    for _ in range(times):
        call(*arguments)


def refused(call: Callable[[], object]) -> None:
    try:
        call()
    except nearcall.NotFound:
        return
    raise AssertionError("the call should have failed")


def call_values(atlas: Any, short: int) -> None:
    """Calls with a message each way."""
    repeat(short, atlas.echo, b"some bytes")
    repeat(short, atlas.moved, PLACE, 0.5)
    repeat(short, atlas.spelled, "a name")
    repeat(short // 2, atlas.add, 1, 2)
    repeat(short // 4, partial(atlas.add, a=3))
    repeat(short // 4, atlas.nothing)
    repeat(short // 4, atlas.note, "once")
    repeat(short // 20, refused, partial(atlas.missing, "Atlantis"))
    for size, times in ((200, short // 4), (4_000, short // 4), (60_000, short // 20), (1_000_000, 10)):
        repeat(times, atlas.echo, bytes(size))
    repeat(short // 20, atlas.all, [PLACE] * 50)
    repeat(short // 100, atlas.view, memoryview(bytes(100_000)))
    with nearcall.timeout(30), nearcall.metadata({"trace": "00-1"}):
        repeat(short // 10, atlas.moved, PLACE, 1.0)


def call_streams(atlas: Any, items: int) -> None:
    assert sum(atlas.count(items)) == items * (items - 1) // 2
    assert atlas.total(iter(range(items))) == items * (items - 1) // 2
    assert sum(1 for _ in atlas.answered(iter(range(items)))) == items
    assert sum(map(len, atlas.pieces(items // 10, bytes(5_000)))) == items // 10 * 5_000


def call_room(room: Any, times: int) -> None:
    repeat(times, room.loose, {"x": 1, "y": [True, None, 2.5, "z"]})
    ear = Listener()
    repeat(times, room.ask, ear, "hello")
    theirs = room.ear()
    repeat(times, theirs.heard, "you")
    nearcall.release(theirs)


def watch(atlas: Any, times: int) -> None:
    screens = [atlas.watch() for _ in range(4)]
    atlas.nothing()  # so that all of them have arrived
    for _ in range(times):
        atlas.publish("news")
    for screen in screens:
        for _ in range(times):
            next(screen)
        screen.close()


def hand_over(atlas: Any, times: int) -> None:
    """Long values in memory that the other side can map."""
    for _ in range(times):
        image = nearcall.empty((480, 640), np.uint8)
        image[0] = 1
        atlas.lighter(image)
    repeat(times, atlas.lighter, np.zeros((480, 640), np.uint8))


async def call_from_tasks(url: str, short: int) -> None:
    async with nearcall.aio.connect(url, AsyncAtlas) as atlas:
        for _ in range(short):
            await atlas.echo(b"some bytes")
        for _ in range(short // 2):
            await atlas.moved(PLACE, 0.5)

        async def task() -> None:
            for _ in range(short // 20):
                await atlas.echo(b"some bytes")
                await atlas.later(1)

        await asyncio.gather(*(task() for _ in range(32)))
        assert sum([number async for number in atlas.count(short)]) == short * (short - 1) // 2
        assert len([number async for number in atlas.answered(range(short // 4))]) == short // 4
    async with nearcall.aio.connect(url, Atlas) as threads:
        for _ in range(short // 2):
            await threads.echo(b"some bytes")


def send_messages(directory: str, short: int) -> None:
    """Messages by their types, to a node that counts them and one that replies."""
    for receiver in node_urls(directory):
        with route.Node(f"shm://{ROUTES}-sender") as sender:
            types = "".join(f"mse|{kind}|-1|{receiver}\n" for kind in (1, 2, 3))
            sender.install(f"newrt|start|usual\n{types}newrt|end|3\n")
            sender.ready(timeout=30)
            for size, times in ((20, 4 * short), (200, short), (4_000, short // 2)):
                repeat(times, sender.send, 1, bytes(size))
            repeat(short, sender.send, 2, Measurement(7, [1.0, 2.0]))
            repeat(short // 2, partial(sender.call, timeout=30), 3, b"some bytes")


def node_urls(directory: str) -> list[str]:
    return [f"shm://{ROUTES}", f"unix://{directory}/routes.sock"]


def use(url: str, short: int) -> None:
    """Everything over one transport."""
    near = not url.startswith(HTTP)
    with nearcall.Channel(url) as channel:
        atlas = channel.client(Atlas)
        call_values(atlas, short)
        call_streams(atlas, short)
        watch(atlas, short // 10)
        repeat(short // 2, channel.client(AsyncAtlas).echo, b"some bytes")
        if near:
            call_room(channel.client(Room), short // 10)
            hand_over(atlas, short // 50)
        with ThreadPoolExecutor(16) as threads:
            for done in [threads.submit(repeat, short // 8, atlas.moved, PLACE, 0.5) for _ in range(16)]:
                done.result()
    asyncio.run(call_from_tasks(url, short))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="nc-") as directory:
        certificates = Path(directory, "certificates")
        subprocess.run(
            [sys.executable, "-m", "nearcall", "dev-certs", certificates, "127.0.0.1"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        os.environ.update(XDG_RUNTIME_DIR=directory, SSL_CERT_FILE=str(certificates / "ca.pem"))
        with subprocess.Popen(
            [sys.executable, __file__, "serve", directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            urls = server.stdout.readline().split()
            for number in range(ROUNDS):
                for url in urls:
                    scheme = url.partition(":")[0]
                    print(f"usual work: round {number + 1} of {ROUNDS}, {scheme}", file=sys.stderr, flush=True)
                    use(url, {"shm": 4_000, "unix": 1_000, "tcp": 1_000}.get(scheme, 400))
                print(f"usual work: round {number + 1} of {ROUNDS}, messages", file=sys.stderr, flush=True)
                send_messages(directory, 2_000)
            server.stdin.close()
        if server.returncode:
            raise SystemExit(f"usual work: the server ended with {server.returncode}")


def serve(directory: str) -> None:
    tls = nearcall.TLS(cert=f"{directory}/certificates/server.pem", key=f"{directory}/certificates/server.key")
    near = ["shm://usual-work", f"unix://{directory}/usual.sock", "tcp://127.0.0.1:0", "tls://127.0.0.1:0"]
    node = route.Node(*node_urls(directory))
    taken: list[int] = []

    @node.on(1)
    def take(message: route.Message[Any]) -> None:
        taken.append(len(message.payload))

    @node.on(2)
    def measured(message: route.Message[Measurement]) -> None:
        taken.append(message.value.cell)

    @node.on(3)
    def reply(message: route.Message[Any]) -> None:
        message.reply(message.payload)

    with (
        node,
        nearcall.Server(Atlas(), AsyncAtlas(), Room(), *near, tls=tls) as own,
        nearcall.Server(Atlas(), AsyncAtlas(), *(f"{scheme}://127.0.0.1:0" for scheme in HTTP)) as http,
    ):
        print(*own.urls, *http.urls, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main()
