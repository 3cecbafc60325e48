"""Calls during a call: handlers that wait for their own callers, and what becomes of them when the server stops."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Queue

import pytest

import nearcall

from .deadlines import longer_and_longer
from .events import Hung
from .process import ServerProcess
from .reference_services import Hub
from .services import PATIENCE


@nearcall.service
class Player:
    def turn(self, left: int) -> int: ...


@nearcall.service
class Game:
    def play(self, left: int, player: Player) -> int: ...


class Host(Game):
    def play(self, left: int, player: Player) -> int:
        return 1 + player.turn(left) if left else 0


class Guest(Player):
    """Plays on, by a call of the game inside the game's call of it."""

    def __init__(self, game: Game) -> None:
        self._game = game

    def turn(self, left: int) -> int:
        return 1 + self._game.play(left - 1, self)


class Thinker(Player):
    """Does not answer before it is told to."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.told = threading.Event()

    def turn(self, left: int) -> int:
        self.asked.set()
        self.told.wait(PATIENCE)
        return left


def in_threads(count: int, run: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_one_worker_is_enough_for_calls_inside_calls(new_url: str) -> None:
    with (
        nearcall.Server(Host(), new_url, max_concurrency=1) as server,
        nearcall.connect(server.urls[0], Game) as game,
    ):
        assert game.play(20, Guest(game)) == 40
        scores: list[int] = []
        for thread in in_threads(8, lambda: scores.append(game.play(8, Guest(game)))):
            thread.join(PATIENCE)
        assert scores == [16] * 8


def test_a_server_that_stops_does_not_wait_for_replies_of_its_clients(new_url: str) -> None:
    thinker = Thinker()
    failures: list[nearcall.Unavailable] = []
    with nearcall.Server(Host(), new_url) as server, nearcall.connect(server.urls[0], Game) as game:

        def play() -> None:
            with pytest.raises(nearcall.Unavailable) as caught:
                game.play(1, thinker)
            failures.append(caught.value)

        (thread,) = in_threads(1, play)
        assert thinker.asked.wait(PATIENCE)
        assert not server.stop(grace=0.1), "the call was cut off"
        thread.join(PATIENCE)
        thinker.told.set()
    assert len(failures) == 1


def test_the_server_is_not_kept_from_others_while_a_handler_waits(new_url: str) -> None:
    thinker = Thinker()
    scores: list[int] = []
    with (
        nearcall.Server(Host(), new_url, max_concurrency=1) as server,
        nearcall.connect(server.urls[0], Game) as game,
        nearcall.connect(server.urls[0], Game) as other,
    ):
        (thread,) = in_threads(1, lambda: scores.append(game.play(1, thinker)))
        assert thinker.asked.wait(PATIENCE)
        assert other.play(3, Guest(other)) == 6
        assert game.play(2, Guest(game)) == 4
        thinker.told.set()
        thread.join(PATIENCE)
    assert scores == [2]


def wake_ups_of_others() -> int:
    """How often threads of this process have slept, without the caller and what reads from a broker."""
    own = threading.get_native_id()
    lines: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile
            if int(task.name) != own and (task / "comm").read_text().strip() != "nearcall-nats":
                lines += (task / "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.slow
def test_who_calls_again_and_again_receives_by_itself(outside_url: str) -> None:
    services = "tests.e2e.reference_services:in_threads"
    with ServerProcess(outside_url, services=services) as server, nearcall.connect(server.url, Hub) as hub:
        rounds: list[int] = []
        # On a busy machine a worker may take the lead from a caller now and then.
        while len(rounds) < 5 and min(rounds, default=1000) > 250:
            before = wake_ups_of_others()
            for _ in range(1000):
                hub.ended()
            rounds.append(wake_ups_of_others() - before)
        assert min(rounds) <= 250, f"a worker received the replies, and woke the caller: {rounds}"


@nearcall.service
class Seat:
    def number(self) -> int: ...


@nearcall.service
class Room:
    def seat(self) -> Seat: ...


class OwnSeat(Seat):
    """Does what the test wants when nobody refers to it any more."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def number(self) -> int:
        return 1

    def close(self) -> None:
        self._end()


class OwnRoom(Room):
    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def seat(self) -> Seat:
        return OwnSeat(self._end)


def test_a_server_that_stops_does_not_wait_for_ever_for_objects(
    new_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = Hung(2)
    monkeypatch.setattr("nearcall.call.departures.time", hung.clock)
    server = nearcall.Server(OwnRoom(hung), new_url).start()
    with nearcall.connect(server.urls[0], Room) as room:
        seats = [room.seat() for _ in range(2)]
        with caplog.at_level(logging.WARNING, "nearcall"):
            server.stop(grace=0.05)
    hung.over.set()
    assert "stops without waiting longer for OwnSeat.close (2 times)" in caplog.text
    assert len(seats) == 2


def test_the_end_of_an_object_may_stop_the_server(new_url: str) -> None:
    """It does not wait for itself: that would take all the grace, which here is longer than the test."""
    stopped: Queue[bool] = Queue()
    server = nearcall.Server(OwnRoom(lambda: stopped.put(server.stop(grace=1000))), new_url).start()
    with nearcall.connect(server.urls[0], Room) as room:
        assert room.seat().number() == 1
        assert stopped.get(timeout=PATIENCE)
    assert server.wait(PATIENCE)


@nearcall.service
class Crowd:
    def hold(self, players: list[Player]) -> int: ...
    def let_go(self) -> None: ...


class OwnCrowd(Crowd):
    def __init__(self) -> None:
        self._held: list[Player] = []

    def hold(self, players: list[Player]) -> int:
        self._held += players
        return len(self._held)

    def let_go(self) -> None:
        self._held.clear()


@pytest.mark.parametrize("most", [2, 5])
def test_how_many_objects_a_client_gives_is_its_own_choice(new_url: str, most: int) -> None:
    with (
        nearcall.Server(OwnCrowd(), new_url) as server,
        nearcall.connect(server.urls[0], Crowd, max_references=most) as crowd,
    ):
        assert crowd.hold([Thinker() for _ in range(most)]) == most
        with pytest.raises(nearcall.ResourceExhausted, match=rf"holds {most} objects .* raise it with max_references"):
            crowd.hold([Thinker()])
        crowd.let_go()
        assert crowd.hold([Thinker() for _ in range(most)]) == most


_pause = threading.Event()


@nearcall.service
class Hall:
    def late_seat(self) -> Seat: ...


class OwnHall(Hall):
    """Gives seats to callers that have gone."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.ended: Queue[str] = Queue()

    def late_seat(self) -> Seat:
        self.begun.release()
        # Nobody tells a handler that its caller has given up: it has to look.
        while not nearcall.context().cancelled:
            _pause.wait(0.001)
        return OwnSeat(lambda: self.ended.put("late"))


def test_an_object_for_a_caller_that_has_given_up_is_ended(new_url: str) -> None:
    """The connection stays: nobody else would ever end it."""
    hall = OwnHall()
    with nearcall.Server(hall, new_url) as server, nearcall.connect(server.urls[0], Hall) as client:
        for _ in range(3):
            for seconds in longer_and_longer(0.02):
                with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
                    client.late_seat()
                if hall.begun.acquire(blocking=False):
                    break
        assert [hall.ended.get(timeout=PATIENCE) for _ in range(3)] == ["late"] * 3
