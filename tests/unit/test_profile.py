"""The recorder of ``nearcall profile`` and what is made of its records, in this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nearcall.profile import Profile, render, table
from nearcall.profile.following import Items
from nearcall.profile.reading import Recorded, read
from nearcall.profile.recorder import RECORD, Call, Recorder, clock, here
from nearcall.profile.summary import summarize


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(str(tmp_path))
    yield made
    made.close()


def recorded(tmp_path: Path) -> Recorded:
    (found,) = read(tmp_path)
    return found


def profile_of(tmp_path: Path, begun: int = 0) -> Profile:
    found = read(tmp_path)
    begun = begun or min((each.begun for each in found), default=0)
    return summarize(found, command=["x.py"], started=0.0, begun=begun, ended=clock(), status=0)


def test_calls_inside_calls(recorder: Recorder, tmp_path: Path) -> None:
    inner = recorder.around(recorder.name("lab", "call", "inner"), lambda: None)
    middle = recorder.name("lab", "call", "middle")

    def inside() -> None:
        call = recorder.begin(middle)
        assert call is not None
        assert here.call is call
        call.takes(sent=3, received=4)
        inner()
        call.leave()
        inner()
        call.enter()
        inner()
        call.takes(received=1)
        call.end()

    outer = recorder.around(recorder.name("lab", "call", "outer"), inside)
    outer()
    outer()
    assert here.call is None
    assert here.number == 0
    found = recorded(tmp_path)
    names = {record.number: found.name(record).text for record in found.records}
    parents = [(found.name(record).text, names.get(record.parent, "")) for record in found.records]
    one = [("outer", ""), ("middle", "outer"), ("inner", "middle"), ("inner", "outer"), ("inner", "middle")]
    assert parents == one * 2
    assert [(record.sent, record.received) for record in found.records[:3]] == [(-1, -1), (3, 5), (-1, -1)]
    assert [frame.function.rpartition(".")[2] for frame in found.stack(found.records[2])][:2] == [
        "inside", "test_calls_inside_calls",
    ]  # fmt: skip


def test_errors_and_arguments(recorder: Recorder, tmp_path: Path) -> None:
    def fail(*args: object, **names: object) -> None:
        raise KeyError(args)

    call = recorder.around(recorder.name("lab", "call", "fail"), fail)
    long = "x" * 1000
    for args in ((1, "a"), (1, "a"), (2, "a"), ([1],), ([1],), (long,), (-1,), (-2,)):
        with pytest.raises(KeyError):
            call(*args)
    with pytest.raises(KeyError):
        call(1, name="a")
    found = recorded(tmp_path)
    assert {found.error(record) for record in found.records} == {"KeyError"}
    numbers = [record.arguments for record in found.records]
    assert numbers[0] == numbers[1] != numbers[2]
    assert numbers[3] == numbers[4] == numbers[5] == 0
    assert len({*numbers[6:], *numbers[:3]}) == 5
    failures = [failure for line in profile_of(tmp_path).lines for failure in line.failures]
    assert {failure.error for failure in failures} == {"KeyError"}
    assert sum(failure.calls for failure in failures) == 9


def test_objects_with_code_of_their_own_are_not_compared(recorder: Recorder) -> None:
    class Own(str):
        __slots__ = ()

        def __hash__(self) -> int:
            raise AssertionError("the program's code was run")

    assert recorder.arguments_of(1, (Own("a"),)) == 0
    assert recorder.arguments_of(1, ((1, Own("a")),)) == 0


def test_threads_have_lanes(recorder: Recorder, tmp_path: Path) -> None:
    call = recorder.around(recorder.name("lab", "call", "call"), time.perf_counter)
    threads = [threading.Thread(target=lambda: [call() for _ in range(500)], name=f"own {n}") for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = recorded(tmp_path)
    assert len(found.records) == 1500
    assert len({record.number for record in found.records}) == 1500
    assert set(found.lanes.values()) == {"own 0", "own 1", "own 2"}


def test_a_stream_waits_only_for_its_items(recorder: Recorder, tmp_path: Path) -> None:
    call = recorder.begin(recorder.name("lab", "stream", "stream"), depth=1)
    assert call is not None
    items = Items(call, iter([1, 2]))
    call.leave()
    assert list(items) == [1, 2]
    assert list(items) == []
    del items
    (record,) = recorded(tmp_path).records
    assert 0 < record.waited < record.ended - record.begun
    assert record.outcome == 0


def test_records_of_a_process_that_was_killed(recorder: Recorder, tmp_path: Path) -> None:
    call = recorder.around(recorder.name("lab", "call", "call"), time.perf_counter)
    for _ in range(10):
        call()
    (calls,), (tables,) = tmp_path.glob("*.calls"), tmp_path.glob("*.tables")
    data = bytearray(calls.read_bytes())
    RECORD.pack_into(data, 3 * RECORD.size, 4, 0, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0)  # half written
    calls.write_bytes(data)
    with tables.open("a", encoding="utf-8") as file:
        file.write('{"lane": [99, "half')
    assert len(recorded(tmp_path).records) == 9


def test_files_of_another_version_are_refused(recorder: Recorder, tmp_path: Path) -> None:
    recorder.around(recorder.name("lab", "call", "call"), time.perf_counter)()
    (tables,) = tmp_path.glob("*.tables")
    lines = [json.loads(line) for line in tables.read_text(encoding="utf-8").splitlines()]
    lines[1]["version"] = 99
    tables.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    with pytest.raises(RuntimeError, match="version 99"):
        read(tmp_path)


Made = Callable[..., Call]


@pytest.fixture
def made(recorder: Recorder) -> Made:
    """Writes a call of one millisecond at a time, ms."""

    def made(at: float, name: str = "get", kind: str = "call", took: float = 1.0, arguments: int = 0) -> Call:
        call = recorder.begin(recorder.name("rpyc", kind, name))
        assert call is not None
        call.leave()
        call.begun = int(at * 1e6) + 1
        call.arguments = arguments
        recorder.write(call, call.begun + int(took * 1e6), 0)
        return call

    return made


def found_in(tmp_path: Path) -> dict[str, tuple[int, int]]:
    """The rules that found something; each with the calls, and with the milliseconds that it would save."""
    return {each.rule: (each.calls, each.saves // 10**6) for each in profile_of(tmp_path).findings}


def test_a_loop(made: Made, tmp_path: Path) -> None:
    for number in range(100):
        made(2 * number)
    assert found_in(tmp_path) == {"loop": (100, 99)}


def test_calls_at_the_same_time_are_no_loop(made: Made, tmp_path: Path) -> None:
    for number in range(100):
        made(number / 10)
    assert found_in(tmp_path) == {}


def test_equal_calls(made: Made, tmp_path: Path) -> None:
    for number in range(100):
        made(2 * number, arguments=1 + number % 10)
    assert found_in(tmp_path) == {"identical": (100, 90)}


def test_attributes(made: Made, tmp_path: Path) -> None:
    for number in range(50):
        for place, name in enumerate(("root.shop", "root.shop.items"), 1):
            made(3 * number + place, name, "attribute", arguments=place)
    assert found_in(tmp_path) == {"chain": (100, 98)}


def test_connections_and_slow_calls(made: Made, tmp_path: Path) -> None:
    for number in range(30):
        made(2 * number, "connect x", "connect")
    for number in range(60, 160):
        made(2 * number, "item", "item", took=100 if number == 100 else 1)
    found = found_in(tmp_path)
    assert found["connections"] == (30, 29)
    assert found["slow"] == (1, 99)


def test_the_page_shows_what_a_peer_says_as_text(recorder: Recorder, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=hurt()>\x1b[31m\u202e"
    recorder.around(recorder.name("lab", "call", hostile), time.perf_counter)()
    found = profile_of(tmp_path)
    page = render(found)
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert "\x1b" not in page + table(found)
    assert "\u202e" not in page.partition('id="data"')[0]
    assert "\\x1b" in table(found)


def test_no_calls(tmp_path: Path) -> None:
    found = profile_of(tmp_path)
    assert "no remote calls were seen" in table(found)
    assert "No remote calls were seen" in render(found)
