"""``nearcall.Hedge``: a call of an idempotent method is sent to more than one server when the first is slow."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import _core
from ..errors import RpcError
from ..options.checked import check_seconds, with_option
from ..options.names import with_checked_names
from ..service.outward import dressed
from ..service.plan import UNARY, MethodPlan
from ..status import StatusCode
from .retry import Retry, check_attempts, check_codes, check_number

if TYPE_CHECKING:
    import asyncio

__all__ = ["Hedge", "check_hedge", "hedged"]

_MOST_ATTEMPTS = 5
"""As many as gRPC allows."""
_MOST_TOKENS = 1_000.0


@with_checked_names
@dataclass(frozen=True)
class Hedge:
    """When a client sends a call of an :func:`~nearcall.idempotent` method once more although the first is still under
    way; for its option ``hedge``. The first answer counts, and the other calls are given up.

    With several servers, ``balancing="round_robin"`` sends each copy to another one that is connected, as long as there
    is one. Streams and one-way calls are not hedged, nor are calls that :func:`nearcall.start` sends. The rules are
    those of gRPC (proposal A6): a server that has failed chooses when the next copy is sent, or that none is, by the
    metadata ``grpc-retry-pushback-ms``.

    Args:
        delay: Seconds after which the next copy is sent if there is no answer; ``0`` sends all at once.
        attempts: How many copies there are at the most; 2 to 5.
        codes: Statuses after which the call goes on: the next copy is sent at once, unless the server wants otherwise.
            Any other failure ends the call.
        max_tokens: The size of a budget: a failure takes one, a success brings ``token_ratio`` back, and with half of
            them or fewer no copies are sent. ``0``: there is no budget.
        token_ratio: Tokens that a success brings back.

    Raises:
        InvalidArgument: a value is out of range.
    """

    delay: float
    attempts: int = 2
    codes: Sequence[StatusCode] = (StatusCode.UNAVAILABLE,)
    max_tokens: float = 10.0
    token_ratio: float = 0.1

    def __post_init__(self) -> None:
        check_seconds("delay", self.delay)
        check_attempts(self.attempts, _MOST_ATTEMPTS)
        check_number("max_tokens", self.max_tokens, 0.0, _MOST_TOKENS)
        check_number("token_ratio", self.token_ratio, 0.001, _MOST_TOKENS)
        object.__setattr__(self, "codes", check_codes(self.codes))


def check_hedge(hedge: object, retry: Retry | None) -> Hedge | None:
    """The option ``hedge``.

    Raises:
        TypeError: it is neither a :class:`Hedge` nor ``None``.
        ValueError: there is a retry policy, too.
    """
    if hedge is None:
        return None
    if not isinstance(hedge, Hedge):
        raise with_option(
            TypeError(f"hedge takes a nearcall.Hedge, such as Hedge(delay=0.05), or None, not {hedge!r}"), "hedge"
        )
    if retry is not None:
        raise with_option(
            ValueError("hedge and retry cannot be used together: both say when to send a call again"), "hedge"
        )
    return hedge


_M = TypeVar("_M", _core.Unary, _core.AsyncUnary)


class _Copies(Generic[_M]):
    """Decides, for threads and event loops alike, when the next copy of one call is sent, and how the call ends."""

    def __init__(self, method: _M, hedge: Hedge, budget: _core.RetryBudget | None, now: float) -> None:
        self._method: _M = method.for_copies()
        self._hedge, self._budget = hedge, budget
        self._sent = 0
        self._next = now
        allowed = method.time_allowed()
        self._end = math.inf if allowed is None else now + allowed

    def sent(self, now: float) -> _M:
        """A copy is sent, by a call of the returned method."""
        self._sent += 1
        self._next = now + self._hedge.delay
        # The deadline is that of the first copy for all of them.
        if self._sent == 1 or self._end == math.inf:
            return self._method
        return self._method.within(max(0.0, self._end - now))

    def wait(self, now: float) -> float | None:
        """Seconds until the next copy is to be sent; ``None`` if there will be none."""
        if self._sent == 0:
            return 0.0
        if self._sent >= self._hedge.attempts or self._next == math.inf:
            return None
        if self._budget is not None and not self._budget.allows():
            return None
        # As with retries, what a call has failed with says more than that its deadline passes during a pause.
        return max(0.0, self._next - now) if self._next < self._end else None

    def ended(self, error: BaseException | None, now: float) -> bool:
        """A copy has ended. Returns whether the call has ended with it."""
        if error is None:
            if self._budget is not None:
                self._budget.succeeded()
            return True
        if not isinstance(error, RpcError):
            return True
        said = error.trailing_metadata.get(_core.PUSHBACK)
        pause = 0.0 if said is None else _core.pushback(str(said))
        goes_on = error.code in self._hedge.codes
        if self._budget is not None and (goes_on or pause == math.inf):
            self._budget.failed()
        # What a server has said against more copies stands, whatever another one says.
        if self._next != math.inf:
            self._next = now + pause
        return not goes_on


def hedged(
    method: Callable[..., Any],
    plan: MethodPlan,
    hedge: Hedge | None,
    budget: _core.RetryBudget | None,
    *,
    for_loop: bool,
) -> Callable[..., Any]:
    """The method, whose calls are sent once more if that is asked for, and may be."""
    if hedge is None or not plan.idempotent or plan.kind != UNARY:
        return method
    if not for_loop:
        assert isinstance(method, _core.Unary)
        return dressed(_Hedged(method, hedge, budget), plan, for_loop=False)
    assert isinstance(method, _core.AsyncUnary)
    unary = method

    async def copies(*args: Any, **kwargs: Any) -> Any:
        return await _in_loop(unary, hedge, budget, args, kwargs)

    return dressed(copies, plan, for_loop=True)


class _Hedged:
    """A method for threads."""

    def __init__(self, method: _core.Unary, hedge: Hedge, budget: _core.RetryBudget | None) -> None:
        self._method, self._hedge, self._budget = method, hedge, budget

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        copies = _Copies(self._method, self._hedge, self._budget, time.monotonic())
        under_way: list[_core.StartedCall[Any]] = []
        last: BaseException | None = None
        try:
            while True:
                now = time.monotonic()
                wait = copies.wait(now)
                if wait == 0.0:
                    method = copies.sent(now)
                    try:
                        under_way.append(method.start(*args, **kwargs))
                    except RpcError as error:
                        last = error
                        if copies.ended(error, now):
                            raise
                    continue
                if not under_way:
                    assert last is not None
                    if wait is None:
                        raise last
                    time.sleep(wait)
                    continue
                for place in sorted(_core.wait_for_started(under_way, wait), reverse=True):
                    ended = under_way.pop(place)
                    last = ended.exception()
                    if copies.ended(last, time.monotonic()):
                        return ended.result()
        finally:
            for call in under_way:
                call.cancel()
            del last

    def start(self, *args: Any, **kwargs: Any) -> _core.StartedCall[Any]:
        """One copy: a started call is not hedged."""
        return self._method.start(*args, **kwargs)

    def within(self, seconds: float) -> _Hedged:
        """The same method, with a timeout for each call."""
        made = object.__new__(_Hedged)
        made.__dict__.update(self.__dict__, _method=self._method.within(seconds))
        return made

    def __repr__(self) -> str:
        return repr(self._method)


async def _in_loop(
    method: _core.AsyncUnary,
    hedge: Hedge,
    budget: _core.RetryBudget | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    import asyncio

    loop = asyncio.get_running_loop()
    copies = _Copies(method, hedge, budget, loop.time())
    under_way: set[asyncio.Future[Any]] = set()
    last: BaseException | None = None
    try:
        while True:
            wait = copies.wait(loop.time())
            if wait == 0.0:
                call = copies.sent(loop.time())
                under_way.add(asyncio.ensure_future(call(*args, **kwargs)))
                continue
            if not under_way:
                assert last is not None
                if wait is None:
                    raise last
                await asyncio.sleep(wait)
                continue
            done, under_way = await asyncio.wait(under_way, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                last = ended.exception()
                if copies.ended(last, loop.time()):
                    under_way |= done - {ended}
                    return ended.result()
    finally:
        for future in under_way:
            future.cancel()
        if under_way:
            await asyncio.gather(*under_way, return_exceptions=True)
        del last
