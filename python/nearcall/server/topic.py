"""Server push: what is published once goes to all subscribers, without a thread or a coroutine for each."""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from .. import _core
from ..options.checked import check_whole
from ..options.names import checks_names
from .subscription import Subscription

__all__ = ["Topic"]

if TYPE_CHECKING:
    from .shared import Named

T = TypeVar("T")


class _Typed(GenericAlias):
    """``Topic[float]``: makes topics that know the type of their items from the beginning. Those of ``typing`` are told
    of it only after they were made.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        made: Any = self.__origin__
        topic = made.__new__(made)
        topic._types = self.__args__
        topic.__init__(*args, **options)
        return topic

    def __getitem__(self, types: Any) -> _Typed:
        made: Any = self.__origin__
        return _Typed(made, super().__getitem__(types).__args__)


class Topic(Generic[T]):
    """Items for any number of clients that have subscribed.

    A method of a service returns :meth:`subscribe`, and its caller gets a stream like any other::

        @nearcall.service
        class Market:
            def __init__(self) -> None:
                self._prices = nearcall.Topic[Price]()

            def prices(self) -> Iterator[Price]:
                return self._prices.subscribe()

    The method's handler has returned by then: a subscription takes no thread and no coroutine, only a place among
    ``max_streams`` and ``max_pending`` of the server. Items are encoded once for each method and codec that somebody
    listens to, and a client that reads slowly keeps no other client waiting.

    A subscription ends when the client stops it, is gone or past its deadline; when the topic is closed or nothing
    refers to it any more; and with ``UNAVAILABLE`` when the server begins to stop. A ``with`` block closes a topic at
    its end.

    Each process of ``serve(workers=...)`` has topics of its own, unless they have a name: topics of one name are one,
    in all workers. Such a topic is made with the type of its items, as ``nearcall.Topic[Price](name="prices")``.

    Args:
        name: What an item is published to: all topics of that name in this process, and in the other workers of its
            server.
        max_buffer: Bytes of encoded items that are kept for clients which read too slowly: for all clients of a method
            together, in each codec. They count among the server's ``max_memory``. Items that are already on the way to
            a client are not among them, as for any stream. The last item is kept however long it is.
        when_full: What becomes of a client that falls further behind. ``"end"``: its stream ends with
            ``RESOURCE_EXHAUSTED``, so that nothing is lost without a word. ``"drop_oldest"``: it misses the oldest
            items, and learns how many from the trailing metadata ``nearcall-missed`` when its stream ends.
        keep_last: Whether a new subscriber gets the last published item at once.

    Raises:
        InvalidArgument: ``max_buffer`` is no whole number from 1.
        TypeError: it has a name, and was made without a type, with one whose values cannot be sent, or with another one
            than a topic of that name.
        ValueError: ``when_full`` is none of these, or ``name`` is no name.
    """

    _types: tuple[Any, ...] = ()

    @checks_names
    def __init__(
        self,
        *,
        name: str | None = None,
        max_buffer: int = 1 << 20,
        when_full: Literal["end", "drop_oldest"] = "end",
        keep_last: bool = False,
    ) -> None:
        if when_full not in ("end", "drop_oldest"):
            raise ValueError(f"when_full must be 'end' or 'drop_oldest', not {when_full!r}")
        self._core = _core.Topic(
            max_buffer=check_whole("max_buffer", max_buffer, "bytes"),
            drops=when_full == "drop_oldest",
            keeps_last=bool(keep_last),
        )
        self._named: Named | None = None
        if name is not None:
            from .shared import Named  # imports what only few programs need

            self._named = Named(self._core, name, self._types, keeps_last=bool(keep_last))

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> _Typed:
            return _Typed(cls, super().__class_getitem__(types).__args__)

    def publish(self, item: T) -> int:
        """Sends an item to all subscribers; from any thread or event loop. Waits for none of them.

        Subscribers get items that were published one after the other in this order.

        Args:
            item: What to send. It is encoded before this returns, and may be changed afterwards.

        Returns:
            How many subscribers there are in this process.

        Raises:
            RpcError: the item is not of the type that the method declares, or cannot be sent. Nobody gets it.
            RuntimeError: the topic is closed.
        """
        return self._core.publish(item) if self._named is None else self._named.publish(item)

    def subscribe(self) -> Subscription[T]:
        """What a method returns to its caller: the items that are published from now on.

        The method must stream to its caller, with items of the topic's type that hold no references. If the topic is
        closed, the stream ends at once.
        """
        if self._named is not None:
            self._named.give_last()
        return Subscription(self._core)

    def close(self) -> None:
        """Ends all streams of this process without an error; slow clients first get the items that are kept for them.
        Harmless when repeated.
        """
        self._core.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    @property
    def subscribers(self) -> int:
        """How many subscribers there are in this process just now."""
        return self._core.subscribers

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __iter__(self) -> Any:
            raise TypeError("a topic is no stream: return topic.subscribe()")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"subscribers={self.subscribers}"
        name = "" if self._named is None else f"{self._named.name!r} "
        return f"<nearcall.Topic {name}{state}>"

    def __enter__(self) -> Topic[T]:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
