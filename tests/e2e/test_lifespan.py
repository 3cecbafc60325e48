"""What a server enters before it serves, and leaves when it has served: in a thread, or in its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import nearcall
from nearcall.server.lifespan import Lifespan

from .process import start_program

SECONDS = 10.0


class Log(list[str]):
    """What has happened, in order."""


@nearcall.service
class Quiet:
    def nothing(self) -> None: ...


def test_around_everything(new_url: str) -> None:
    """Before the first client comes, after the last has gone, in one thread; and handlers get what it yields."""
    happened = Log()

    def lifespan(server: nearcall.Server) -> Iterator[int]:
        me = threading.get_ident()
        assert me != main
        happened.append(f"up {len(server.urls)}")
        yield 7
        assert threading.get_ident() == me
        happened.append("down")

    @nearcall.service
    class Sevens:
        def get(self, *, n: int = nearcall.depends(lifespan)) -> int:
            happened.append("called")
            return n

        async def get_in_loop(self, *, n: int = nearcall.depends(lifespan)) -> int:
            return n

    main = threading.get_ident()
    with nearcall.Server(
        Sevens(),
        new_url,
        lifespan=lifespan,
        on_connect=lambda client: happened.append("came"),
        on_disconnect=lambda client: happened.append("left"),
    ) as server:
        client = nearcall.connect(server.urls[0], Sevens)
        assert client.service.get() == 7
        assert client.service.get_in_loop() == 7
    assert happened == ["up 1", "came", "called", "left", "down"]
    client.close()


def test_in_the_loop(new_url: str) -> None:
    """In one task of the loop in which coroutine handlers run; task groups need that."""
    happened = Log()

    @contextlib.asynccontextmanager
    async def lifespan(server: nearcall.Server) -> AsyncIterator[asyncio.AbstractEventLoop]:
        task = asyncio.current_task()
        await asyncio.sleep(0)
        yield asyncio.get_running_loop()
        assert asyncio.current_task() is task
        await asyncio.sleep(0)
        happened.append("down")

    @nearcall.service
    class Loops:
        async def same(self, *, loop: asyncio.AbstractEventLoop = nearcall.depends(lifespan)) -> bool:
            return asyncio.get_running_loop() is loop

        def from_a_thread(self, *, loop: asyncio.AbstractEventLoop = nearcall.depends(lifespan)) -> bool:
            return loop.is_running()

    with (
        nearcall.Server(Loops(), new_url, lifespan=lifespan) as server,
        nearcall.connect(server.urls[0], Loops) as client,
    ):
        assert client.same()
        assert client.from_a_thread()
    assert happened == ["down"]


async def only_in_loop(server: nearcall.Server) -> AsyncIterator[int]:
    yield 3


@nearcall.service
class Threes:
    def get(self, *, n: int = nearcall.depends(only_in_loop)) -> int:
        return n


def test_an_undecorated_generator_and_a_server_without_coroutines(key: str) -> None:
    with (
        nearcall.Server(Threes(), f"inproc://{key}", lifespan=only_in_loop) as server,
        nearcall.connect(server.urls[0], Threes) as client,
    ):
        assert client.get() == 3
    with (
        nearcall.Server(Threes(), f"inproc://{key}", overrides={only_in_loop: lambda: 4}) as server,
        nearcall.connect(server.urls[0], Threes) as client,
    ):
        assert client.get() == 4
    with pytest.raises(TypeError, match=r"parameter 'server'; .* write Server\(lifespan="):
        nearcall.Server(Threes(), f"inproc://{key}")


def test_calls_under_way_are_finished_before_it_is_left(key: str) -> None:
    happened = Log()
    begun = threading.Event()

    def lifespan(server: nearcall.Server) -> Iterator[None]:
        yield
        happened.append("down")

    @nearcall.service
    class Slow:
        def wait(self) -> None:
            begun.set()
            assert server._stopped.wait(0.2) is False
            happened.append("finished")

    server = nearcall.Server(Slow(), f"inproc://{key}", lifespan=lifespan).start()
    with nearcall.connect(server.urls[0], Slow) as client:
        caller = threading.Thread(target=client.wait)
        caller.start()
        assert begun.wait(SECONDS)
        assert server.stop(SECONDS)
        caller.join()
    assert happened == ["finished", "down"]


def fails_in_thread(server: nearcall.Server) -> Iterator[None]:
    raise LookupError("there is no database")
    yield


async def fails_in_loop(server: nearcall.Server) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    raise LookupError("there is no database")
    yield


@pytest.mark.parametrize("lifespan", [fails_in_thread, fails_in_loop])
def test_a_server_that_cannot_begin(lifespan: Any, key: str) -> None:
    threads = set(threading.enumerate())
    server = nearcall.Server(Quiet(), f"shm://{key}", lifespan=lifespan)
    with pytest.raises(LookupError, match="there is no database"):
        server.start()
    assert {thread for thread in set(threading.enumerate()) - threads if thread.is_alive()} == set()
    with pytest.raises(RuntimeError, match="stopped"):
        server.start()
    nearcall.Server(Quiet(), f"shm://{key}").start().stop()  # nobody serves there


def fails_at_the_end(server: nearcall.Server) -> Iterator[None]:
    yield
    raise LookupError("it was gone before")


async def fails_at_the_end_in_loop(server: nearcall.Server) -> AsyncIterator[None]:
    yield
    await asyncio.sleep(0)
    raise LookupError("it was gone before")


@pytest.mark.parametrize("lifespan", [fails_at_the_end, fails_at_the_end_in_loop])
def test_what_it_raises_at_the_end(lifespan: Any, key: str, caplog: pytest.LogCaptureFixture) -> None:
    with nearcall.Server(Quiet(), f"inproc://{key}", lifespan=lifespan) as server:
        pass
    assert isinstance(server.failure, LookupError)
    (line,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert line.getMessage() == "the server's lifespan raised LookupError"
    assert line.exc_info


def test_one_that_ends_early_ends_serve(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """A task in the background that dies takes the lifespan with it, if that has a task group."""
    die = asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(server: nearcall.Server) -> AsyncIterator[None]:
        me = asyncio.current_task()
        assert me is not None

        async def background() -> None:
            await die.wait()
            me.cancel()

        task = asyncio.create_task(background())
        try:
            yield
        except asyncio.CancelledError:
            raise LookupError("the background has died") from None
        finally:
            await task

    @nearcall.service
    class Dying:
        async def die(self) -> None:
            die.set()

        def use(self, *, value: None = nearcall.depends(lifespan)) -> None: ...

    def ready(server: nearcall.Server) -> None:
        with nearcall.connect(server.urls[0], Dying) as client:
            client.use()
            client.die()
            assert server.wait(SECONDS)
            with pytest.raises(nearcall.Unavailable, match="about to stop: its lifespan has ended"):
                client.use()

    with pytest.raises(LookupError, match="the background has died"):
        nearcall.serve(Dying(), f"inproc://{key}", lifespan=lifespan, on_ready=ready)
    assert "the server's lifespan has ended while it served: it stops" in caplog.text


def never_ends(server: nearcall.Server) -> Iterator[None]:
    yield
    threading.Event().wait(60)


async def never_ends_in_loop(server: nearcall.Server) -> AsyncIterator[None]:
    yield
    await asyncio.sleep(60)


@pytest.mark.parametrize("lifespan", [never_ends, never_ends_in_loop])
def test_an_end_that_takes_too_long(
    lifespan: Any, key: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nearcall.server.lifespan._PATIENCE", 0.05)
    with nearcall.Server(Quiet(), f"inproc://{key}", lifespan=lifespan):
        pass
    assert "the server stops without waiting longer for the end of its lifespan" in caplog.text


SLOW_START = """
import sys, time
import nearcall, nearcall.server.lifespan

@nearcall.service
class Quiet:
    def nothing(self) -> None: ...

def lifespan(server):
    print("starting", flush=True)
    time.sleep(60)
    yield

async def lifespan_in_loop(server):
    import asyncio
    print("starting", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.05)  # what it has to give back is waited for
        print("gave up", flush=True)
    yield

if sys.argv[2] == "lifespan":
    nearcall.server.lifespan._PATIENCE = 0.1  # seconds that nobody has to wait here
nearcall.serve(Quiet(), sys.argv[1], lifespan=globals()[sys.argv[2]])
print("ended", flush=True)
"""


@pytest.mark.parametrize(
    ("function", "how", "printed"),
    [("lifespan", signal.SIGINT, "ended\n"), ("lifespan_in_loop", signal.SIGTERM, "gave up\nended\n")],
)
def test_it_can_be_told_to_end_while_it_starts(
    function: str, printed: str, how: signal.Signals, key: str, runtime_dir: Path
) -> None:
    with start_program(SLOW_START, f"shm://slow{key}", function) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "starting\n"
        program.send_signal(how)
        assert program.stdout.read() == printed
        assert program.wait(20) == 0


def test_it_can_be_told_to_end_as_soon_as_it_is_entered() -> None:
    gave_up: list[str] = []
    entered = threading.Event()

    async def lifespan(_: object) -> AsyncIterator[None]:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            gave_up.append("gave up")
        yield

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    class Signalled:
        """The loop, for a thread that a signal interrupts just after it has had the lifespan entered."""

        create_task = loop.create_task

        def call_soon_threadsafe(self, function: Any, **options: Any) -> None:
            loop.call_soon_threadsafe(function, **options)
            if function.__name__ == "enter":
                entered.wait(SECONDS)
                raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            Lifespan(lifespan).begin(cast(Any, None), lambda: cast(Any, Signalled()), lambda: None)
        assert gave_up == ["gave up"]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    ("lifespan", "words"),
    [
        (5, "lifespan must be a function that takes the server, not 5"),
        (asyncio.sleep, "lifespan must yield once between start and stop: write 'async def' with a 'yield' in it"),
        (lambda: None, r"lifespan is called with one argument, the server, and does not take it: too many"),
    ],
)
def test_mistakes(lifespan: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        nearcall.Server(Quiet(), "inproc://nobody", lifespan=lifespan)
    assert caught.value.option == "lifespan"  # type: ignore[attr-defined]


def test_a_function_that_gives_no_context(key: str) -> None:
    wrong: Callable[[Any], Any] = lambda server: 5  # noqa: E731
    with pytest.raises(TypeError, match="lifespan must be a generator function, or give a context manager, not 5"):
        nearcall.Server(Quiet(), f"inproc://{key}", lifespan=wrong).start()
    nearcall.Server(Quiet(), f"inproc://{key}").start().stop()
