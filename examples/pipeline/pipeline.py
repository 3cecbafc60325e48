"""Frames go through two detectors, which take turns, to a fuser and a logger, each a process of its own. While they
flow, a detector is killed and replaced, the table is swapped, and all detectors stop for a moment. At the end every
frame is accounted for::

    python pipeline.py
    python pipeline.py --seconds 5 --rate 2000 --output out
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
from picture import Picture
from roles import Report

import nearcall
from nearcall import route

HERE = Path(__file__).resolve().parent
URL = "shm://pipeline-"
DETECTORS = ("detector-1", "detector-2", "detector-3")
PATIENCE = 30.0
LOOK = 0.1


class Process:
    """A role in a process of its own."""

    def __init__(self, role: str, name: str, *options: str | Path, table: Path) -> None:
        command = [sys.executable, HERE / "roles.py", role, URL + name, table, *options]
        self.name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ready(self) -> None:
        """Waits until it takes messages."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise SystemExit(f"{self.name} has not started: its own message is above")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it without giving it a chance, also if it is stopped or gone."""
        self._process.kill()
        self._process.communicate()

    def end(self) -> Report:
        """Lets it finish what it has, and say what it has done."""
        said, _ = self._process.communicate(timeout=PATIENCE)  # this closes its standard input
        return msgspec.json.decode(said, type=Report)


class Pipeline:
    """The processes, what is seen of them, and what is done to them."""

    def __init__(self, directory: Path, options: argparse.Namespace, picture: Picture, stack: ExitStack) -> None:
        self.table = directory / "routes.toml"
        self.log = directory / "track.csv"
        self.pause = options.seconds / 5
        self.picture = picture
        self._stack = stack
        self._replace_table("routes.toml")
        self.logger = self.start("logger", "logger", "--file", self.log)
        self.fuser = self.start("fuser", "fuser")
        self.detectors = {name: self.start("detector", name) for name in DETECTORS}
        self.frames = self.start("frames", "frames", "--rate", str(options.rate))
        for each in (self.logger, self.fuser, *self.detectors.values(), self.frames):
            each.ready()
        self._clients = {
            name: stack.enter_context(nearcall.connect(URL + name, route.Route, timeout=PATIENCE))
            for name in ("frames", "fuser", "logger")
        }

    def start(self, role: str, name: str, *options: str | Path) -> Process:
        process = Process(role, name, *options, table=self.table)
        self._stack.callback(process.kill)
        return process

    # --- what is seen ---

    def frames_status(self) -> route.NodeStatus:
        return self._clients["frames"].status()

    def look(self) -> None:
        """Draws what flows."""
        self.picture.draw({name: client.status() for name, client in self._clients.items()})

    def watch(self, seconds: float) -> None:
        """Lets it flow."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.look()
            time.sleep(min(LOOK, left))

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Lets it flow until something is so."""
        end = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > end:
                raise SystemExit(f"not within {PATIENCE:.0f} s: {what}")
            self.look()
            time.sleep(LOOK / 2)

    def sent_to(self, name: str) -> int:
        return sum(each.sent for each in self.frames_status().endpoints if each.name == URL + name)

    def is_connected(self, name: str) -> bool:
        return any(each.connected for each in self.frames_status().endpoints if each.name == URL + name)

    # --- what is done ---

    def kill_and_replace(self, name: str) -> None:
        self.picture.say(f"{name} is killed: the others of its group take its turns")
        self.detectors[name].kill()
        self.until(lambda: not self.is_connected(name), f"frames sees that {name} is gone")
        self.watch(self.pause)
        self.picture.say(f"{name} is started again")
        self.detectors[name] = self.start("detector", name)
        self.detectors[name].ready()
        before = self.sent_to(name)
        self.until(lambda: self.sent_to(name) > before, f"{name} has its turns again")

    def swap(self) -> None:
        self.picture.say("the table is swapped: detector-3 takes turns, too")
        self._replace_table("routes-three.toml")
        self.until(lambda: self.sent_to("detector-3") > 0, "frames goes by the new table")

    def _replace_table(self, name: str) -> None:
        new = self.table.with_suffix(".new")
        shutil.copy(HERE / name, new)
        new.replace(self.table)  # in one step: nobody reads half of it

    def stop_for_a_moment(self) -> None:
        def dropped() -> int:
            return sum(each.dropped for each in self.frames_status().endpoints)

        self.picture.say("all detectors are stopped: queues fill, and then the oldest frames are dropped")
        before = dropped()
        for each in self.detectors.values():
            each.signal(signal.SIGSTOP)
        try:
            self.until(lambda: dropped() > before, "frames drops some")
        finally:
            for each in self.detectors.values():
                each.signal(signal.SIGCONT)
        self.picture.say("they go on")

    def end(self) -> "Journal":
        """Ends the roles along the flow, so that each has handled all there is when its turn comes."""
        self.look()
        frames = self.frames.end()
        detectors = {name: process.end() for name, process in self.detectors.items()}
        return Journal(frames, detectors, self.fuser.end(), self.logger.end(), self.log)


class Journal:
    """What became of each frame: what the nodes have counted, beside the numbers of the frames in the log."""

    def __init__(self, frames: Report, detectors: dict[str, Report], fuser: Report, logger: Report, log: Path) -> None:
        numbers = [int(line.partition(",")[0]) for line in log.read_text(encoding="utf-8").splitlines()]
        self.sent = frames.made
        self.logged = len(set(numbers))
        self.twice = len(numbers) - self.logged
        self.out_of_order = sum(later < earlier for earlier, later in pairwise(numbers))
        reports = {"frames": frames, **detectors, "fuser": fuser, "logger": logger}
        self.lost = {"dropped by frames, as no detector had room": frames.dropped}
        for name in detectors:
            # A detector makes one detection of each frame: what does not reach the fuser was in its hands.
            gone = frames.sent.get(URL + name, 0) - fuser.handled.get(URL + name, 0)
            self.lost[f"in the hands of {name}"] = gone
        self.lost["between fuser and logger"] = fuser.made - sum(logger.handled.values())
        self.lost["refused, or not readable"] = sum(each.refused + each.unusable for each in reports.values())

    @property
    def adds_up(self) -> bool:
        return self.sent == self.logged + sum(self.lost.values()) and not self.twice

    def lines(self) -> Iterator[str]:
        yield f"{self.sent:>9,}  frames sent"
        yield f"{self.logged:>9,}  in the log"
        for cause, number in self.lost.items():
            yield f"{number:>9,}  lost: {cause}"
        yield f"{self.sent - self.logged - sum(self.lost.values()):>9,}  not accounted for"
        yield f"{self.twice:>9,}  in the log twice"
        yield f"{self.out_of_order:>9,}  in the log after a later one"


@contextmanager
def output(path: Path | None) -> Generator[Path, None, None]:
    """Where the table in force and the log are."""
    if path is None:
        with tempfile.TemporaryDirectory() as made:
            yield Path(made)
    else:
        path.mkdir(parents=True, exist_ok=True)
        yield path


def main() -> None:
    parser = argparse.ArgumentParser(description="frames through a pipeline of processes, of which one is killed")
    parser.add_argument("--seconds", type=float, default=10.0, help="about how long frames flow (default: 10)")
    parser.add_argument("--rate", type=float, default=1000.0, help="frames a second (default: 1000)")
    parser.add_argument("--output", type=Path, help="a directory for the log, which is thrown away otherwise")
    options = parser.parse_args()
    picture = Picture(sys.stdout, live=sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    with output(options.output) as directory, ExitStack() as stack:
        pipeline = Pipeline(directory, options, picture, stack)
        picture.say("frames flow")
        pipeline.until(lambda: pipeline.sent_to("detector-2") > 0, "both detectors have their turns")
        pipeline.watch(pipeline.pause)
        pipeline.kill_and_replace("detector-1")
        pipeline.watch(pipeline.pause)
        pipeline.swap()
        pipeline.watch(pipeline.pause)
        pipeline.stop_for_a_moment()
        pipeline.watch(pipeline.pause)
        journal = pipeline.end()
    print("\n".join(("", *journal.lines())))
    if not journal.adds_up:
        raise SystemExit("the journal does not add up")


if __name__ == "__main__":
    main()
