"""What failed calls are counted as, on the way from the exception to the report."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter

import pytest
from nearcall import ResourceExhausted

from made_up import launch
from nearcall_lab.failure import MOST_KINDS, explain, few, kind_of
from nearcall_lab.load.slot import Slot
from nearcall_lab.results.failed import failed_of


class _Changing(Exception):
    pass


class _Broken(Exception):
    @property
    def code(self) -> int:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


class _Http(Exception):
    status = 503


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("no"), "TimeoutError: no"),
        (asyncio.TimeoutError(), "TimeoutError"),
        (OSError(errno.EMFILE, "x", "/tmp/a"), "OSError: Too many open files"),
        (ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)),
         "ConnectionResetError: Connection reset by peer"),
        (ResourceExhausted("64 calls wait"), "ResourceExhausted: … calls wait"),
        (_Http("busy"), "_Http 503: busy"),
        (_Broken(), "_Broken"),
        (_Changing("no reply to 0x7f3a at /run/lab/a.sock, 127.0.0.1:4321, ipv6:[::1]:80"),
         "_Changing: no reply to … at …, …, ipv…:[::…]:…"),
        (_Changing("call 3f2b9c1d-77aa-4c1e took 1,204.5 ms\n\nTraceback (most recent call last)"),
         "_Changing: call … took … ms"),
        (_Changing("word " * 40), "_Changing: " + "word " * 15 + "word …"),
    ],
)  # fmt: skip
def test_a_kind_is_class_status_and_what_does_not_change(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def test_grpc_is_counted_by_its_status() -> None:
    grpc = pytest.importorskip("grpc")
    metadata = grpc.aio.Metadata()
    cancelled = grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, metadata, metadata, "CANCELLED")
    assert kind_of(cancelled) == explain(cancelled) == "AioRpcError CANCELLED"
    gone = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, metadata, metadata, "ipv4:127.0.0.1:4711: refused (111)")
    assert kind_of(gone) == "AioRpcError UNAVAILABLE: ipv…: refused (…)"
    assert explain(gone) == "AioRpcError UNAVAILABLE: ipv4:127.0.0.1:4711: refused (111)"


def test_an_explanation_keeps_what_a_kind_leaves_out() -> None:
    assert explain(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/tmp/a")) == (
        "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/a'"
    )
    assert explain(ValueError("one\n two")) == "ValueError: one two"
    assert explain(TimeoutError()) == "TimeoutError: no message"
    assert len(explain(ValueError("long " * 100))) == 300


def test_equal_causes_count_together() -> None:
    slot = Slot(0, lambda value: value, [b""], lambda value, reply: True, lambda value, reply: "")
    for port in range(50):
        slot.failed(ConnectionRefusedError(f"127.0.0.1:{4000 + port} says no"))
    assert slot.errors == {"ConnectionRefusedError: … says no": 50}
    assert slot.first_error == "ConnectionRefusedError: 127.0.0.1:4000 says no"


def test_what_says_something_else_each_time_does_not_fill_the_record() -> None:
    words = [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
    found = few(Counter({f"Odd: {word}": 1 for word in words} | {"Other": 7}))
    assert found.total() == 107
    assert found["Other"] == 7
    assert found["Odd: other reasons"] == 100 - (MOST_KINDS - 1)
    assert len(found) == MOST_KINDS + 1


def test_failed_calls_as_a_sentence() -> None:
    assert failed_of([]).sentence() == failed_of([launch(0, n=5)]).sentence() == ""
    assert failed_of([]).share == 0
    one = failed_of([launch(0, n=6_244, errors={"AioRpcError CANCELLED": 3_756})])
    assert one.sentence() == "3,756 of 10,000 failed: AioRpcError CANCELLED"
    assert one.share == 0.3756
    several = failed_of([launch(0, n=10, errors={"A": 1, "B": 2}), launch(1, n=10, errors={"B": 2, "C": 3, "D": 1})])
    assert several.sentence() == "9 of 29 failed: B (4), C (3), A (1), and one more kind"
    assert several.kinds == {"B": 4, "C": 3, "A": 1, "D": 1}
