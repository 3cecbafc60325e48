"""The service of data frames over shared memory and TCP: what arrives, in how many parts, and what is given up."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

import nearcall

pytest.importorskip("polars")
pytest.importorskip("pyarrow")

import polars as pl

from . import frames
from .frames import Frames, NoColumn, State, Where, sales

PATIENCE = 60.0


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Where one process of the program serves."""
    folder = tmp_path_factory.mktemp("frames")
    command = [sys.executable, frames.__file__, "serve", "shm://frames", "tcp://127.0.0.1:0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEARCALL_RUNTIME_DIR", str(folder))
        folder.chmod(0o700)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()
            process.terminate()
            _, complaints = process.communicate(timeout=PATIENCE)
            assert (process.returncode, complaints) == (0, "")
        finally:
            process.kill()
            process.wait(PATIENCE)


@pytest.fixture(params=["shm", "tcp"])
def url(request: pytest.FixtureRequest, urls: list[str]) -> str:
    return next(url for url in urls if url.startswith(request.param))


@pytest.fixture
def service(url: str) -> Iterator[Frames]:
    with nearcall.connect(url, Frames, timeout=PATIENCE) as service:
        yield service


def test_a_frame_comes_back_as_it_went(service: Frames) -> None:
    sold = sales(10_000)
    assert service.put("whole", sold) == frames.Shape(10_000, ["shop", "day", "count", "price"])
    back = service.get("whole")
    assert back.equals(sold)
    assert back.schema == sold.schema
    assert service.put("empty", sold.clear()).rows == 0
    assert service.get("empty").schema == sold.schema


def test_parts_are_uploaded_and_asked_for(service: Frames) -> None:
    shape = service.upload("parts", (sales(5_000, first) for first in range(0, 20_000, 5_000)))
    assert shape.rows == 20_000
    seen: list[tuple[int, int]] = []
    where = [Where("price", 500, 1500), Where("count", 2, 3)]
    parts = list(service.query("parts", where, 2_500, lambda done, of: seen.append((done, of))))
    assert seen == [(done, 20_000) for done in range(2_500, 20_001, 2_500)]
    whole = sales(20_000)
    expected = whole.filter((pl.col("price") >= 500) & (pl.col("price") < 1500) & (pl.col("count") == 2))
    assert pl.concat(parts).equals(expected)
    assert len(parts) == 4  # what does not fit is not sent


def test_an_upload_that_breaks_keeps_nothing(service: Frames) -> None:
    def breaking() -> Iterator[pl.DataFrame]:
        yield sales(10)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        service.upload("broken", breaking())
    with pytest.raises(nearcall.NotFound, match="there is no frame broken"):
        service.get("broken")


def subscribed(service: Frames, name: str) -> Iterator[State]:
    """Queries that end from now on."""
    assert list(service.query(name, []))
    ended = iter(service.watch())
    assert not next(ended).given_up  # the query above: from here on nothing is missed
    return ended


def test_a_query_is_left_early(service: Frames) -> None:
    service.put("long", sales(100_000))
    ended = subscribed(service, "long")
    with closing(service.query("long", [], part=10)) as parts:
        assert next(parts).height == 10
    state = next(ended)
    assert state.given_up
    assert state.parts < 10_000


def test_a_report_tells_how_far_it_is_and_is_given_up(service: Frames) -> None:
    service.put("sold", sales(1_000))
    steps: list[tuple[int, int]] = []
    report = service.report("sold", "shop", "price", lambda done, of: steps.append((done, of)))
    assert steps == [(number, 7) for number in range(1, 8)]
    assert report.title == "price by shop"
    assert report.rows["price"].sum() == sales(1_000)["price"].sum()
    ended = subscribed(service, "sold")
    at_work, given_up = threading.Event(), threading.Event()

    def slow(done: int, of: int) -> None:
        at_work.set()
        given_up.wait(PATIENCE)

    call = nearcall.start(service.report, "sold", "price", "count", slow)
    assert at_work.wait(PATIENCE)
    call.cancel()
    given_up.set()
    with pytest.raises(nearcall.Cancelled):
        call.result()
    assert next(ended) == State(1, given_up=True)


def test_what_is_wrong_is_said(service: Frames) -> None:
    service.put("sold", sales(10))
    with pytest.raises(NoColumn, match="there is no column cost") as missing:
        list(service.query("sold", [Where("cost", 0, 1)]))
    assert missing.value.columns == ["shop", "day", "count", "price"]
    with pytest.raises(nearcall.InvalidArgument, match="argument 'frame'"):
        service.put("sold", cast(Any, {"shop": ["a"]}))


def test_the_program(url: str, tmp_path: Path) -> None:
    command = [sys.executable, frames.__file__, "demo", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "50000 rows of shop, day, count, price",
        "8000 rows in 3 parts, 10 steps",
        "shop 0 and no more",
    ]
    assert lines[4] == "  shop 0 14286"
    assert lines[-1] == "there is no column cost among shop day count price"
