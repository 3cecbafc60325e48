"""``FaultyProxy``: stands between clients and a server, and does harm when it is told to."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType

from ..errors import InvalidArgument
from ..options.checked import check_seconds
from ..options.names import checks_names
from .faults import Effect, Fault, Selection
from .frames import HANDSHAKE_KINDS, Frame, Kind, Side
from .relay import Relay
from .sockets import Upstream, listen

__all__ = ["FaultyProxy"]


class FaultyProxy:
    """A server's double: clients connect to :attr:`url`, and everything goes to the server and back, until a rule says
    otherwise.

    ::

        with FaultyProxy(server.urls[0]) as proxy, nearcall.connect(proxy.url, Calculator) as calc:
            proxy.drop("reply", method="add")
            with nearcall.timeout(0.1), pytest.raises(nearcall.DeadlineExceeded):
                calc.add(1, 2)

    A rule applies once its method has returned. Messages are chosen by

    - ``kinds``: one or more of ``call``, ``item``, ``end``, ``reply``, ``error``, ``cancel``, ``credit``, ``ping``,
      ``pong``, ``goaway``, ``head``; without any, all of these. The messages of the handshake, ``hello``, ``welcome``
      and ``reject``, are struck only if they are named;
    - ``to``: only those to the ``"client"``, or to the ``"server"``;
    - ``method``: only those of calls of this method, by its name or as ``Service.method``;
    - ``where``: only those for which this function returns true;
    - ``skip``: not the first ``skip`` of these;
    - ``times``: only that many of them, then the rule is used up; ``None``: all;
    - ``probability``: each of them with this probability, from a generator that begins with the proxy's ``seed``.

    The first rule that strikes a message decides about it. No message overtakes another: messages behind one that is
    delayed or held wait, as they would on a network.

    The proxy listens at a URL of the same kind as the server's. On ``unix://`` and ``tcp://`` it sees everything. On
    ``shm://`` and ``inproc://`` the frames go through memory that the proxy cannot read: rules can only be about the
    handshake, and :meth:`cut` works. On ``tls://`` there is only :meth:`cut`.

    Args:
        upstream: The server's URL.
        seed: The seed of the random numbers.

    Raises:
        InvalidArgument: ``upstream`` is no URL of a server.
    """

    @checks_names
    def __init__(self, upstream: str, *, seed: int = 0) -> None:
        self._upstream = Upstream.of(upstream)
        self._random = random.Random(seed)
        place = listen(self._upstream)
        self._url = place.url
        self._relay = Relay(place, self._upstream)
        self._plan = self._relay.plan

    @property
    def url(self) -> str:
        """Where clients are to connect."""
        return self._url

    @property
    def upstream(self) -> str:
        """Where the server is."""
        return self._upstream.url

    def drop(
        self,
        *kinds: Kind,
        to: Side | None = None,
        method: str | None = None,
        where: Callable[[Frame], bool] | None = None,
        skip: int = 0,
        times: int | None = 1,
        probability: float = 1.0,
    ) -> Fault:
        """Drops such a message: it never arrives."""
        return self._add("drop", Selection(kinds, to, method, where), skip, times, probability)

    def delay(
        self,
        seconds: float,
        *kinds: Kind,
        to: Side | None = None,
        method: str | None = None,
        where: Callable[[Frame], bool] | None = None,
        skip: int = 0,
        times: int | None = 1,
        probability: float = 1.0,
    ) -> Fault:
        """Delays such a message by ``seconds``, and with it the messages behind it."""
        seconds = check_seconds("seconds", seconds)
        return self._add("delay", Selection(kinds, to, method, where), skip, times, probability, seconds=seconds)

    def hold(
        self,
        *kinds: Kind,
        to: Side | None = None,
        method: str | None = None,
        where: Callable[[Frame], bool] | None = None,
        skip: int = 0,
        times: int | None = 1,
        probability: float = 1.0,
    ) -> Fault:
        """Holds such a message, and all messages behind it, until the fault is released."""
        return self._add("hold", Selection(kinds, to, method, where), skip, times, probability)

    def corrupt(
        self,
        *kinds: Kind,
        at: int | None = None,
        to: Side | None = None,
        method: str | None = None,
        where: Callable[[Frame], bool] | None = None,
        skip: int = 0,
        times: int | None = 1,
        probability: float = 1.0,
        change: Callable[[bytes], bytes] | None = None,
    ) -> Fault:
        """Damages such a message: inverts one of its bytes, or sends what ``change`` returns.

        Args:
            kinds: As for all rules: see :class:`FaultyProxy`, also for the arguments below.
            at: Which byte; a negative number counts from the end. The default is a byte that the receiver cannot
                overlook: the kind of a frame, the first letter of a handshake's message.
            change: Gets all bytes of the message and returns those to send. A frame begins with its length in 4 bytes.
            to: See above.
            method: See above.
            where: See above.
            skip: See above.
            times: See above.
            probability: See above.
        """
        if at is not None and change is not None:
            raise InvalidArgument("corrupt() takes at= or change=, not both")

        def damage(frame: Frame) -> bytes:
            if change is not None:
                return change(frame.wire)
            where = (0 if frame.kind in HANDSHAKE_KINDS else 4) if at is None else at
            if not -len(frame.wire) <= where < len(frame.wire):
                raise InvalidArgument(f"there is no byte {at} in a {frame.kind} of {len(frame.wire)} bytes")
            wire = bytearray(frame.wire)
            wire[where] ^= 0xFF
            return bytes(wire)

        return self._add("corrupt", Selection(kinds, to, method, where), skip, times, probability, damage=damage)

    def truncate(
        self,
        *kinds: Kind,
        keep: int | None = None,
        to: Side | None = None,
        method: str | None = None,
        where: Callable[[Frame], bool] | None = None,
        skip: int = 0,
        times: int | None = 1,
        probability: float = 1.0,
    ) -> Fault:
        """Sends only the first ``keep`` bytes of such a message (by default half of it), then cuts the connection. With
        0 it is cut before the message; a negative number counts from the end.
        """
        return self._add("truncate", Selection(kinds, to, method, where), skip, times, probability, keep=keep)

    def watch(
        self,
        *kinds: Kind,
        to: Side | None = None,
        method: str | None = None,
        where: Callable[[Frame], bool] | None = None,
        skip: int = 0,
        times: int | None = None,
    ) -> Fault:
        """Does nothing to such messages, but counts and remembers them, whatever else happens to them."""
        return self._add("watch", Selection(kinds, to, method, where), skip, times, 1.0)

    def cut(self) -> int:
        """Ends all connections now, in both directions; returns how many. Clients can connect again.

        Messages on their way are lost. When this returns, both sides have been told.
        """
        return self._relay.cut()

    @property
    def connections(self) -> int:
        """How many clients have connected so far."""
        return self._plan.count("connections")

    @property
    def dropped(self) -> int:
        """How many messages were dropped so far."""
        return self._plan.count("drop")

    @property
    def delayed(self) -> int:
        """How many messages were or are to be delayed, not counting those behind them."""
        return self._plan.count("delay")

    @property
    def held(self) -> int:
        """How many messages were held, not counting those behind them, whether or not they were released."""
        return self._plan.count("hold")

    @property
    def corrupted(self) -> int:
        """How many messages were damaged."""
        return self._plan.count("corrupt")

    @property
    def truncated(self) -> int:
        """How many messages were or are to be truncated."""
        return self._plan.count("truncate")

    @property
    def cuts(self) -> int:
        """How many connections the proxy has cut, by :meth:`cut` or after a truncated message."""
        return self._plan.count("cut")

    def close(self) -> None:
        """Ends all connections and stops listening. Harmless when repeated.

        Raises whatever a function given as ``where`` or ``change`` has raised, because that runs in the proxy's thread.
        """
        self._relay.close()
        failure, self._plan.failure = self._plan.failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<faulty proxy at {self.url} to {self.upstream}>"

    def _add(
        self,
        effect: Effect,
        selection: Selection,
        skip: int,
        times: int | None,
        probability: float,
        *,
        seconds: float = 0.0,
        damage: Callable[[Frame], bytes] | None = None,
        keep: int | None = None,
    ) -> Fault:
        if not (self._upstream.frames if selection.frames else self._upstream.handshake):
            sees = "only the handshake" if self._upstream.handshake else "nothing of what is said"
            raise InvalidArgument(
                f"a proxy to {self.upstream} sees {sees}: serve the object at a unix:// or tcp:// URL, too, "
                "and take that for this test, or use cut()"
            )
        fault = Fault(
            self._plan,
            effect,
            selection,
            skip=skip,
            times=times,
            probability=probability,
            seed=self._random.getrandbits(64),
            seconds=seconds,
            damage=damage,
            keep=keep,
        )
        return self._plan.add(fault)
