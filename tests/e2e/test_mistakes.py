"""What a newcomer gets wrong, and what is said then: in one line, with what to write."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import TLS

from .process import ServerProcess
from .services import Lines, Point


@nearcall.service
class Store:
    def get(self, name: str) -> str:
        return name

    def find(self, n: int) -> Iterator[int]:
        yield from range(n)

    def huge(self, size: int) -> bytes:
        return bytes(size)

    def size(self, data: bytes) -> int:
        return len(data)


@nearcall.service
class Looped:
    async def get(self, name: str) -> str:
        return name

    async def find(self, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number


@pytest.fixture
def url(key: str) -> Iterator[str]:
    with nearcall.Server(Store(), f"inproc://{key}", max_message_size=100_000) as server:
        yield server.urls[0]


def test_whose_limit_a_message_is_over(new_url: str) -> None:
    with (
        nearcall.Server(Store(), new_url, max_message_size=100_000) as server,
        nearcall.connect(server.urls[0], Store, max_message_size=50_000) as store,
    ):
        with pytest.raises(nearcall.ResourceExhausted) as caught:
            store.huge(60_000)
        assert caught.value.message == (
            "the reply of Store.huge: the message has 60000 bytes, this client's limit is 50000; "
            "raise it with connect(..., max_message_size=...)"
        )
        with pytest.raises(nearcall.ResourceExhausted) as caught:
            store.size(bytes(200_000))
        assert caught.value.message == (
            "Store.size: the message has 200000 bytes, the server's limit is 100000; "
            "raise it there with max_message_size"
        )


@pytest.mark.parametrize("other", ["shm://mistaken", "unix:///tmp/mistaken", "tcp://127.0.0.1:0", "inproc://mistaken"])
def test_certificates_for_what_is_not_encrypted_are_refused(other: str, certificates: Path) -> None:
    client, server = TLS(ca=certificates / "ca.pem"), TLS(cert=certificates / "server.pem")
    for wrong in (
        lambda: nearcall.connect(other, Store, tls=client),
        lambda: nearcall.aio.connect(other, Store, tls=client),
        lambda: nearcall.Server(Store(), other, tls=server),
        lambda: nearcall.serve(Store(), other, tls=server),
    ):
        with pytest.raises(ValueError, match=rf"tls is for tls:// URLs, and {other} would not be encrypted"):
            wrong()


def test_one_encrypted_url_among_others_is_enough(key: str, certificates: Path) -> None:
    tls = TLS(cert=certificates / "server.pem", key=certificates / "server.key")
    with nearcall.Server(Store(), f"inproc://{key}", "tls://127.0.0.1:0", tls=tls) as server:
        for url in server.urls:
            with nearcall.connect(url, Store) as store:
                assert store.get("a") == "a"


@nearcall.service
class Mixed:
    @property
    def limit(self) -> int:
        return 3

    @staticmethod
    def double(n: int) -> int:
        return 2 * n

    async def _later(self) -> int:
        return 1

    def soon(self) -> int:
        later = self._later()
        with contextlib.closing(later):
            return later


def test_what_is_no_method_is_told_to_be_none(key: str) -> None:
    with nearcall.Server(Mixed(), f"inproc://{key}") as server, nearcall.connect(server.urls[0], Mixed) as mixed:
        with pytest.raises(AttributeError, match=r"^Mixed\.double is a static method, which is not served: make it a"):
            mixed.double(1)
        with pytest.raises(AttributeError, match=r"^Mixed\.limit is a property, which is not served: "):
            print(mixed.limit)
        with pytest.raises(nearcall.Internal, match=r"got coroutine: write 'await' in front of it$"):
            mixed.soon()


def test_metadata_is_a_dict() -> None:
    wrong: Any = "user=ada"
    with pytest.raises(TypeError, match=r"^metadata is a dict such as \{'user': 'ada'\}, or pairs, not 'user=ada'$"):
        nearcall.metadata(wrong)


def test_certificates_are_named_by_their_option() -> None:
    given: Any = "certs/ca.pem"
    with pytest.raises(TypeError, match=r"^tls takes nearcall.TLS\(ca=\.\.\.\), not a str$"):
        nearcall.connect("tls://127.0.0.1:1", Store, tls=given)
    with pytest.raises(TypeError, match=r"^tls takes nearcall.TLS\(cert=\.\.\., key=\.\.\.\), not a str$"):
        nearcall.Server(Store(), "tls://127.0.0.1:0", tls=given)


def test_what_comes_first_is_a_url() -> None:
    for connect in (nearcall.connect, nearcall.aio.connect):
        wrong: Any = connect
        with pytest.raises(TypeError, match=r"^the URL must be a str such as shm://name, not None$"):
            wrong(None, Store)
        with pytest.raises(TypeError, match=r"^the URL must be a str such as shm://name, not 5$"):
            wrong(5, Store)
        with pytest.raises(TypeError, match=r"^the URL comes first: "):
            wrong(Store, "shm://store")


def test_a_loop_factory_is_a_function() -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match=r"^loop_factory must be a function that makes an event loop, not 3$"):
        nearcall.Server(Store(), "inproc://never", loop_factory=wrong)


def test_names_with_an_underscore_are_not_served(url: str) -> None:
    client: Any = nearcall.connect(url, Store)
    for where in (client, client.service):
        with pytest.raises(AttributeError, match=r"^'_pictures': names that begin with an underscore are not served$"):
            where._pictures()
    client.close()


def test_a_thread_s_client_in_async_with(url: str) -> None:
    client: Any = nearcall.connect(url, Store)

    async def main() -> None:
        async with client:
            pass

    with pytest.raises(TypeError, match=r"write 'with nearcall.connect\(\.\.\.\)', or 'async with nearcall.aio"):
        asyncio.run(main())
    assert client.closed


def test_an_event_loop_s_client_in_with(url: str) -> None:
    client: Any = nearcall.aio.connect(url, Store)
    with pytest.raises(TypeError, match=r"write 'async with nearcall.aio.connect\(\.\.\.\)'"), client:
        pass


Mistake = Callable[[Any], Coroutine[Any, Any, object]]


async def _for(store: Any) -> None:
    for _ in store.find(3):
        pass


async def _await_stream(store: Any) -> None:
    await store.find(3)


async def _use(store: Any) -> None:
    call = store.get("a")
    try:
        call.upper()
    finally:
        call.close()


@pytest.mark.parametrize(
    ("mistake", "error", "advice"),
    [
        (_for, TypeError, "this stream is for an event loop: write 'async with', and 'async for'"),
        (_await_stream, TypeError, "a stream is not awaited: write 'async for item in ...'"),
        (
            _use,
            AttributeError,
            "a call of Store.get that was not awaited has no attribute 'upper'; "
            "await it first: (await service.method(...)).name",
        ),
    ],
)
def test_what_an_event_loop_s_client_gives(url: str, mistake: Mistake, error: type[Exception], advice: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Store) as store:
            await mistake(store)

    with pytest.raises(error) as caught:
        asyncio.run(main())
    assert str(caught.value) == advice


def test_a_handler_may_pass_on_the_stream_of_another_server(key: str, url: str) -> None:
    @nearcall.service
    class Between:
        async def open(self) -> None:
            self.client = await nearcall.aio.connect(url, Store)

        def find(self, n: int) -> AsyncIterator[int]:
            found: AsyncIterator[int] = self.client.service.find(n)
            return found

        async def close(self) -> None:
            self.client.close()

    with (
        nearcall.Server(Between(), f"inproc://{key}-between") as server,
        nearcall.connect(server.urls[0]) as between,
    ):
        between.open()
        assert list(between.find(3)) == [0, 1, 2]
        between.close()


def _forgets(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    proceed(call)


async def _forgets_to_await(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    await proceed(call)


def test_an_interceptor_that_forgets_to_return_is_named(key: str) -> None:
    advice = r"; the server has interceptors \({}\), which must return what proceed\(call\) returns$"
    with (
        nearcall.Server(Store(), f"inproc://{key}", interceptors=[_forgets]) as server,
        nearcall.connect(server.urls[0], Store) as store,
    ):
        with pytest.raises(nearcall.Internal, match="must be str, got None" + advice.format("_forgets")):
            store.get("a")
        with pytest.raises(nearcall.Internal, match="must be a stream, got None" + advice.format("_forgets")):
            list(store.find(3))
    options: Any = {"interceptors": [_forgets_to_await], "introspection": False}
    with (
        nearcall.Server(Looped(), f"inproc://{key}-loop", **options) as server,
        nearcall.connect(server.urls[0]) as looped,
        pytest.raises(nearcall.Internal, match="must be str, got None" + advice.format("_forgets_to_await")),
    ):
        looped.get("a")


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(nearcall.AlreadyExists) as caught:
            nearcall.Server(Store(), url).start()
        assert str(caught.value) == (f"cannot serve {url}: another program listens there; stop it or take another port")


def test_a_path_that_is_no_socket(tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    for path in (tmp_path, file):
        with pytest.raises(nearcall.Unavailable, match=f"{path} is not a socket; write the path"):
            nearcall.connect(f"unix://{path}", Store)


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(OSError, match=f"the directory {missing} does not exist; create it"):
        nearcall.Server(Store(), f"unix://{missing}/socket").start()


def test_a_directory_in_which_no_file_can_be_made() -> None:
    with pytest.raises(OSError, match="no file can be made in the directory /proc; take another one"):
        nearcall.Server(Store(), "unix:///proc/store.sock").start()


def test_a_misspelt_scheme() -> None:
    with pytest.raises(nearcall.InvalidArgument, match=r"shmm: is no transport known here: did you mean shm://name\?"):
        nearcall.connect("shmm://store", Store)


def test_a_certificate_s_names_are_shown_as_they_are_written(certificates: Path) -> None:
    tls = TLS(cert=certificates / "server.pem", key=certificates / "server.key")
    with (
        nearcall.Server(Store(), "tls://127.0.0.1:0", tls=tls) as server,
        pytest.raises(nearcall.Unauthenticated, match=r"is not for localhost but for 127\.0\.0\.1; connect by"),
    ):
        nearcall.connect(server.urls[0].replace("127.0.0.1", "localhost"), Store)


@nearcall.service
class Values:
    def optional(self, values: list[int | None]) -> None: ...
    def found(self, points: list[Point | None]) -> list[Point | None]:
        return points


def test_plain_data_for_an_object_that_may_be_missing(key: str) -> None:
    with nearcall.Server(Values(), f"inproc://{key}") as server, nearcall.connect(server.urls[0], Values) as values:
        assert values.found([Point(1), None]) == [Point(1), None]
        wrong: Any = values
        with pytest.raises(nearcall.InvalidArgument, match="expected Point, got dict"):
            wrong.found([{"x": 1}])


def test_what_may_be_missing_is_called_none(key: str) -> None:
    with nearcall.Server(Values(), f"inproc://{key}") as server, nearcall.connect(server.urls[0], Values) as values:
        wrong: Any = values
        with pytest.raises(nearcall.InvalidArgument, match=r"expected int \| None, got str"):
            wrong.optional(["x"])


def _fill(lines: Lines) -> None:
    """One-way calls until there is no room for one."""
    while True:
        with nearcall.timeout(0.2):
            lines.log("x" * 100, 1)


def test_a_server_that_reads_nothing_is_named(key: str) -> None:
    url = f"shm://reads-nothing-{key}"
    with ServerProcess(url) as server, nearcall.connect(url, Lines, ring_size=4096) as lines:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(nearcall.DeadlineExceeded):
                _fill(lines)
            with pytest.raises(nearcall.DeadlineExceeded) as caught, nearcall.timeout(0.2):
                lines.wait_for("x" * 400, 1)
        finally:
            os.kill(server.pid, signal.SIGCONT)
    assert caught.value.message == (
        f"Lines.wait_for: there was no room to send before the deadline: the server at {url} reads nothing"
    )


def test_a_channel_in_the_wrong_with(url: str) -> None:
    async def main() -> None:
        threads: Any = nearcall.Channel(url)
        with pytest.raises(TypeError, match=r"write 'with nearcall\.Channel\(\.\.\.\)'"):
            async with threads:
                pass
        assert threads.closed
        loops: Any = nearcall.aio.Channel(url)
        with pytest.raises(TypeError, match=r"write 'async with nearcall\.aio\.Channel\(\.\.\.\)'"), loops:
            pass

    asyncio.run(main())


def test_what_was_closed_is_not_entered(url: str) -> None:
    channel = nearcall.Channel(url)
    client = channel.client(Store)
    client.close()
    with pytest.raises(nearcall.Cancelled, match=r"this client of .* was closed"), client:
        pass
    channel.close()
    with pytest.raises(nearcall.Cancelled, match=r"this channel to .* was closed"), channel:
        pass

    async def main() -> None:
        channel = await nearcall.aio.Channel(url)
        client = channel.client(Store)
        client.close()
        with pytest.raises(nearcall.Cancelled, match=r"this client of .* was closed"):
            await client
        channel.close()
        with pytest.raises(nearcall.Cancelled, match=r"this channel to .* was closed"):
            await channel

    asyncio.run(main())


def test_a_channel_has_its_url_first() -> None:
    for wrong in (nearcall.Channel, nearcall.aio.Channel):
        with pytest.raises(TypeError, match=r"^the URL comes first: write Channel\(url\)\.client\(Store\)$"):
            wrong(Store)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("option", ["wait_for_ready", "allow_plaintext"])
def test_yes_is_no_option(url: str, option: str) -> None:
    options: Any = {option: "yes"}
    with pytest.raises(TypeError, match=f"{option} must be True or False, not 'yes'"):
        nearcall.connect(url, Store, **options)


def test_what_the_client_has_is_not_the_services(url: str) -> None:
    with nearcall.connect(url, Store) as store:
        looked_for: Any = store
        with pytest.raises(AttributeError, match=r"has no method 'peer': 'peer' is the client's; write client = conn"):
            _ = looked_for.peer
        with pytest.raises(AttributeError, match=r"has no method 'sise': did you mean 'size'"):
            _ = looked_for.sise


def test_a_call_that_was_not_awaited_says_so(url: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Store) as store:
            call = store.get("pen")
            assert repr(call) == f"<call of Store.get at {url}, to be awaited>"
            assert await call == "pen"
            assert repr(call) == f"<call of Store.get at {url}>"

    asyncio.run(main())


def test_an_interceptor_of_a_client_that_forgets_to_return_is_named(url: str) -> None:
    def forgetful(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        proceed(call)

    async def forgetful_too(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        await proceed(call)

    async def not_awaiting(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        return proceed(call)

    advice = (
        r"^Store\.get\(\): the result must be str, got None; this client has interceptors \({}\), which must return"
    )
    with (
        nearcall.connect(url, Store, interceptors=[forgetful]) as store,
        pytest.raises(nearcall.Internal, match=advice.format("forgetful")),
    ):
        store.get("a")

    async def main() -> None:
        async with nearcall.aio.connect(url, Store, interceptors=[forgetful_too]) as store:
            with pytest.raises(nearcall.Internal, match=advice.format("forgetful_too")):
                await store.get("a")
        async with nearcall.aio.connect(url, Store, interceptors=[not_awaiting]) as store:
            assert await store.get("a") == "a", "it was meant so"

    asyncio.run(main())


def test_what_cannot_be_started(url: str) -> None:
    start: Any = nearcall.start
    with nearcall.connect(url, Store) as store:
        with pytest.raises(TypeError, match=r"start\(calc\.add, 1, 2\), not what it returned: 'a'"):
            start(store.get("a"))
        with pytest.raises(TypeError, match=r"without streams"):
            start(store.find, 3)
        with pytest.raises(TypeError, match=r"^len cannot be started: that takes a method of a client"):
            start(len, "a")


@nearcall.service
class Asking:
    def __init__(self) -> None:
        self.topic: nearcall.Topic[int] = nearcall.Topic()

    def on_cancel(self, what: str) -> None:
        async def later() -> None: ...

        callback: Any = later if what == "async" else None
        nearcall.context().on_cancel(callback)

    def compress(self) -> None:
        method: Any = "gzip"
        nearcall.context().compress = method

    def watch(self) -> Iterator[int]:
        topic: Any = self.topic
        return topic  # type: ignore[no-any-return]


def test_mistakes_of_handlers(key: str) -> None:
    with nearcall.Server(Asking(), f"inproc://{key}") as server, nearcall.connect(server.urls[0], Asking) as asking:
        with pytest.raises(nearcall.Unknown, match=r"on_cancel takes a function without parameters.*not None"):
            asking.on_cancel("nothing")
        with pytest.raises(nearcall.Unknown, match=r"an ordinary function, not an 'async def'"):
            asking.on_cancel("async")
        with pytest.raises(nearcall.Unknown, match=r"compress is True, False or None, not 'gzip'"):
            asking.compress()
        with pytest.raises(nearcall.Unknown, match=r"a topic is no stream: return topic\.subscribe\(\)"):
            next(asking.watch())


def test_a_server_in_async_with(key: str) -> None:
    async def main() -> None:
        server: Any = nearcall.Server(Store(), f"inproc://{key}")
        with pytest.raises(TypeError, match="a server is used with an ordinary 'with'"):
            async with server:
                pass

    asyncio.run(main())
