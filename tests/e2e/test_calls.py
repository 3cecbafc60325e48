"""Calls without streams, over every transport."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nearcall

from .conftest import OUTSIDE
from .services import Animals, Basics, Frame, Lines, Point, Shape, Streams, digest

KIB = 1024
RING = 4096
LIMIT = 96 * KIB


@pytest.fixture
def basics(url: str) -> Iterator[Basics]:
    with nearcall.connect(url, Basics) as service:
        yield service


def pattern(size: int) -> bytes:
    """Bytes of which no two pages are alike, so that a misplaced piece shows."""
    return (np.arange(size // 4 + 1, dtype="<u4") * 2654435761).astype("<u4").tobytes()[:size]


def test_arguments_by_position_by_name_and_by_default(basics: Basics) -> None:
    assert basics.add(1, 2) == 3
    assert basics.add(1) == 6
    assert basics.add(b=3, a=4) == 7
    assert basics.add(1, b=-(2**60)) == 1 - 2**60
    assert basics.nothing() is None  # type: ignore[func-returns-value]


def test_every_kind_of_parameter(basics: Basics) -> None:
    assert basics.call_forms(1, 2, d=4) == [1, 2, 3, 4, 5]
    assert basics.call_forms(1, b=2, c=30, d=4, e=50) == [1, 2, 30, 4, 50]
    assert basics.call_forms(1, 2, 30, e=50, d=4) == [1, 2, 30, 4, 50]


def test_coroutine_handlers_on_the_same_server(basics: Any) -> None:
    assert basics.add_in_loop(1, 2) == 3
    assert basics.add_in_loop(a=1) == 6
    assert basics.echo_in_loop(b"x" * 100_000) == b"x" * 100_000


def test_the_handler_runs_in_the_server(url: str, transport: str, basics: Basics) -> None:
    assert (basics.pid() == os.getpid()) == (transport not in OUTSIDE)


def test_the_peer_is_known(url: str, transport: str) -> None:
    client = nearcall.connect(url, Basics)
    try:
        if transport == "tcp":
            assert client.peer.keys() == {"address"}
        elif transport == "nats":
            assert client.peer.keys() == {"broker"}
        elif transport == "tls":
            assert client.peer.keys() == {"address", "subject", "names"}
        else:
            assert client.peer == {"pid": client.service.pid(), "uid": os.getuid(), "gid": os.getgid()}
        assert client.url == url
    finally:
        client.close()


@pytest.mark.parametrize(
    "size",
    [0, 1, 7, 8, 15, 63, 64, 100, 127, 128, 129, 255, 256, 4095, 4096, 4097]
    + [KIB * n + d for n in (32, 64, 128, 256) for d in (-129, -64, -33, -17, -16, -9, -8, -1, 0, 1, 8)]
    + [1_000_000, 1 << 20, (1 << 20) + 1],
)
def test_bytes_of_every_size(basics: Basics, size: int) -> None:
    data = pattern(size)
    assert basics.echo(data) == data
    assert bytes(basics.echo_view(memoryview(data))) == data


@pytest.mark.slow
def test_fifty_megabytes(basics: Basics) -> None:
    data = pattern(50_000_000)
    assert basics.digest_of(b"", memoryview(data), "") == f"{digest(b'')} {digest(data)} "
    view = basics.echo_view(memoryview(data))
    assert view == data


def test_every_length_around_a_small_ring(url: str) -> None:
    """Each length once, so that records begin and wrap at every place of the ring."""
    with nearcall.connect(url, Basics, ring_size=RING) as basics:
        data = pattern(2 * RING)
        for size in range(0, 2 * RING, 7):
            assert basics.echo(data[:size]) == data[:size]
        for size in [*range(RING // 4 - 40, RING // 4 + 8), *range(RING // 2 - 40, RING // 2 + 8)]:
            assert basics.echo(data[:size]) == data[:size]


@pytest.mark.parametrize("size", [0, 3, 70_000, 1_000_000])
def test_every_form_of_buffer_is_taken_and_given(basics: Any, size: int) -> None:
    data = pattern(size)
    for method, form in (
        (basics.echo, bytes),
        (basics.echo_bytearray, bytearray),
        (basics.echo_view, memoryview),
    ):
        for given in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))):
            result = method(given)
            assert type(result) is form
            assert result == data


def test_views_of_other_elements_arrive_as_their_bytes(basics: Basics) -> None:
    values = np.arange(1000, dtype=np.float64)
    assert basics.echo_view(memoryview(values)) == values.tobytes()
    assert bytes(basics.echo_view(memoryview(b"abcdef")[1:4])) == b"bcd"
    with pytest.raises((ValueError, TypeError), match="contiguous"):
        basics.echo_view(memoryview(b"abcdef")[::2])
    assert basics.add(1, 1) == 2


def test_a_received_view_is_read_only(basics: Basics) -> None:
    for size in (10, 1_000_000):
        view = basics.echo_view(memoryview(bytes(size)))
        assert view.readonly
        with pytest.raises(TypeError):
            view[0] = 1


@pytest.mark.parametrize("size", [20, 5_000, 200_000, 3_000_000])
def test_views_live_as_long_as_they_are_held(basics: Basics, key: str, size: int) -> None:
    """Held by the handler and by the caller, through many more calls of the same size."""
    expected, held = [], []
    for number in range(8):
        data = bytes([number]) + pattern(size)
        basics.keep(key, memoryview(data))
        held.append(basics.echo_view(memoryview(data)))
        expected.append(digest(data))
        for _ in range(3):
            basics.echo(bytes(size))
            del _
    assert basics.kept(key) == expected
    assert [digest(view) for view in held] == expected
    assert basics.let_go(key) == 8
    del held[::2]
    for number in range(20):
        assert basics.echo(bytes([number]) * size) == bytes([number]) * size
    assert [digest(view) for view in held] == expected[1::2]


def test_a_view_outlives_its_connection(url: str) -> None:
    data = pattern(2_000_000)
    with nearcall.connect(url, Basics) as basics:
        views = [basics.echo_view(memoryview(data)), basics.echo_view(memoryview(b"short"))]
    assert views[0] == data
    assert views[1] == b"short"


def test_buffers_between_other_arguments(basics: Basics) -> None:
    for size in (0, 1, 300_000):
        data = pattern(size)
        expected = f"{digest(data[:100])} {digest(data)} end"
        assert basics.digest_of(data[:100], memoryview(data), "end") == expected
        assert basics.digest_of(last="end", data=memoryview(data), first=data[:100]) == expected


@pytest.mark.parametrize("shape", [(0,), (3,), (100, 7), (512, 512), (2, 0, 3), ()])
def test_arrays(basics: Basics, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).normal(size=shape)
    values = np.asarray(values)
    result = basics.same_array(values)
    assert type(result) is np.ndarray
    assert result.dtype == np.float64
    assert result.shape == shape
    assert np.array_equal(result, values)
    assert np.array_equal(basics.same_array(values=values.T), values.T)


def test_arrays_inside_other_values(basics: Basics) -> None:
    pixels = np.linspace(0, 1, 60_000).reshape(200, 300)
    frame = Frame("a", pixels, [pixels[::2], pixels[:, 3], np.zeros((0, 4))])
    same = basics.same_frame(frame)
    assert type(same) is Frame
    assert same.name == "a"
    assert np.array_equal(same.pixels, pixels)
    for sent, got in zip(frame.masks, same.masks, strict=True):
        assert np.array_equal(sent, got)
    assert basics.arrays({"a": np.ones(10), "b": np.ones((300, 300))}) == {"a": 10.0, "b": 90_000.0}


def test_a_received_array_keeps_its_memory(basics: Basics) -> None:
    assert np.array_equal(basics.scale(np.ones((3, 4)), by=2.0), np.full((3, 4), 2.0))
    kept = [basics.scale(np.full(100_000, float(number)), 1.0) for number in range(10)]
    for number, values in enumerate(kept):
        assert (values == number).all()


def test_structures_and_text(basics: Basics) -> None:
    point = Point(-(2**63), "grüße 🌍", b"\x00\xff")
    assert basics.echo_point(point) == point
    text = "ä" * 200_000
    assert basics.echo_text(text) == text


def test_a_big_reply_to_a_small_request(basics: Basics) -> None:
    assert basics.make(20_000_000, 7) == b"\7" * 20_000_000


def test_several_services_at_one_url(url: str, key: str) -> None:
    with nearcall.connect(url, Basics) as basics, nearcall.connect(url, Lines) as lines:
        assert basics.add(1) == 6
        lines.log(key, 1)
        assert lines.wait_for(key, 1) == [1]
        with nearcall.connect(url, Streams) as streams:
            assert list(streams.count(3)) == [0, 1, 2]


def test_interfaces(url: str) -> None:
    with nearcall.connect(url, Shape) as shape:
        assert shape.area(2, height=3) == 6.0
        assert list(shape.sides(2)) == [0, 1]
    with nearcall.connect(url, Animals) as animals:
        assert animals.names() == ["cow", "hen"]
        assert animals.sound("hen", loud=True) == "CLUCK"


def test_without_a_class(url: str) -> None:
    with nearcall.connect(url) as anything:
        assert anything.Basics.add(1, b=2) == 3
        assert anything.add(1) == 6
        assert anything.echo_point({"x": 1, "label": "l", "data": b"d"}) == {"x": 1, "label": "l", "data": b"d"}
        assert anything.echo(b"x" * 100_000) == b"x" * 100_000
        assert list(anything.Streams.count(3)) == [0, 1, 2]
        assert anything.total([1, 2], start=3) == 6
        assert np.array_equal(anything.scale(np.ones(3), 2.0), np.full(3, 2.0))
        with pytest.raises(nearcall.InvalidArgument, match=r"argument 'a'.* int, got str"):
            anything.add("x")
        with pytest.raises(AttributeError, match="no method 'ad': did you mean 'add'"):
            anything.Basics.ad(1)


def test_the_client_itself_calls_too(url: str) -> None:
    client = nearcall.connect(url, Basics)
    assert client.add(1, 2) == 3
    assert client.service.add(1, 2) == 3
    assert not client.closed
    client.close()
    client.close()
    assert client.closed
    with pytest.raises(nearcall.Cancelled, match="closed"):
        client.add(1, 2)


def test_the_description(url: str) -> None:
    client = nearcall.connect(url)
    services = {service["name"]: service for service in client.description["services"]}
    client.close()
    assert services.keys() == {"Basics", "Streams", "Errors", "Lines", "Waiting", "Shape", "zoo.Animals"}
    add = next(method for method in services["Basics"]["methods"] if method["name"] == "add")
    assert add["signature"] == "add(a: int, b: int = ...) -> int"
    assert add["doc"] == "Adds."
    assert "Point" in services["Basics"]["types"]


def test_ping(url: str) -> None:
    client = nearcall.connect(url, Basics)
    assert 0 < client.ping() < 30
    assert 0 < client.ping(timeout=30) < 30
    client.close()
    with pytest.raises(nearcall.Cancelled):
        client.ping()


def test_several_urls_of_one_server(runtime_dir: Any, key: str) -> None:
    urls = [f"shm://{key}", f"shm://{key}-2", f"unix://{runtime_dir}/{key}", "tcp://127.0.0.1:0", f"inproc://{key}"]
    with nearcall.Server(Basics(), *urls) as server:
        assert server.urls[:3] == urls[:3]
        assert not server.urls[3].endswith(":0")
        clients = [nearcall.connect(url, Basics) for url in server.urls]
        for number, client in enumerate(clients):
            assert client.service.add(number, 1) == number + 1
            client.service.keep(key, memoryview(b"x"))
        assert len(clients[0].service.kept(key)) == len(clients)
        for client in clients:
            client.close()


@pytest.mark.parametrize("spin", ["auto", 0, 0.0001])
def test_every_way_to_wait(url: str, spin: Any) -> None:
    with nearcall.connect(url, Basics, spin=spin) as basics:
        for number in range(200):
            assert basics.add(number, 1) == number + 1


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT])
def test_a_message_within_the_limit(new_url: str, size: int) -> None:
    with (
        nearcall.Server(Basics(), new_url, max_message_size=LIMIT) as server,
        nearcall.connect(server.urls[0], Basics, max_message_size=LIMIT) as basics,
    ):
        assert basics.echo(bytes(size)) == bytes(size)


def test_a_message_over_the_limit(new_url: str) -> None:
    size = LIMIT + 1
    with nearcall.Server(Basics(), new_url, max_message_size=LIMIT) as server:
        with nearcall.connect(server.urls[0], Basics) as basics:
            with pytest.raises(nearcall.ResourceExhausted) as caught:
                basics.echo(bytes(size))
            for word in ("Basics.echo", str(size), str(LIMIT), "max_message_size"):
                assert word in caught.value.message
            assert basics.make(size, 1) == b"\1" * size
        with nearcall.connect(server.urls[0], Basics, max_message_size=LIMIT) as basics:
            with pytest.raises(nearcall.ResourceExhausted) as caught:
                basics.make(size, 1)
            for word in ("Basics.make", str(size), str(LIMIT), "max_message_size"):
                assert word in caught.value.message
            assert basics.add(1) == 6
