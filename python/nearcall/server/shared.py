"""Topics with a name: those of one name are one, in all workers of a server.

Each worker has a private server at which the others follow what is published in it, as ordinary clients with an
ordinary stream: one for all topics. What arrives is published to the subscribers here. Nobody waits for anybody, and a
worker that follows too slowly loses items as any slow subscriber does, and passes that on.

Workers find each other by a question to all (:mod:`.colleagues`): whoever begins tells its process id, and hears those
of the others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .. import _core
from ..client.channel import connect
from ..codec.msgpack.wide import or_again
from ..codec.protocol import BUFFER_FORMS, CODED
from ..errors import RpcError
from ..log import DEBUG, WARNING, log
from ..service.service import plan_of, service
from .colleagues import Colleagues, when_met
from .server import Server
from .subscription import Subscription

__all__ = ["SHARED", "ItemCodec", "Named", "Shared"]

QUESTION = "topics"
ROOM = 8 << 20
"""Bytes of items that wait for a worker that follows too slowly."""
_PAUSE = 0.05
"""Seconds before a worker that lives, and did not answer, is asked again."""
_PATIENCE = 1.0
"""Seconds that the others have to read the last items of a worker that ends."""
_LONGEST_NAME = 1000


_MADE_OF_BYTES: dict[str, Any] = {"bytes": bytes, "bytearray": bytearray, "memoryview": memoryview}


class Item(msgspec.Struct, frozen=True, array_like=True):
    """What one worker tells the others."""

    topic: str
    published: int
    """When, by the monotonic clock that all processes of a machine share, in nanoseconds."""
    by: int
    """The process id of that worker."""
    number: int
    """How many items the topic has had in that worker, this one among them."""
    total: int
    """How many all topics have had there."""
    kept: bool
    """Whether new subscribers get it, as long as it is the last."""
    body: bytes
    buffers: list[bytes]

    @property
    def order(self) -> tuple[int, int, int]:
        """The last item of a topic is that with the greatest: so all workers find the same one, in whatever order items
        reach them. What is published after the reply to another call is later than what that call has published.
        """
        return self.published, self.by, self.number


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """What one worker has told so far."""

    numbers: dict[str, int]
    """How many items each topic has had."""
    total: int
    """How many all of them have had."""
    last: list[Item]
    """The last items of topics that keep them."""


class ItemCodec:
    """Encodes and decodes items of one type.

    Args:
        annotation: The type.

    Raises:
        TypeError: items of the type cannot be sent, or cannot be shared.
    """

    def __init__(self, annotation: Any) -> None:
        def publish(self: object, item: Any) -> None: ...

        publish.__annotations__ = {"item": annotation, "return": None}
        holder: Any = service(name="Topic")(type("Topic", (), {"publish": publish, "__module__": __name__}))
        (plan,) = plan_of(holder).methods
        if plan.request_item is not None or plan.arguments.coding.references:
            raise TypeError(
                "a topic's items cannot hold streams or objects that are passed: those belong to one client"
            )
        self._plan = plan.arguments
        coding = self._plan.coding
        self._encode = or_again(coding.encode, coding.encode_again)
        self._decode = or_again(coding.decode, coding.decode_again)

    def encode(self, item: Any) -> tuple[bytes, list[bytes]]:
        """Raises :class:`~nearcall.InvalidArgument`: the item is not of the type."""
        plan, coding = self._plan, self._plan.coding
        if type(item) not in plan.accepts[0]:
            plan.check_at(0, item)
        if coding.forms[0] in BUFFER_FORMS:
            return bytes(memoryview(item)), []
        try:
            encoded = self._encode((item,))
        except Exception as error:
            raise coding.encode_error(error, (item,)) from error
        if coding.forms[0] == CODED:
            return encoded, []
        return encoded[0], [bytes(buffer) for buffer in encoded[1]]

    def decode(self, body: bytes, buffers: list[bytes]) -> Any:
        """Raises :class:`~nearcall.InvalidArgument`: the item is not of the type, as that of other code may be."""
        coding = self._plan.coding
        if coding.forms[0] in BUFFER_FORMS:
            return _MADE_OF_BYTES[coding.forms[0]](body)
        given = (body,) if coding.forms[0] == CODED else (body, [memoryview(buffer) for buffer in buffers])
        try:
            (item,) = self._decode(*given)
        except Exception as error:
            raise coding.decode_error(error, *given) from error
        return item


class Named:
    """A topic with a name.

    Args:
        core: Its subscribers.
        name: The name.
        types: The type of its items. None if it was made without.
        keeps_last: Whether a new subscriber gets the last item.

    Raises:
        TypeError: there is no type, its values cannot be shared, or there is a topic of that name with another type.
        ValueError: that is no name.
    """

    def __init__(self, core: _core.Topic, name: Any, types: tuple[Any, ...], *, keeps_last: bool) -> None:
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            raise ValueError(f"the name of a topic is a text of 1 to {_LONGEST_NAME} characters, not {name!r}")
        if not types or isinstance(types[0], TypeVar):
            raise TypeError(
                f"the topic '{name}' has a name, so its items go to other processes: make it with their type, as "
                f"nearcall.Topic[float](name='{name}')"
            )
        self.name = name
        self.core = core
        self.type = types[0]
        self.codec = ItemCodec(self.type)
        self.keeps_last = keeps_last
        self._has_last = not keeps_last
        SHARED.add(self)

    def publish(self, item: Any) -> int:
        """Sends an item to all subscribers of topics of that name. Returns how many there are in this process.

        Raises:
            RpcError, RuntimeError: as for :meth:`nearcall.Topic.publish`.
        """
        count = SHARED.publish(self, item)
        self._has_last = True
        return count

    def take(self, item: Item) -> int:
        """Sends an item that was published elsewhere to the subscribers here. How many there are."""
        self._has_last = True
        if self.core.closed:
            return 0
        try:
            return self.core.publish(self.codec.decode(item.body, item.buffers))
        except (RpcError, TypeError, RuntimeError) as problem:
            # As of a worker that runs other code.
            log(
                WARNING,
                "an item of the topic '%s' from elsewhere does not reach its subscribers: %s",
                self.name,
                problem,
            )
            return 0

    def give_last(self) -> None:
        """Before it has its first subscriber: that gets the last item, though it may be from before the topic was
        made.
        """
        if not self._has_last:
            SHARED.give_last(self)


@service
class Relay:
    """What a worker serves to the others."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def follow(self) -> Iterator[Item]:
        """All that is published here from now on."""
        return Subscription(self._shared.feed)

    def standing(self) -> Standing:
        """What was published here before."""
        return self._shared.standing()


class _Private(Server):
    _news = DEBUG  # that it serves is no news for those who read the log of the program


class Shared:
    """The topics with a name of this process."""

    def __init__(self) -> None:
        # Whoever has been too slow goes on with the newest items, and sees from the numbers what it has missed.
        self.feed = _core.Topic(max_buffer=ROOM, drops=True, keeps_last=False)
        self._lock = threading.RLock()
        self._topics: dict[str, weakref.WeakSet[Named]] = {}
        self._numbers: dict[str, int] = {}
        self._total = 0
        self._warned = float("-inf")
        self._last: dict[str, Item] = {}
        self._colleagues: Colleagues | None = None
        self._begun = False
        self._server: Server | None = None
        self._followed: set[int] = set()
        when_met(self._meet, self._end)

    def add(self, topic: Named) -> None:
        """A topic was made.

        Raises:
            TypeError: there is one of its name with items of another type.
        """
        with self._lock:
            for other in self._of(topic.name):
                if not other.core.closed and not _is_same(other.type, topic.type):
                    raise TypeError(
                        f"topics of one name have items of one type: '{topic.name}' has {other.type!r} already, "
                        f"and cannot have {topic.type!r}"
                    )
            self._topics.setdefault(topic.name, weakref.WeakSet()).add(topic)
        self._begin()

    def publish(self, topic: Named, item: Any) -> int:
        """See :meth:`Named.publish`."""
        body, buffers = topic.codec.encode(item)
        with self._lock:
            count = topic.core.publish(item)
            number = self._numbers[topic.name] = self._numbers.get(topic.name, 0) + 1
            self._total += 1
            told = Item(
                topic.name, time.monotonic_ns(), os.getpid(), number, self._total, topic.keeps_last, body, buffers
            )
            self._keep(told)
            self.feed.publish(told)
            return count + sum(each.take(told) for each in self._of(topic.name) if each is not topic)

    def give_last(self, topic: Named) -> None:
        """Gives a topic the last item of those of its name, if that is kept."""
        with self._lock:
            if (last := self._last.get(topic.name)) is not None:
                topic.take(last)

    def standing(self) -> Standing:
        """What was published so far."""
        with self._lock:
            return Standing(dict(self._numbers), self._total, list(self._last.values()))

    def _meet(self, colleagues: Colleagues) -> None:
        self._colleagues = colleagues
        colleagues.answers[QUESTION] = self._hear
        self._begin()

    def _end(self) -> None:
        if self._server is not None:
            self.feed.close()
            self._server.stop(_PATIENCE)

    def _keep(self, item: Item) -> bool:
        """Keeps an item for new subscribers, if it is to be kept. Whether none that is kept was published later."""
        last = self._last.get(item.topic)
        if last is not None and last.order > item.order:
            return False
        if item.kept:
            self._last[item.topic] = item
        return True

    def _begin(self) -> None:
        with self._lock:
            if self._colleagues is None or self._begun or not self._topics:
                return
            self._begun = True
        # A topic may be made in an event loop, which nothing here is to hold up.
        threading.Thread(target=self._open, args=(self._colleagues,), name="nearcall-topics", daemon=True).start()

    def _open(self, colleagues: Colleagues) -> None:
        _remove_left()
        server = _Private(Relay(self), _url(os.getpid()))
        server.start()
        self._server = server
        for answer in colleagues.ask(QUESTION, os.getpid()).values():
            if answer:
                self._follow(int(answer))

    def _hear(self, asker: float) -> bytes:
        if self._server is None:  # it will ask itself, if it has a topic
            return b""
        self._follow(int(asker))
        return str(os.getpid()).encode()

    def _follow(self, pid: int) -> None:
        with self._lock:
            if pid in self._followed:
                return
            self._followed.add(pid)
        threading.Thread(target=self._read, args=(pid,), name=f"nearcall-topics-{pid}", daemon=True).start()

    def _read(self, pid: int) -> None:
        """Takes what is published in another worker, until that ends."""
        seen: dict[str, int] = {}
        total: int | None = None
        try:
            while _lives(pid):
                try:
                    with connect(_url(pid), Relay) as other:
                        items, standing = other.follow(), other.standing()
                        # What came between the two is in the stream, or a gap in the numbers tells that it is not.
                        seen = standing.numbers | seen
                        total = standing.total if total is None else total
                        for item in standing.last:
                            self._take_last(item)
                        for item in items:
                            if item.total > total + 1:
                                self._lost()
                                self._catch_up(pid, other.standing(), item, seen)
                            total = item.total
                            self._take(item, seen)
                        return  # it ends
                except RpcError:
                    time.sleep(_PAUSE)
            for left in (_path(pid), _path(pid).with_suffix(".lock")):  # it was killed
                left.unlink(missing_ok=True)
        finally:
            with self._lock:
                self._followed.discard(pid)

    def _take_last(self, item: Item) -> None:
        with self._lock:
            last = self._last.get(item.topic)
            if (last is None or last.order < item.order) and self._keep(item):
                self._deliver(item)

    def _take(self, item: Item, seen: dict[str, int]) -> None:
        with self._lock:
            missed = item.number - seen.get(item.topic, 0) - 1
            seen[item.topic] = item.number
            if missed > 0:
                self._skip(item.topic, missed)
            last = self._last.get(item.topic)
            if last is not None and last.order == item.order:
                return  # it has come before, as the last of that worker
            is_last = self._keep(item)
            self._deliver(item)
            if last is not None and not is_last:
                # What subscribers have got last is then the last item again, everywhere.
                for topic in self._of(item.topic):
                    if topic.keeps_last:
                        topic.take(last)

    def _catch_up(self, pid: int, standing: Standing, item: Item, seen: dict[str, int]) -> None:
        """Takes the last items that another worker has published, and that were lost on the way: before ``item``, the
        next that has arrived.
        """
        for last in standing.last:
            if last.by == pid and last.total < item.total and last.number > seen.get(last.topic, 0):
                self._take(last, seen)

    def _deliver(self, item: Item) -> None:
        for topic in self._of(item.topic):
            topic.take(item)

    def _of(self, name: str) -> list[Named]:
        return list(self._topics.get(name, ()))

    def _lost(self) -> None:
        """This worker has followed another one too slowly. Of which topics it has missed items only the next of each
        tells; subscribers that must not miss any end now.
        """
        if time.monotonic() - self._warned > _PATIENCE:
            self._warned = time.monotonic()
            log(WARNING, "items of topics from another worker were lost: this one was too slow for them")
        with self._lock:
            for name in self._topics:
                self._skip(name, 0)

    def _skip(self, name: str, count: int) -> None:
        for topic in self._of(name):
            topic.core.skip(count)


def _path(pid: int) -> Path:
    """Where a worker serves the others: in this user's own directory, under no name that ``nearcall list`` shows."""
    directory, _ = _core.named_servers()
    return Path(directory) / f"topics-{pid}"


def _url(pid: int) -> str:
    return f"unix://{_path(pid)}"


def _is_same(one: Any, other: Any) -> bool:
    """Whether two types are the same; classes that were defined again, as in a notebook, are."""
    return bool(one == other) or repr(one) == repr(other)


def _remove_left() -> None:
    """Removes what workers have left that were killed, and that no other was there to miss."""
    for lock in _path(0).parent.glob("topics-*.lock"):
        with contextlib.suppress(OSError, ValueError):
            if _lives(int(lock.stem.removeprefix("topics-"))):
                continue
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # in another container it may live
                lock.with_suffix("").unlink(missing_ok=True)
                lock.unlink()


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


SHARED = Shared()
"""Those of this process."""
