"""From a cell's `Work` to arguments and to the check of their replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nearcall_lab.scenario.cell import Cell
from nearcall_lab.workloads import (
    describe_mismatch,
    octets,
    orders,
    same_bytes,
    secret_of_fill,
    secret_of_named,
)


@dataclass(frozen=True)
class Job:
    """What the calls of a cell are made with."""

    arguments: list[Any]
    check: Callable[[Any, Any], bool]
    describe: Callable[[Any, Any], str] = describe_mismatch
    secrets: set[int] = field(default_factory=set)
    """The secrets that typed replies had; the lab compares them with the server's."""


def _same_batch(batch: tuple[bytes, ...], replies: Any) -> bool:
    return len(replies) == len(batch) and all(map(same_bytes, batch, replies))


def _describe_batch(batch: tuple[bytes, ...], replies: Any) -> str:
    wrong = next(pair for pair in zip(batch, replies, strict=True) if not same_bytes(*pair))
    return describe_mismatch(*wrong)


def _describe_stream(items: int, got: Any) -> str:
    if len(got) != items:
        return f"wrong stream: {len(got)} items instead of {items}"
    at = next(i for i, item in enumerate(got) if item != i)
    return f"wrong stream: item {at} is {got[at]!r}"[:200]


def _typed(arguments: list[Any], secret_of: Callable[[Any, Any], int | None]) -> Job:
    secrets: set[int] = set()

    def check(argument: Any, reply: Any) -> bool:
        secret = secret_of(argument, reply)
        if secret is None:
            return False
        secrets.add(secret)
        return len(secrets) == 1

    return Job(arguments, check, secrets=secrets)


def job_of(cell: Cell) -> Job:
    """The job of a cell that calls; messages of ``send`` are made by `one_way`."""
    work = cell.work
    if cell.mode.kind == "mixed":
        batches = zip(*(octets(size)[:2] for size in work.sizes), strict=True)
        return Job(list(batches), _same_batch, _describe_batch)
    if work.operation == "quote":
        return _typed(orders(), secret_of_fill)
    if work.operation == "wait":
        return _typed([work.delay_s], secret_of_named)
    if work.operation == "count":
        expected = list(range(work.items))
        return Job([work.items], lambda items, got: bool(got == expected), _describe_stream)
    if work.operation == "send":
        return Job([b""], lambda value, reply: True)
    return Job(octets(work.size), same_bytes)
