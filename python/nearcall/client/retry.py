"""``nearcall.Retry``: which failed calls a client sends once more, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import InvalidArgument
from ..options.checked import check_seconds, check_whole, with_option
from ..options.names import with_checked_names
from ..status import StatusCode

__all__ = ["Retried", "Retry", "check_attempts", "check_codes", "check_number", "check_retry"]

_MOST_ATTEMPTS = 100
_MOST_TOKENS = 1_000_000.0

Retried: TypeAlias = tuple[int, float, float, float, list[int]]
"""A :class:`Retry` as :class:`nearcall._core.Connection` takes it: its fields but for the budget, in their order."""


@with_checked_names
@dataclass(frozen=True)
class Retry:
    """Which failed calls of :func:`~nearcall.idempotent` methods a client sends once more; for its option ``retry``.

    The rules are those of gRPC. The pause before an attempt is longer than the one before, up to ``max_backoff``, and
    varies by a fifth, so that many clients do not come back at once. A server can choose the pause, or forbid another
    attempt, by the metadata ``grpc-retry-pushback-ms``. The deadline bounds all attempts together: a call whose pause
    would outlast it fails at once, with the failure that it had.

    A budget bounds what a channel sends again when servers fail. It begins with ``max_tokens``; each failure takes one,
    each success brings ``token_ratio`` back, and as long as half of them or fewer are there, nothing is sent again.

    A call that no server has begun is sent again whatever this says, and costs none of the budget.

    Args:
        attempts: How often a call is sent at the most, the first time included; 2 to 100.
        initial_backoff: Seconds before the second time.
        max_backoff: Seconds of the longest pause.
        multiplier: By how much a pause is longer than the one before; 1 or more.
        codes: Statuses after which a call is sent again. A call whose connection was lost is sent again in any case.
        max_tokens: The budget's size; ``0``: there is no budget.
        token_ratio: Tokens that a success brings back.

    Raises:
        InvalidArgument: a value is out of range.
    """

    attempts: int = 3
    initial_backoff: float = 0.1
    max_backoff: float = 5.0
    multiplier: float = 2.0
    codes: Sequence[StatusCode] = (StatusCode.UNAVAILABLE,)
    max_tokens: float = 10.0
    token_ratio: float = 0.1

    def __post_init__(self) -> None:
        check_attempts(self.attempts, _MOST_ATTEMPTS)
        check_seconds("initial_backoff", self.initial_backoff)
        check_seconds("max_backoff", self.max_backoff)
        check_number("multiplier", self.multiplier, 1.0, 100.0)
        check_number("max_tokens", self.max_tokens, 0.0, _MOST_TOKENS)
        check_number("token_ratio", self.token_ratio, 0.001, _MOST_TOKENS)
        object.__setattr__(self, "codes", check_codes(self.codes))

    def _plain(self) -> Retried:
        codes = [int(code) for code in self.codes]
        return (
            self.attempts,
            float(self.initial_backoff),
            float(self.max_backoff),
            float(self.multiplier),
            codes,
        )


def check_attempts(attempts: Any, most: int) -> None:
    """How often a call is sent at the most.

    Raises:
        InvalidArgument: it is no whole number, fewer than 2, or more than ``most``.
    """
    if check_whole("attempts", attempts, least=2) > most:
        raise with_option(InvalidArgument(f"attempts must be at most {most}, not {attempts}"), "attempts")


def check_number(option: str, value: Any, least: float, most: float) -> None:
    """A number that an option may be.

    Raises:
        InvalidArgument: it is none, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise with_option(
            InvalidArgument(f"{option} must be a number from {least:g} to {most:g}, not {value!r}"), option
        )


def check_codes(codes: Any) -> tuple[StatusCode, ...]:
    """Statuses of failures.

    Raises:
        InvalidArgument: they are none.
    """
    try:
        read = tuple(StatusCode(code) for code in codes)
    except (TypeError, ValueError):
        read = ()
    if not read or StatusCode.OK in read or isinstance(codes, str):
        raise with_option(
            InvalidArgument(f"codes must be statuses of failures, such as [StatusCode.UNAVAILABLE], not {codes!r}"),
            "codes",
        )
    return read


def check_retry(retry: object) -> Retry | None:
    """The option ``retry``.

    Raises:
        TypeError: it is neither a :class:`Retry` nor ``None``.
    """
    if retry is not None and not isinstance(retry, Retry):
        raise with_option(
            TypeError(f"retry takes a nearcall.Retry, such as Retry(attempts=4), or None, not {retry!r}"),
            "retry",
        )
    return retry
