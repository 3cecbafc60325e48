"""The option ``oneway`` of clients: what happens to a one-way call when there is no room to send it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, cast

from ..errors import InvalidArgument
from ..log import WARNING, log
from ..options.checked import with_option

__all__ = ["OnewayPolicy", "check_oneway", "drop_reporter"]

OnewayPolicy: TypeAlias = Literal["block", "error", "drop"]
"""``"block"`` waits for room, ``"error"`` raises, ``"drop"`` drops the call and counts it."""


def check_oneway(policy: OnewayPolicy) -> OnewayPolicy:
    """The option ``oneway``.

    Raises:
        InvalidArgument: it is none of the three.
    """
    if cast(object, policy) not in ("block", "error", "drop"):
        raise with_option(InvalidArgument(f"oneway must be 'block', 'error' or 'drop', not {policy!r}"), "oneway")
    return policy


def drop_reporter(url: str) -> Callable[[dict[str, int]], None]:
    """The function that the core calls, once in a while, with the numbers of dropped calls by method."""

    def report(dropped: dict[str, int]) -> None:
        by_method = ", ".join(f"{number} of {method}" for method, number in sorted(dropped.items()))
        log(WARNING, "dropped one-way calls to %s for lack of room, in all: %s", url, by_method)

    return report
