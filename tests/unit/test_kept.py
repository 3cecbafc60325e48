"""What workers keep together, and how their metrics add up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nearcall.observe.sums import Places, Said, noted
from nearcall.server.kept import Kept


@pytest.fixture
def kept() -> Iterator[Kept]:
    made = Kept()
    yield made
    made.close()


def in_child(work: Callable[[], object]) -> int:
    """Forks a worker; the status with which it ends."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def change(kept: Kept, key: str, value: Any) -> None:
    with kept.open() as content:
        content[key] = value


def read(kept: Kept) -> dict[str, Any]:
    with kept.open() as content:
        return dict(content)


def test_what_one_writes_others_read(kept: Kept) -> None:
    assert read(kept) == {}
    for length in (10, 100_000, 3, 50_000, 50_001, 200_000, 0):
        in_child(lambda: change(kept, "text", "ä" * length))  # noqa: B023
        assert read(kept) == {"text": "ä" * length}
    assert os.fstat(kept._file).st_size < 4 * 400_000


def test_who_dies_or_fails_has_changed_nothing(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    change(kept, "a", 1)

    def die_in_the_middle() -> None:
        pwrite = os.pwrite

        def write(file: int, data: bytes, place: int) -> int:
            pwrite(file, data[: len(data) // 2], place)
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

        monkeypatch.setattr(os, "pwrite", write)
        change(kept, "a", "another")

    assert in_child(die_in_the_middle) == signal.SIGKILL
    with pytest.raises(ZeroDivisionError), kept.open() as content:
        content["a"] = 1 // 0
    assert read(kept) == {"a": 1}


def test_lives_have_numbers_and_end(kept: Kept) -> None:
    told, tell = os.pipe()
    begun, begin = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(begin, bytes([kept.live()]))
            os.read(told, 1)
        finally:
            os._exit(0)
    (other,) = os.read(begun, 1)
    own = kept.live()
    assert own != other

    def living() -> list[bool]:
        with kept.open():
            return [kept.lives(other), kept.lives(own)]

    assert [living(), living()] == [[True, True]] * 2
    os.write(tell, b"x")
    os.waitpid(child, 0)
    assert [living(), living()] == [[False, True]] * 2
    for each in (told, tell, begun, begin):
        os.close(each)


def page(calls: float, now: float) -> str:
    return (
        f'# TYPE calls_total counter\ncalls_total{{code="OK"}} {calls}\n'
        f'# TYPE times histogram\ntimes_bucket{{le="1"}} {calls}\ntimes_sum {calls / 2}\ntimes_count {calls}\n'
        f"# TYPE busy gauge\nbusy {now}\n"
    )


def shown(book: dict[str, Any], *said: Said) -> dict[tuple[str, str], float]:
    """Values by their names and workers."""
    samples = (sample for metric in Places(book, said).collect() for sample in metric.samples)
    return {(each.name, each.labels["worker"]): each.value for each in samples}


def test_a_place_goes_on_where_its_last_worker_has_ended() -> None:
    first, other = Said(1, 0, 1.0, page(5, 2)), Said(2, 1, 1.0, page(1, 1))
    book = noted({}, [first, other], lambda _: True)
    assert shown(book, first, other)["calls_total", "0"] == 5
    successor = Said(3, 0, 2.0, page(0, 0))
    book = noted(book, [successor, other], lambda _: True)  # the first is finishing its calls
    assert shown(book, successor, other)["calls_total", "0"] == 5
    assert shown(book, successor, other)["busy", "0"] == 0
    book = noted(book, [first._replace(when=0.5, text=page(4, 2))], lambda _: True)  # who was slow to tell
    assert shown(book, successor)["calls_total", "0"] == 5
    book = noted(book, [first._replace(when=3.0, text=page(7, 0))], lambda life: life != 1)
    assert list(book["lives"]) == [2, 3]
    for _ in range(2):  # once it is gone it is added once
        values = shown(book, successor)
        names = "calls_total", "times_bucket", "times_sum", "times_count"
        assert [values[name, "0"] for name in names] == [7, 7, 3.5, 7]
        assert values["calls_total", "1"] == 1, "one that does not answer has what it has said last"
        assert ("busy", "1") not in values
        book = noted(book, [], lambda life: life != 1)
    book = noted(book, [], lambda _: False)
    assert book["lives"] == {}
    assert (shown(book)["calls_total", "0"], shown(book)["calls_total", "1"]) == (7, 1)
