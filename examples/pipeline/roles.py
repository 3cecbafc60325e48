"""The four roles of the pipeline, each for a process of its own. Each ends when its standard input does, and says then
what it has done, in a line of JSON. `pipeline.py` starts them all.
"""

import argparse
import heapq
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nearcall import route

WIDTH, HEIGHT = 64, 48
BRIGHT = b"\xff"
HEALTH = 100
"""Every node answers a message of this type, after all that was sent to it before."""
PATIENCE = 30.0


@route.message(1)
@dataclass
class Frame:
    number: int
    pixels: bytes


@route.message(2)
@dataclass
class Detection:
    number: int
    x: int
    y: int


@route.message(3)
@dataclass
class Point:
    number: int
    x: float
    y: float
    detector: str


class Report(msgspec.Struct):
    """What a role says at its end."""

    made: int
    """Messages that it wanted to send."""
    sent: dict[str, int]
    """Those that the transport has taken, by receiver."""
    dropped: int
    """Those that found no room."""
    refused: int
    """Those that could not be sent, for want of an entry in the table for instance."""
    unusable: int
    """Messages that came and could not be read, or whose handlers have failed."""
    handled: dict[str, int]
    """Messages that came and were handled, by sender."""


class Role:
    """A node, and what it does until it is told to end."""

    when_full: route.WhenFull = "block"
    queue = 1 << 20

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        # Replies go to the first address. Nobody has a connection there yet that leads to a process that was killed.
        urls = (f"{options.url}-replies", options.url)
        self.node = route.Node(*urls, name=options.url, table=options.table, when_full=self.when_full, queue=self.queue)
        self.ended = threading.Event()
        self.made = 0
        self.handled: Counter[str] = Counter()

    def send(self, message: Frame | Detection | Point) -> None:
        self.made += 1
        self.node.send(message)

    def run(self) -> None:
        """Handles messages until the role is to end."""
        self.ended.wait()

    def report(self) -> Report:
        """What was done, once all that was sent is handled."""
        table = self.node.table()
        named = "" if table is None else table.text
        # Those beside them have only had replies, and may have ended.
        receivers = [each.name for each in self.node.status().endpoints if each.sent and each.name in named]
        for receiver in receivers:
            self.node.call(HEALTH, to=receiver, timeout=PATIENCE)
        status = self.node.status()
        return Report(
            made=self.made,
            # One more was the question.
            sent={each.name: each.sent - 1 for each in status.endpoints if each.name in receivers},
            dropped=sum(each.dropped for each in status.endpoints),
            refused=status.unrouted + sum(each.failed_hard + each.failed_soft for each in status.endpoints),
            unusable=status.malformed + status.failed + status.unhandled,
            handled=dict(self.handled),
        )


class Frames(Role):
    """A camera: a bright spot goes round in its picture. It waits for nobody, so the oldest frames are dropped."""

    when_full = "drop_oldest"
    queue = 1 << 16

    def run(self) -> None:
        self.node.ready(PATIENCE)
        begin = time.monotonic()
        while not self.ended.wait(max(0.0, begin + self.made / self.options.rate - time.monotonic())):
            pixels = bytearray(WIDTH * HEIGHT)
            pixels[self.made * 7 % len(pixels)] = BRIGHT[0]
            self.send(Frame(self.made, bytes(pixels)))


class Detector(Role):
    """Says where the spot is."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.node.on(Frame)(self.look)

    def look(self, message: route.Message[Frame]) -> None:
        y, x = divmod(message.value.pixels.index(BRIGHT), WIDTH)
        self.send(Detection(message.value.number, x, y))
        self.handled[message.source] += 1


class Fuser(Role):
    """Makes one track of what several detectors see, in the order of the frames again."""

    window = 64
    """So many detections wait for those of earlier frames."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.waiting: list[tuple[int, str, Detection]] = []
        self.node.on(Detection)(self.fuse)

    def fuse(self, message: route.Message[Detection]) -> None:
        heapq.heappush(self.waiting, (message.value.number, message.source, message.value))
        self.handled[message.source] += 1
        if len(self.waiting) > self.window:
            self.pass_on()

    def pass_on(self) -> None:
        number, source, seen = heapq.heappop(self.waiting)
        self.send(Point(number, seen.x / WIDTH, seen.y / HEIGHT, source))

    def run(self) -> None:
        super().run()
        while self.waiting:  # the detectors have ended: nothing comes meanwhile
            self.pass_on()


class Logger(Role):
    """Writes the track to a file."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.file = options.file.open("w", encoding="utf-8")
        self.node.on(Point)(self.log)

    def log(self, message: route.Message[Point]) -> None:
        point = message.value
        self.file.write(f"{point.number},{point.x:.3f},{point.y:.3f},{point.detector}\n")
        self.handled[message.source] += 1

    def run(self) -> None:
        super().run()
        self.file.close()


ROLES: dict[str, type[Role]] = {"frames": Frames, "detector": Detector, "fuser": Fuser, "logger": Logger}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("url", help="where it takes messages")
    parser.add_argument("table", type=Path, help="the table; it is read again when it changes")
    parser.add_argument("--rate", type=float, default=1000.0, help="frames: how many a second")
    parser.add_argument("--file", type=Path, default=Path("track.csv"), help="logger: where the track goes")
    options = parser.parse_args()
    role = ROLES[options.role](options)

    def wait() -> None:
        sys.stdin.read()
        role.ended.set()

    threading.Thread(target=wait, daemon=True).start()
    with role.node:
        print("ready", flush=True)
        role.run()
        print(msgspec.json.encode(role.report()).decode(), flush=True)


if __name__ == "__main__":
    main()
