"""The rules of a proxy: which messages it harms, and how; and counters of what it has done."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from types import TracebackType
from typing import Literal, get_args

from ..errors import InvalidArgument
from ..options.checked import check_seconds, check_whole
from ..options.names import checks_names
from .frames import FRAME_KINDS, HANDSHAKE_KINDS, Frame, Kind, Side

__all__ = ["Effect", "Fault", "Plan", "Selection"]

Effect = Literal["watch", "drop", "delay", "hold", "corrupt", "truncate"]

_REMEMBERED = 1000


class Selection:
    """The messages of a rule: of these kinds, to that side, of that method, for which ``where`` returns true."""

    def __init__(
        self,
        kinds: tuple[Kind, ...],
        to: Side | None,
        method: str | None,
        where: Callable[[Frame], bool] | None,
    ) -> None:
        for kind in kinds:
            if kind not in get_args(Kind):
                raise InvalidArgument(f"there are no frames of kind {kind!r}; there are {', '.join(get_args(Kind))}")
        if to not in (None, "client", "server"):
            raise InvalidArgument(f"to must be 'client' or 'server', not {to!r}")
        # Messages of the handshake are only selected by name: otherwise a rule would also harm the next connection.
        self.kinds = frozenset(kinds or FRAME_KINDS)
        self._to = to
        self._method = method
        self._where = where

    @property
    def frames(self) -> bool:
        """Whether it selects more than the handshake."""
        return not self.kinds <= set(HANDSHAKE_KINDS)

    def fits(self, frame: Frame) -> bool:
        """Whether it selects this message."""
        if frame.kind not in self.kinds or (self._to is not None and frame.to != self._to):
            return False
        if self._method is not None and (
            frame.method is None or self._method not in (frame.method, frame.method.partition(".")[2])
        ):
            return False
        return self._where is None or bool(self._where(frame))

    def __str__(self) -> str:
        kinds = "frame" if len(self.kinds) == len(FRAME_KINDS) else " or ".join(sorted(self.kinds))
        method = "" if self._method is None else f" of {self._method}"
        return f"{kinds}{method}{'' if self._to is None else f' to the {self._to}'}"


class Fault:
    """One rule of a :class:`FaultyProxy`, made by its methods; it remembers which messages it has struck.

    A ``with`` statement removes it at the end.
    """

    @checks_names
    def __init__(  # noqa: PLR0913 - made in one place
        self,
        plan: Plan,
        effect: Effect,
        selection: Selection,
        *,
        skip: int,
        times: int | None,
        probability: float,
        seed: int,
        seconds: float = 0.0,
        damage: Callable[[Frame], bytes] | None = None,
        keep: int | None = None,
    ) -> None:
        self.effect: Effect = effect
        self.selection = selection
        self.seconds = seconds
        self.damage = damage
        self.keep = keep
        self.holding = effect == "hold"
        self._plan = plan
        self._skip = check_whole("skip", skip, least=0)
        self._left = None if times is None else check_whole("times", times)
        if not 0 <= probability <= 1:
            raise InvalidArgument(f"probability must be from 0 to 1, not {probability!r}")
        self._probability = probability
        self._random = random.Random(seed)
        self._struck: deque[Frame] = deque(maxlen=_REMEMBERED)
        self._count = 0

    @property
    def count(self) -> int:
        """How many messages it has struck."""
        with self._plan.changed:
            return self._count

    @property
    def frames(self) -> list[Frame]:
        """The messages it has struck, as they were sent; at most the last 1,000."""
        with self._plan.changed:
            return list(self._struck)

    def wait(self, count: int = 1, timeout: float = 10.0) -> Fault:
        """Waits until it has struck ``count`` messages; returns itself.

        Raises:
            TimeoutError: that took more than ``timeout`` seconds; the message says what passed instead.
        """
        end = time.monotonic() + check_seconds("timeout", timeout)
        with self._plan.changed:
            while self._count < count:
                if self._plan.failure is not None:
                    raise self._plan.failure
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(
                        f"within {timeout} s this struck {self._count} of {count}: {self!r}; {self._plan.summary()}"
                    )
                self._plan.changed.wait(left)
        return self

    def release(self) -> None:
        """Sends on the messages that :meth:`FaultyProxy.hold` holds, and holds no more. Harmless when repeated."""
        self.remove()

    def remove(self) -> None:
        """Ends the rule; messages that it holds are sent on. Harmless when repeated."""
        self._plan.remove(self)

    def strikes(self, frame: Frame) -> bool:
        """Whether the rule strikes this message; counts it if so. Called with the plan's lock held."""
        if self._left == 0 or not self.selection.fits(frame):
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        if self._probability < 1 and self._random.random() >= self._probability:
            return False
        if self._left is not None:
            self._left -= 1
        self._count += 1
        self._struck.append(frame)
        return True

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<{self.effect} {self.selection}>"


class Plan:
    """All rules of a proxy, and its counters. Rules come from any thread, messages from the proxy's."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self.counts: Counter[str] = Counter()
        self.failure: BaseException | None = None
        """The exception that a user's own function raised in the proxy's thread."""
        self._passed: Counter[str] = Counter()
        self._faults: list[Fault] = []
        self._wake = wake

    def add(self, fault: Fault) -> Fault:
        """Adds a rule, which applies from now on."""
        with self.changed:
            self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Removes a rule, which then holds nothing any more."""
        with self.changed:
            fault.holding = False
            if fault in self._faults:
                self._faults.remove(fault)
        self._wake()

    def strike(self, frame: Frame) -> Fault | None:
        """The rule for a message: the first that strikes it. Rules that only watch see it as well."""
        with self.changed:
            found: Fault | None = None
            for fault in self._faults:
                if (fault.effect == "watch" or found is None) and fault.strikes(frame) and fault.effect != "watch":
                    found = fault
            self._passed[frame.kind] += 1
            if found is not None:
                self.counts[found.effect] += 1
            self.changed.notify_all()
            return found

    def fail(self, error: BaseException) -> None:
        """Called when a user's own function has raised; threads that wait, or close the proxy, raise the error."""
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()

    def note(self, what: str) -> None:
        """Counts something else that has happened."""
        with self.changed:
            self.counts[what] += 1
            self.changed.notify_all()

    def count(self, what: str) -> int:
        """How often something was counted."""
        with self.changed:
            return self.counts[what]

    def summary(self) -> str:
        """A sentence about the messages that the proxy has seen. Called with the lock held."""
        seen = ", ".join(f"{number} {kind}" for kind, number in self._passed.items())
        return f"the proxy has seen {seen or 'nothing'}"
