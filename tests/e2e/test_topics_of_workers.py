"""Topics with a name: one for all workers of a server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .topics_program import Room, Said
from .workers_program import WorkersProcess, is_alive

PATIENCE = 25.0
ROOM = "tests.e2e.topics_program:Room"
LOGGED = "tests.e2e.topics_program:logged"


class Listener:
    """Keeps what a stream gives."""

    def __init__(self, stream: Any) -> None:
        self.heard: list[Any] = []
        self.error: nearcall.RpcError | None = None
        self._stream = stream
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for item in self._stream:
                with self._news:
                    self.heard.append(item)
                    self._news.notify_all()
        except nearcall.RpcError as error:
            self.error = error
        with self._news:
            self._news.notify_all()

    def wait(self, check: Callable[[Listener], bool], seconds: float = PATIENCE) -> bool:
        """Waits until what was heard is enough."""
        with self._news:
            return self._news.wait_for(lambda: check(self), seconds)

    def end(self) -> None:
        self._stream.close()
        self._thread.join(PATIENCE)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def rooms(stack: ExitStack, url: str, count: int) -> list[Room]:
    """Clients, each of another worker."""
    return [stack.enter_context(nearcall.connect(url, Room)) for _ in range(count)]


def listen(stack: ExitStack, stream: Any) -> Listener:
    listener = Listener(stream)
    stack.callback(listener.end)
    return listener


def meet(speakers: list[Room], listeners: list[Listener]) -> None:
    """Waits until every listener hears every speaker: workers find each other after they have begun."""
    for speaker in speakers:
        for listener in listeners:
            pid = speaker.say(1)
            while not listener.wait(lambda one, pid=pid: any(item.by == pid for item in one.heard), 0.1):  # type: ignore[misc]
                speaker.say(1)


def by(listener: Listener, pid: int) -> list[int]:
    return [item.number for item in listener.heard if item.by == pid]


def test_what_one_worker_publishes_reaches_the_subscribers_of_all(tmp_path: Path, stack: ExitStack) -> None:
    with WorkersProcess(f"unix://{tmp_path}/room.sock", workers=3, maker=ROOM) as served:
        crew = rooms(stack, served.url, 3)
        assert len({room.pid() for room in crew}) == 3
        listeners = [listen(stack, room.all()) for room in crew]
        meet(crew, listeners)
        anything = listen(stack, crew[2].anything())
        speakers = [threading.Thread(target=room.say, args=(200,)) for room in crew]
        for speaker in speakers:
            speaker.start()
        for listener in listeners:
            for room in crew:
                pid = room.pid()
                assert listener.wait(lambda one, pid=pid: by(one, pid)[-1:] == [199])  # type: ignore[misc]
                # In order, none of them twice; before them came those of the meeting.
                assert by(listener, pid)[-200:] == list(range(200))
                assert set(by(listener, pid)[:-200]) == {0}
        assert anything.wait(lambda one: one.heard[-1:] == [(199, {"a"})])
        for speaker in speakers:
            speaker.join(PATIENCE)


def test_a_new_subscriber_gets_the_last_item_of_any_worker(tmp_path: Path, stack: ExitStack) -> None:
    with WorkersProcess(f"unix://{tmp_path}/room.sock", workers=2, maker=ROOM) as served:
        crew = rooms(stack, served.url, 2)
        first = listen(stack, crew[1].said())
        meet(crew[:1], [first])
        assert crew[0].say(3) == crew[0].pid()
        assert first.wait(lambda one: one.heard[-1:] == [Said(crew[0].pid(), 2)])
        for stream in (crew[1].said(), crew[1].made_late(), crew[0].made_late()):
            with stream:  # type: ignore[attr-defined]
                assert next(stream) == Said(crew[0].pid(), 2)


def test_workers_agree_on_the_last_item(tmp_path: Path, stack: ExitStack) -> None:
    """What is published after the reply to another call is the last, though another worker may hear of it sooner."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with WorkersProcess(f"unix://{tmp_path}/room.sock", workers=2, maker=ROOM) as served:
        crew = rooms(stack, served.url, 2)
        listeners = [listen(stack, room.said()) for room in crew]
        meet(crew, listeners)
        older, last = Said(crew[0].pid(), 1), Said(crew[1].pid(), 2)
        marking = threading.Thread(target=crew[1].mark_when_told, args=(2, str(pipe)))
        marking.start()
        with pipe.open("wb") as told:  # from now on the second worker hears nothing
            crew[0].mark(1)
            told.write(b"!")
        marking.join(PATIENCE)
        for listener in listeners:
            assert listener.wait(lambda one: {1, 2} <= {item.number for item in one.heard})
        for room, listener in zip(crew, listeners, strict=True):
            # Whoever has listened all the time ends with it, too.
            assert listener.wait(lambda one: one.heard[-1] == last)
            assert listener.heard.count(older) == 1
            with room.said() as stream:  # type: ignore[attr-defined]
                assert next(stream) == last


def test_a_new_worker_hears_the_others_and_is_heard(tmp_path: Path, stack: ExitStack) -> None:
    directory = Path(os.environ["NEARCALL_RUNTIME_DIR"]) if "NEARCALL_RUNTIME_DIR" in os.environ else None
    with WorkersProcess(f"unix://{tmp_path}/room.sock", workers=2, maker=ROOM) as served:
        crew = rooms(stack, served.url, 2)
        listener = listen(stack, crew[1].all())
        meet(crew[:1], [listener])
        killed = crew[0].pid()
        os.kill(killed, signal.SIGKILL)
        # At its next call the client of the dead worker is with another one; new clients come to the new one.
        while is_alive(killed) or (newcomer := rooms(stack, served.url, 1)[0]).pid() in (killed, crew[1].pid()):
            pass
        listeners = [listener, listen(stack, newcomer.all())]
        meet([newcomer, crew[1]], listeners)
        if directory is not None:
            assert not (directory / f"topics-{killed}").exists()


def test_a_worker_that_is_too_slow_says_what_is_lost(tmp_path: Path, stack: ExitStack) -> None:
    with WorkersProcess(f"unix://{tmp_path}/room.sock", workers=2, maker=ROOM) as served:
        crew = rooms(stack, served.url, 2)
        every, some = listen(stack, crew[1].all()), listen(stack, crew[1].some())
        meet(crew[:1], [every, some])
        hog = threading.Thread(target=crew[1].hog, args=(2,))
        hog.start()
        crew[0].say(40, 1 << 20)
        hog.join(PATIENCE)
        assert every.wait(lambda one: one.error is not None)
        assert isinstance(every.error, nearcall.ResourceExhausted)
        assert "this one was too slow for them; listen again" in str(every.error)
        # Those that may miss items go on, and learn how many at their end.
        assert some.error is None
        meet(crew[:1], [some])


def test_a_worker_that_was_too_slow_has_the_newest_items(tmp_path: Path, stack: ExitStack) -> None:
    with WorkersProcess(f"unix://{tmp_path}/room.sock", workers=2, maker=ROOM) as served:
        crew = rooms(stack, served.url, 2)
        with nearcall.metadata() as told:
            some = listen(stack, crew[1].some())
        meet(crew[:1], [some])
        crew[0].say(3)
        assert some.wait(lambda one: one.heard[-1].number == 2)
        before = len(some.heard)
        stopped = crew[1].pid()
        os.kill(stopped, signal.SIGSTOP)
        try:
            crew[0].keep(5)
            crew[0].say(40, 1 << 20)
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert some.wait(lambda one: one.heard[-1].number == 39)
        with crew[1].said() as stream:  # type: ignore[attr-defined]
            assert next(stream).number == 39
        with crew[1].kept() as kept:  # type: ignore[attr-defined]
            assert next(kept) == 5  # though all that followed it was of other topics
        crew[1].end_some()
        some.end()
        assert int(told.trailing["nearcall-missed"]) == 40 - (len(some.heard) - before)


def test_topics_of_one_name_are_one_in_a_process_too() -> None:
    first, second = nearcall.Topic[int](name="pair", keep_last=True), nearcall.Topic[int](name="pair", keep_last=True)

    @nearcall.service
    class Pair:
        def first(self) -> Iterator[int]:
            return first.subscribe()

        def second(self) -> Iterator[int]:
            return second.subscribe()

    first.publish(1)
    with nearcall.Server(Pair(), "inproc://pair"), nearcall.connect("inproc://pair", Pair) as pair:
        streams = pair.first(), pair.second()
        assert [next(stream) for stream in streams] == [1, 1]
        assert second.publish(2) == 2
        assert [next(stream) for stream in streams] == [2, 2]


def test_what_killed_workers_have_left_is_removed(tmp_path: Path, stack: ExitStack) -> None:
    with WorkersProcess(f"unix://{tmp_path}/room.sock", workers=2, maker=ROOM) as served:
        crew = rooms(stack, served.url, 2)
        meet(crew, [listen(stack, crew[1].all())])
        served.end(signal.SIGKILL, whole_group=True)
    left = {f"topics-{pid}" for pid in served.pids}
    directory, _ = nearcall._core.named_servers()
    assert left <= set(os.listdir(directory))
    with WorkersProcess(f"unix://{tmp_path}/next.sock", workers=2, maker=LOGGED) as served:
        crew = rooms(stack, served.url, 2)
        meet(crew, [listen(stack, crew[1].all())])
        assert not [name for name in os.listdir(directory) if name.removesuffix(".lock") in left]
        # And that it serves the other workers is no news.
        assert "serving at" in served.errors()
        assert "topics-" not in served.errors()


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(TypeError, match=r"make it with their type, as nearcall\.Topic\[float\]\(name='untyped'\)"):
        nearcall.Topic(name="untyped")
    typed = nearcall.Topic[int](name="typed")
    with pytest.raises(nearcall.InvalidArgument, match="argument 'item' must be int, got str"):
        typed.publish("1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'typed' has <class 'int'> already, and cannot have <class 'str'>"):
        nearcall.Topic[str](name="typed")
    with pytest.raises(TypeError, match="belong to one client"):
        nearcall.Topic[Callable[[], None]](name="functions")
    with pytest.raises(TypeError, match="object cannot be encoded"):
        nearcall.Topic[object](name="objects")
    for name in ("", "x" * 1001, 3):
        with pytest.raises(ValueError, match="the name of a topic is a text of 1 to 1000 characters"):
            nearcall.Topic[int](name=name)  # type: ignore[arg-type]
