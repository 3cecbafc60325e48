"""The soak: ``python -m tests.soak.driver SECONDS CLIENTS SEED DIRECTORY``.

One server, over every transport between processes at once, and many clients that come and go, are killed, and see the
server killed. Beside them are peers that call and never read, clients and servers that are stopped for a while, and
servers that hang in their handshakes. Every call is accounted for in a journal that outlives its client. Now and then
all clients go: then the server must hold what it held at the beginning. Ends with a summary, and with 0 if all is well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

import nearcall

from ..e2e.ports import own_port
from ..e2e.process import ServerProcess
from ..hostile import raw
from ..hostile.frames import CALL, PING, frame
from ..survival.observing import Holdings, comes_back_to, resident
from . import client as soaking
from .client import Soaker
from .journal import FIELDS, SERVER_FIELDS, Journal
from .services import JOURNAL, ROWS, Soaked

MOST_CLIENTS = 100_000
OFFENDERS = 3
"""Peers that never read, at a time."""
CONCURRENCY = 6
"""Threads or tasks of a client at most: so many of its calls can be under way when it is killed."""
STOPPED = 0.5
"""Seconds that a client or the server is stopped: it reads nothing, and its peers do not know why."""
GROWTH, SLACK = 1.25, 16 << 20
"""What the server's memory may become from its first rest to its last: allocators keep what threads once needed."""


HARM = ("offenders", "stopped clients", "stopped servers")


class Hanging:
    """Servers that accept and never say a word."""

    def __init__(self, directory: Path) -> None:
        path = directory / "hanging"
        path.unlink(missing_ok=True)
        self._sockets = [socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 0))]
        self._sockets[0].bind(str(path))
        self._path = path
        self.urls = [f"unix://{path}", f"tcp://127.0.0.1:{self._sockets[1].getsockname()[1]}"]
        self._accepted: list[tuple[float, socket.socket]] = []
        for one in self._sockets:
            one.listen(256)
            one.setblocking(False)

    def accept(self) -> None:
        """Whoever has come; forgets those that have waited long enough."""
        now = time.monotonic()
        for one in self._sockets:
            with contextlib.suppress(BlockingIOError):
                self._accepted.append((now, one.accept()[0]))
        while self._accepted and now - self._accepted[0][0] > 2:
            self._accepted.pop(0)[1].close()

    def close(self) -> None:
        for one in (*self._sockets, *(held for _, held in self._accepted)):
            one.close()
        self._path.unlink(missing_ok=True)


@dataclass
class Living:
    """A client that runs."""

    row: int
    url: str
    face: str
    servers: int
    doomed_at: float | None
    stops_at: float | None = None
    goes_on_at: float | None = None
    killed: bool = False


class Soak:
    """Everything that the driver knows."""

    def __init__(self, seconds: float, clients: int, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.seconds = seconds
        self.patience = 90.0 if seconds > 60 else 20.0
        self.clients = clients
        self.directory = directory
        os.environ[JOURNAL] = str(directory / "delivered")
        os.environ[ROWS] = str(MOST_CLIENTS)
        for name in ("journal", "delivered"):
            # What another soak has counted is not counted again.
            directory.joinpath(name).unlink(missing_ok=True)
        self.journal = Journal(directory / "journal", MOST_CLIENTS)
        self.delivered = Journal(directory / "delivered", MOST_CLIENTS)
        # Left to itself, glibc learns from messages of some megabytes to keep as much in each thread's arena for ever.
        # That would hide what the server itself keeps.
        os.environ["MALLOC_TRIM_THRESHOLD_"] = str(1 << 20)
        self.hanging = Hanging(directory)
        self.urls = [f"shm://soak-{os.getpid()}", f"unix://{directory}/soak", f"tcp://127.0.0.1:{own_port()}"]
        self.living: dict[int, Living] = {}
        self.offenders: dict[int, str] = {}
        self.rows = 0
        self.servers = 0
        self.sums = dict.fromkeys(
            (*FIELDS, *SERVER_FIELDS, "unknown", "killed clients", "killed servers", "lost by a death", *HARM), 0
        )
        self.faces: dict[str, int] = {}
        self.complaints: list[str] = []
        self.begun = time.monotonic()
        self.rests: list[tuple[int, int, Holdings]] = []
        self.server = self.start_server()

    def start_server(self) -> ServerProcess:
        self.servers += 1
        return ServerProcess(*self.urls, services="tests.soak.services:served")

    def start_client(self) -> None:
        row = self.rows
        self.rows += 1
        url = self.random.choice(self.urls)
        face = self.random.choice(["threads", "tasks"])
        life = self.random.uniform(0.2, 4.0)
        concurrency = self.random.randrange(1, CONCURRENCY + 1)
        doomed = self.random.uniform(0.1, life) if self.random.random() < 0.3 else None
        seed = self.random.randrange(1 << 60)
        pid = os.fork()
        if pid == 0:
            self.be_client(row, seed, url, face, time.monotonic() + life, concurrency)
        kind = f"{url.partition(':')[0]}, {face}"
        self.faces[kind] = self.faces.get(kind, 0) + 1
        at = None if doomed is None else time.monotonic() + doomed
        stops = time.monotonic() + self.random.uniform(0.1, life) if self.random.random() < 0.2 else None
        self.living[pid] = Living(row, url, face, self.servers, at, stops)

    def start_offender(self) -> None:
        """A peer that calls and never reads."""
        url, life, seed = self.random.choice(self.urls), self.random.uniform(0.2, 2.0), self.random.random()
        self.sums["offenders"] += 1
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                offend(url, time.monotonic() + life, random.Random(seed))
                status = 0
            except BaseException as error:
                print(f"an offender over {url}: {type(error).__name__}: {error}", flush=True)
            finally:
                os._exit(status)
        self.offenders[pid] = url

    def be_client(self, row: int, seed: int, url: str, face: str, until: float, concurrency: int) -> None:
        status = 1
        try:
            soaker = Soaker(row, seed, self.journal, self.directory / "large")
            if soaker.random.random() < 0.2:
                soaking.try_in_vain(soaker, soaker.random.choice(self.hanging.urls))
            if face == "threads":
                soaking.soak_in_threads(soaker, url, until, concurrency)
            else:
                asyncio.run(soaking.soak_in_tasks(soaker, url, until, concurrency))
            self.journal.add(row, soaking.DONE)
            status = 0
        except BaseException as error:
            print(f"client {row} over {url}, {face}: {type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(status)

    def kill_server(self) -> None:
        self.server.kill()
        self.server.__exit__(None, None, None)
        self.sums["killed servers"] += 1
        self.server = self.start_server()

    def reap(self) -> None:
        """Judges the clients that have ended since."""
        for pid, client in list(self.living.items()):
            if client.doomed_at is not None and time.monotonic() >= client.doomed_at and not client.killed:
                client.killed = True
                os.kill(pid, signal.SIGKILL)
            self.stop_and_go_on(pid, client)
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                del self.living[pid]
                self.judge(client, os.waitstatus_to_exitcode(status))
        for pid, url in list(self.offenders.items()):
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                del self.offenders[pid]
                if os.waitstatus_to_exitcode(status) != 0:
                    self.complaints.append(f"an offender over {url} ended with {os.waitstatus_to_exitcode(status)}")
        self.hanging.accept()

    def stop_and_go_on(self, pid: int, client: Living) -> None:
        """A client that is stopped reads nothing for a while. It ends later, and is otherwise as others."""
        now = time.monotonic()
        if client.stops_at is not None and now >= client.stops_at:
            client.stops_at, client.goes_on_at = None, now + STOPPED
            self.sums["stopped clients"] += 1
            os.kill(pid, signal.SIGSTOP)
        elif client.goes_on_at is not None and now >= client.goes_on_at:
            client.goes_on_at = None
            os.kill(pid, signal.SIGCONT)

    def judge(self, client: Living, status: int) -> None:
        calls = self.journal.row(client.row, FIELDS)
        server = self.delivered.row(client.row, SERVER_FIELDS)
        ended = calls["replied"] + calls["failed"] + calls["cancelled"] + calls["late"]
        unknown = calls["begun"] - ended
        killed = client.killed and status == -signal.SIGKILL
        saw_death = client.servers != self.servers
        missing = calls["oneway_begun"] - server["delivered"]
        who = f"client {client.row} over {client.url}, {client.face}"
        complain = self.complaints.append
        if killed:
            self.sums["killed clients"] += 1
            # Between an outcome and its count there is a moment, too.
            if not 0 <= unknown <= CONCURRENCY:
                complain(f"{who}: {unknown} calls have no outcome")
        else:
            if status != 0:
                complain(f"{who} ended with {status}")
            if unknown:
                complain(f"{who}: {unknown} calls have no outcome")
        if calls["failed"] and not saw_death:
            complain(f"{who}: {calls['failed']} calls failed, and no server had died")
        if missing < 0 or server["disordered"]:
            complain(f"{who}: one-way calls came twice or out of order: {calls} {server}")
        if missing and not killed and not saw_death:
            complain(f"{who}: {missing} one-way calls were lost, and nobody had died")
        if calls["wrong"]:
            complain(f"{who}: {calls['wrong']} wrong answers")
        self.sums["lost by a death"] += max(missing, 0)
        self.sums["unknown"] += unknown
        for names in (calls, server):
            for name, count in names.items():
                self.sums[name] += count

    def round(self, seconds: float, deadly: bool) -> None:
        """Clients come and go for a while; then all go, and the server rests."""
        now = time.monotonic()
        end, shown, stopped = now + seconds, now, False
        server_dies = now + self.random.uniform(0.2, 0.8) * seconds if deadly else None
        while time.monotonic() < end and self.rows < MOST_CLIENTS:
            while len(self.living) < min(self.clients, MOST_CLIENTS - self.rows) and time.monotonic() < end:
                self.start_client()
            self.reap()
            if len(self.offenders) < OFFENDERS and self.random.random() < 0.02:
                self.start_offender()
            if now + seconds / 2 <= time.monotonic() and not stopped:
                # Newcomers find a server that hangs in its handshake, the others one that does not read.
                stopped = True
                self.sums["stopped servers"] += 1
                os.kill(self.server.pid, signal.SIGSTOP)
                time.sleep(STOPPED)
                os.kill(self.server.pid, signal.SIGCONT)
            if server_dies is not None and time.monotonic() >= server_dies:
                server_dies = None
                self.kill_server()
            if time.monotonic() >= shown + 1:
                shown = time.monotonic()
                self.show()
            time.sleep(0.005)
        patience = time.monotonic() + self.patience
        while (self.living or self.offenders) and time.monotonic() < patience:
            self.reap()
            if time.monotonic() >= shown + 1:
                shown = time.monotonic()
                self.show()
            time.sleep(0.005)
        for pid, client in list(self.living.items()):
            self.complaints.append(f"client {client.row} over {client.url}, {client.face} does not end")
            # Shows where it hangs, with -X faulthandler.
            os.kill(pid, signal.SIGABRT)
        self.rest()

    def rest(self) -> None:
        """Nobody is there: what does the server hold?"""
        pid = self.server.pid
        if seats := self.seats_left():
            self.complaints.append(f"{seats} objects were not let go of when all who held them had gone")
            self.patience = 1.0
        earlier = [held for server, _, held in self.rests if server == pid]
        if earlier:
            try:
                comes_back_to(pid, earlier[0], threads=4)
            except AssertionError as error:
                self.complaints.append(f"the server holds more and more: {error}")
        self.rests.append((pid, resident(pid), Holdings.of(pid)))

    def seats_left(self) -> int:
        """Objects of the server that somebody holds, when that comes to an end."""
        patience = time.monotonic() + self.patience
        # A client that passes objects would have threads, and this process forks.
        with nearcall.connect(self.urls[1], Soaked, timeout=self.patience) as soaked:
            while (seats := soaked.seats()) and time.monotonic() < patience:
                time.sleep(0.01)
        return seats

    def show(self) -> None:
        totals = dict.fromkeys(("begun", "replied"), 0)
        for client in self.living.values():
            for name in totals:
                totals[name] += self.journal.get(client.row, FIELDS.index(name))
        print(
            f"{time.monotonic() - self.begun:6.0f} s  clients {len(self.living):3} of {self.rows:5}  "
            f"calls {self.sums['begun'] + totals['begun']:9,}  replied {self.sums['replied'] + totals['replied']:9,}  "
            f"killed {self.sums['killed clients']:5} clients {self.sums['killed servers']:3} servers  "
            f"server {resident(self.server.pid) >> 20:4} MiB  complaints {len(self.complaints)}",
            flush=True,
        )

    def run(self) -> int:
        # Enough rounds to see the server rest several times after its last death.
        rounds = 6 if self.seconds < 60 else max(12, round(self.seconds / 30))
        for number in range(rounds):
            left = self.begun + self.seconds - time.monotonic()
            self.round(left / (rounds - number), deadly=number < rounds // 2 and number % 2 == 0)
        mine = [memory for server, memory, _ in self.rests if server == self.server.pid]
        # The first rest may be short after the start.
        first, last = mine[min(1, len(mine) - 1)], mine[-1]
        if last > first * GROWTH + SLACK:
            self.complaints.append(f"the server's memory grew from {first >> 20} to {last >> 20} MiB")
        before, after = self.rests[-len(mine)][2], self.rests[-1][2]
        self.server.__exit__(None, None, None)
        self.hanging.close()
        self.summary(first, last, before, after)
        return 1 if self.complaints else 0

    def summary(self, first: int, last: int, before: Holdings, after: Holdings) -> None:
        sums = self.sums
        print(f"\nsoak of {time.monotonic() - self.begun:.0f} s, {self.rows} clients: {json.dumps(self.faces)}")
        print(
            f"calls begun {sums['begun']:,} = replied {sums['replied']:,} + failed {sums['failed']:,} + cancelled "
            f"{sums['cancelled']:,} + late {sums['late']:,} + unknown {sums['unknown']:,} (their client was killed)"
        )
        print(
            f"one-way begun {sums['oneway_begun']:,} = delivered {sums['delivered']:,} + lost by a death "
            f"{sums['lost by a death']:,}; twice or out of order {sums['disordered']:,}"
        )
        print(
            f"wrong answers {sums['wrong']}; killed {sums['killed clients']} clients, {sums['killed servers']} servers"
        )
        print(
            f"beside {sums['offenders']} peers that never read; stopped for {STOPPED:g} s: {sums['stopped clients']} "
            f"clients, the server {sums['stopped servers']} times"
        )
        print(
            f"server at its rests: memory {first >> 20} MiB, at the end {last >> 20} MiB; descriptors "
            f"{before.descriptors}, {after.descriptors}; threads {before.threads}, {after.threads}; "
            f"shared memory {before.regions}, {after.regions}"
        )
        for complaint in self.complaints:
            print(f"COMPLAINT {complaint}")
        print(
            "soak:", "all is accounted for" if not self.complaints else f"{len(self.complaints)} complaints", flush=True
        )


def offend(url: str, until: float, chance: random.Random) -> None:
    """Calls, pings, and reads nothing. The server may hang up, or be gone."""
    with contextlib.suppress(raw.Gone, OSError), raw.connect(url) as peer:
        method, data = peer.methods["echo"], bytes(chance.choice([0, 10_000, 150_000]))
        call = msgspec.msgpack.encode([1, 2]) + data
        frames = [frame(CALL, call, method=method, call=number, parts=[len(data)]) for number in range(20)]
        frames += [frame(PING, bytes(1000), call=100 + number) for number in range(50)]
        while time.monotonic() < until:
            peer.flood(frames, 0.1)
            time.sleep(0.01)


def main() -> None:
    seconds, clients, seed, directory = sys.argv[1:]
    sys.exit(Soak(float(seconds), int(clients), int(seed), Path(directory)).run())


if __name__ == "__main__":
    main()
