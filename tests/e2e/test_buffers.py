"""Buffers that are handed over: what arrives is what was sent, over every transport, and memory is used again."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

import nearcall  # noqa: E402

from .buffers import Frame, Frames, held, services  # noqa: E402
from .conftest import IN_PROCESS, TRANSPORTS  # noqa: E402
from .process import ServerProcess  # noqa: E402

LENGTH = 1_000_000
PATIENCE = 20.0


@pytest.fixture
def frames(new_url: str, transport: str) -> Iterator[Frames]:
    server: Any
    if transport in IN_PROCESS:
        server = nearcall.Server(*services(), new_url)
    else:
        server = ServerProcess(new_url, services="tests.e2e.buffers:services")
    with server:
        url = server.urls[0]
        with nearcall.connect(url, Frames) as client:
            yield client


@pytest.fixture
def over_shm(key: str, runtime_dir: Path) -> Iterator[ServerProcess]:
    with ServerProcess(TRANSPORTS["shm"](f"b{key}", runtime_dir), services="tests.e2e.buffers:services") as server:
        yield server


def random_pixels(shape: Any, seed: int = 0) -> Any:
    """Memory to be handed over."""
    pixels = nearcall.empty(shape, np.uint8)
    pixels[...] = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return pixels


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never comes to that"
        time.sleep(0.01)


def test_arrays_arrive_as_they_left(frames: Frames) -> None:
    for shape in ((LENGTH,), (300, 500, 3), (1, 40_000), (7,), (0,)):
        pixels = random_pixels(shape)
        for back in (frames.echo(pixels), frames.echo_in_loop(pixels)):
            assert back.shape == shape  # type: ignore[union-attr]
            assert not back.flags.writeable  # type: ignore[union-attr]
            assert (back == pixels).all()


def test_parts_of_arrays_arrive(frames: Frames) -> None:
    pixels = random_pixels((600, 800, 3))
    for part in (pixels[17:500], pixels[5], pixels[::2], pixels[:, 3:], pixels.T, pixels[::-1]):
        assert (frames.echo(part) == part).all()


def test_buffers_arrive(frames: Frames) -> None:
    data = nearcall.buffer(LENGTH)
    data[:] = os.urandom(LENGTH)
    assert frames.whole(data) == data
    for start, stop in ((0, LENGTH), (1, 500_001), (999_000, LENGTH), (5, 5)):
        assert frames.part(data, start, stop) == data[start:stop]
        assert frames.part(data[start:], 0, stop - start) == data[start:stop]


def test_fields_and_any_arrive(frames: Frames) -> None:
    pixels, others = random_pixels((400, 400)), np.arange(100_000, dtype=np.uint8)
    back = frames.frame(Frame(7, pixels, [pixels[100:], others, pixels[:5], others[:10]]))
    assert back.number == 7
    assert (back.pixels == pixels).all()
    for got, sent in zip(back.more, [pixels[100:], others, pixels[:5], others[:10]], strict=True):
        assert (got == sent).all()
    value = {"a": [pixels, others], "text": "x" * 100_000, "b": pixels[7:]}
    again = frames.either(value)
    assert again["text"] == value["text"]
    assert (again["a"][0] == pixels).all()
    assert (again["a"][1] == others).all()
    assert (again["b"] == pixels[7:]).all()


def test_more_arrays_than_one_note_can_name(frames: Frames) -> None:
    pixels = random_pixels((100, 10_000))
    back = frames.either([pixels[number] for number in range(100)])
    assert all((got == sent).all() for got, sent in zip(back, pixels, strict=True))


def test_streams_carry_them(frames: Frames) -> None:
    for number, pixels in enumerate(frames.count(20, 300_000)):
        assert (pixels == number).all()
    sent = [random_pixels(200_000, seed) for seed in range(10)]
    for got, expected in zip(frames.mirror(iter(sent)), sent, strict=True):
        assert (got == expected).all()


def test_what_was_received_can_be_sent_on(frames: Frames) -> None:
    first = frames.echo(random_pixels(LENGTH))
    second = frames.echo(first[10:])
    third = frames.echo(second[10:])
    assert (third == first[20:]).all()
    made = frames.make(LENGTH, 9)
    assert (frames.echo(made[5:]) == 9).all()
    assert (frames.make_in_loop(LENGTH, 3) == 3).all()  # type: ignore[attr-defined]
    ordinary = frames.echo(np.full(LENGTH, 4, np.uint8))
    assert (frames.echo(ordinary[3:]) == 4).all()


def test_a_view_can_be_kept(frames: Frames) -> None:
    frames.keep(random_pixels(LENGTH))
    expected = frames.shown()
    for seed in range(10):  # memory that is asked for is nobody else's
        assert (frames.echo(random_pixels(LENGTH, seed + 1)).shape) == (LENGTH,)
    gc.collect()
    assert frames.shown() == expected
    frames.drop()


def test_a_receiver_cannot_write(frames: Frames) -> None:
    pixels = random_pixels(LENGTH)
    before = pixels.copy()
    with pytest.raises(nearcall.Unknown, match="read-only"):
        frames.write(pixels)
    assert (pixels == before).all()
    back = frames.echo(pixels)
    with pytest.raises(ValueError, match="read-only"):
        back[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        back.flags.writeable = True


def test_what_goes_back_stays_as_it_is_where_the_server_may_keep_no_more(key: str, runtime_dir: Path) -> None:
    """An ordinary array comes back in the memory in which it went, and a client reads it for as long as it likes."""
    url, little = TRANSPORTS["shm"](f"b{key}", runtime_dir), {"max_message_size": 8 << 20, "max_memory": 18 << 20}
    with (
        ServerProcess(url, services="tests.e2e.buffers:services", **little),
        nearcall.connect(url, Frames) as frames,
    ):
        kept = []
        for seed in range(3):
            sent = np.random.default_rng(seed).integers(0, 256, 6 << 20, np.uint8)
            kept.append((sent, frames.echo(sent), frames.whole(memoryview(sent))))
            assert all((sent == array).all() and view == memoryview(sent) for sent, array, view in kept)


def test_asyncio(over_shm: ServerProcess) -> None:
    async def run() -> None:
        async with nearcall.aio.connect(over_shm.url, Frames) as frames:
            sent = [random_pixels(LENGTH, seed) for seed in range(8)]
            got = await asyncio.gather(*(frames.echo_in_loop(pixels) for pixels in sent))
            assert all((a == b).all() for a, b in zip(got, sent, strict=True))
            numbers = [int(pixels[0]) async for pixels in frames.count(5, 100_000)]
            assert numbers == list(range(5))

    asyncio.run(run())


def test_what_goes_and_comes_back_is_the_same_memory(over_shm: ServerProcess) -> None:
    with nearcall.connect(over_shm.url, Frames) as frames:
        pixels = random_pixels((100, 1000))
        assert address(frames.echo(pixels)) == address(pixels)
        assert address(frames.echo(pixels[10:])) == address(pixels[10:])
        back = frames.frame(Frame(1, pixels, [pixels[5:]]))
        assert address(back.pixels) == address(pixels)
        assert address(back.more[0]) == address(pixels[5:])
        made = frames.make(LENGTH, 3)
        assert address(frames.echo(made)) == address(made)
        elsewhere = over_shm.url
        with nearcall.connect(elsewhere, Frames) as others:  # whose memory that is not
            assert (others.echo(made) == 3).all()


def test_memory_is_used_again(over_shm: ServerProcess) -> None:
    with nearcall.connect(over_shm.url, Frames) as frames:

        def use() -> None:
            for number in range(30):
                pixels = nearcall.empty(LENGTH, np.uint8)
                pixels[:] = number
                assert int(frames.echo(pixels)[-1]) == number
                frames.log(pixels)
                frames.keep(pixels)
                assert int(frames.make(LENGTH, number)[0]) == number

        use()
        gc.collect()
        before, there = held(), frames.held()
        for _ in range(5):
            use()
        gc.collect()
        after, later = held(), frames.held()
    # How many are in use at a time depends on who runs when; that they pile up would show in hundreds.
    assert all(now <= then + 8 for now, then in zip(after + later, before + there, strict=True)), (before, after)


def test_a_flood_waits_for_the_reader(over_shm: ServerProcess) -> None:
    with nearcall.connect(over_shm.url, Frames) as frames:
        before = held()[1]
        most = 0
        for number in range(300):
            pixels = nearcall.empty(4 * LENGTH, np.uint8)
            pixels[0] = number % 256
            frames.log(pixels)
            if number % 50 == 0:
                most = max(most, held()[1])
        assert most - before < 40


def test_a_client_that_dies_leaves_nothing_behind(over_shm: ServerProcess) -> None:
    with nearcall.connect(over_shm.url, Frames) as witness:
        witness.echo(random_pixels(LENGTH))
        before = witness.held()
        for _ in range(3):
            child = os.fork()
            if child == 0:
                try:
                    client = nearcall.connect(over_shm.url, Frames)
                    client.service.keep(random_pixels(LENGTH))
                    os.kill(os.getpid(), signal.SIGKILL)
                finally:
                    os._exit(1)
            _, status = os.waitpid(child, 0)
            assert os.WTERMSIG(status) == signal.SIGKILL
            assert witness.shown() > 0  # what was kept outlives who sent it
            witness.drop()
        until(lambda: all(now <= then for now, then in zip(witness.held(), before, strict=True)))


def test_a_server_that_dies_leaves_nothing_behind(key: str, runtime_dir: Path) -> None:
    url = TRANSPORTS["shm"](f"d{key}", runtime_dir)

    def outlive() -> tuple[int, int]:
        with ServerProcess(url, services="tests.e2e.buffers:services") as mortal:
            client = nearcall.connect(mortal.url, Frames)
            pixels = random_pixels(LENGTH)
            made = client.service.make(LENGTH, 5)
            client.service.keep(pixels)
            mortal.kill()
            with pytest.raises(nearcall.Unavailable):
                client.service.shown()
            assert (made == 5).all()
            client.close()
        del pixels, made, client
        gc.collect()
        return held()

    before = outlive()
    for _ in range(3):
        after = outlive()
    with ServerProcess(url, services="tests.e2e.buffers:services"):
        pass  # clears away what the last one has left
    assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)


def test_a_child_by_fork_leaves_its_parents_memory_alone(over_shm: ServerProcess) -> None:
    with nearcall.connect(over_shm.url, Frames) as frames:
        received = frames.make(LENGTH, 8)
        kept = random_pixels(LENGTH, 3)
        unused = nearcall.empty(LENGTH, np.uint8)
        frames.keep(kept)
        del unused  # it waits for its next use, here and in the child
        expected = frames.shown()
        child = os.fork()
        if child == 0:
            try:
                own = nearcall.empty(LENGTH, np.uint8)
                own[:] = 77
                with nearcall.connect(over_shm.url, Frames) as other:
                    fine = (other.echo(own) == 77).all() and (other.echo(kept) == kept).all()
                    fine = fine and (other.echo(received) == 8).all()
                del received, kept
                gc.collect()
                os._exit(0 if fine else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        # The child has dropped its copies of these: they are still ours.
        for _ in range(5):
            assert (frames.make(LENGTH, 1) == 1).all()
        assert (received == 8).all()
        assert frames.shown() == expected


def test_many_threads(over_shm: ServerProcess) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with nearcall.connect(over_shm.url, Frames) as frames, ThreadPoolExecutor(6) as threads:

        def work(seed: int) -> bool:
            fine = True
            for number in range(20):
                pixels = nearcall.empty(100_000 + 1000 * seed, np.uint8)
                pixels[:] = (seed * 20 + number) % 256
                back = frames.echo(pixels)
                fine = fine and bool((back == (seed * 20 + number) % 256).all())
            return fine

        assert all(threads.map(work, range(12)))


def test_what_cannot_be_a_buffer() -> None:
    with pytest.raises(ValueError, match="-1 bytes"):
        nearcall.buffer(-1)
    with pytest.raises(TypeError):
        nearcall.buffer(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape"):
        nearcall.empty((3, -1))
    with pytest.raises(TypeError, match="Python objects"):
        nearcall.empty(3, object)
    # Refused at once: to try it page by page would end this program and others.
    for shape in ((1 << 50,), (1 << 40, 1 << 40)):
        with pytest.raises(MemoryError, match="there is no memory for a buffer of"):
            nearcall.empty(shape, np.uint8)
    assert len(nearcall.buffer(0)) == 0
    assert nearcall.empty(0).shape == (0,)
    assert nearcall.empty((2, 3)).dtype == np.float64
    assert nearcall.empty([300, 300], "<i2").shape == (300, 300)
    assert nearcall.empty(50_000, [("a", "<i4"), ("b", "S3")]).dtype.names == ("a", "b")


def test_without_descriptors_memory_is_ordinary(over_shm: ServerProcess) -> None:
    code = """
import resource, nearcall, os
from tests.e2e.buffers import Frames
client = nearcall.connect(URL, Frames)
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
kept = [nearcall.buffer(100_000) for _ in range(10)]
for number, data in enumerate(kept):
    data[:] = bytes([number]) * 100_000
os.write(1, b"well" if len(kept) == 10 else b"bad")
""".replace("URL", repr(over_shm.url))
    from .process import run_program

    said, complained, status = run_program(code)
    assert (said, status) == ("well", 0), complained
