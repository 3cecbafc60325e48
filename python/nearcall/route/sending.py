"""What all nodes have: endpoints, a table and a server."""

from __future__ import annotations

import socket
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from .. import _core
from ..client.channel import Channel, ChannelBase
from ..client.options import ChannelOptions
from ..errors import FailedPrecondition, InvalidArgument
from ..options.checked import check_flag, check_whole
from ..options.common import DEFAULT_MAX_MESSAGE_SIZE
from ..server.server import Server
from .message import AnyBuffer, bound_codec, prepared
from .rmr import SCHEME, is_any, is_rmr, own_address, sender_at
from .service import EndpointStatus, LeftStatus, NodeStatus, RmrStatus, RouteTable, served_by

__all__ = ["DEFAULT_QUEUE", "OF_BOTH", "Sending", "WhenFull", "read_table"]

WhenFull: TypeAlias = Literal["block", "error", "drop_oldest", "drop_newest"]
"""What becomes of a message when the queue for its receiver is full."""

DEFAULT_QUEUE = 1 << 20
"""Bytes that may wait for a receiver, unless the user says otherwise."""
_LONGEST_NAME = 63
"""Bytes of a node's name."""
_AT_ONCE = 32
"""Messages that one thread takes at once."""
_EXCHANGE = "nearcall-route-rmr"
"""The thread that serves the sockets of RMR's programs. It goes on while others send."""
_GRACE = 5.0
"""Seconds in which what is queued for a receiver that a table no longer names may still be sent."""
OF_BOTH = {
    "allow_groups": ("shm", "unix"),
    "allow_plaintext": ("tcp", "rmr", "nats", "jetstream"),
    "allow_users": ("shm", "unix"),
    "max_message_size": (),
    "nats": ("nats", "nats+tls", "jetstream", "jetstream+tls"),
    "spin": (),
    "tls": ("tls",),
}
"""Options that count for the server of a node, and for its connections to others; with the schemes of URLs for which
they count, if not for all.
"""
OF_SERVER = ("handshake_timeout", "max_memory", "max_pending", "on_connect", "on_disconnect")
"""Options that count for the server of a node only."""


class _Endpoint(Channel):
    """A channel that the endpoint's own thread connects."""

    def __init__(self, url: str, **options: Any) -> None:
        ChannelBase.__init__(self, url, None, cast("ChannelOptions", options), for_loop=False)
        self._connection = self._make_connection()

    @property
    def connection(self) -> _core.Connection:
        """The connection, which does not connect yet."""
        return self._connection


class Sending:
    """Endpoints, a table, and a server.

    Args:
        urls: Where the node takes messages.
        name: The node's name.
        when_full: As for a node.
        queue: As for a node.
        options: As for a node.
        managed: Whether a route manager of RMR may push tables.
    """

    def __init__(
        self,
        urls: tuple[str, ...],
        name: str | None,
        when_full: WhenFull,
        queue: int,
        options: Mapping[str, Any],
        *,
        managed: bool,
    ) -> None:
        if not urls:
            raise ValueError("a node takes messages somewhere: give a URL such as shm://filter or tcp://127.0.0.1:7000")
        for url in urls:
            scheme, separator, _ = url.partition("://")
            if separator and scheme not in _core.ROUTE_SCHEMES:
                known = ", ".join(f"{each}://" for each in _core.ROUTE_SCHEMES)
                raise InvalidArgument(f"{url}: a node takes messages at {known} and not at {scheme}://")
        self._asked = [url for url in urls if not is_rmr(url) and not is_kept(url)]
        self._kept_places = [url for url in urls if is_kept(url)]
        self._rmr_places = [url[len(SCHEME) :] for url in urls if is_rmr(url)]
        if unknown := sorted(set(options) - {*OF_BOTH, *OF_SERVER}):
            known = ", ".join(sorted((*OF_BOTH, *OF_SERVER)))
            raise TypeError(f"a node has no option {unknown[0]!r}; besides its own it takes {known}")
        self._is_named = bool(name)
        self.name = name or _name_of(urls[0])
        self._options = {key: value for key, value in options.items() if key in OF_BOTH}
        if (unused := sorted(set(options).intersection(OF_SERVER))) and not self._asked:
            raise TypeError(f"{unused[0]} counts for other URLs than rmr:// and jetstream://, and this node has none")
        longest = check_whole("max_message_size", options.get("max_message_size", DEFAULT_MAX_MESSAGE_SIZE), "bytes")
        anywhere = check_flag("allow_plaintext", options.get("allow_plaintext", False))
        self._listens_first = is_rmr(urls[0])
        self._core = _core.RouteNode(
            self.name,
            when_full,
            check_whole("queue", queue, "bytes"),
            (longest, anywhere, bool(self._rmr_places), managed, self._listens_first),
            # The core is no part of Python's garbage collection: it must not keep what keeps it.
            _weakly(self._dial),
            _weakly(self._start_work),
            prepared,
            _weakly(self._reply),
            bound_codec,
        )
        self._threads: list[threading.Thread] = []
        self._consuming: list[threading.Thread] = []
        self._failed = 0
        self._unhandled = 0
        self._rmr_sender = ("", "")
        self._make_server = partial(self._server_of, self._asked, options)
        # Its options are checked now.
        self._server = self._make_server(self._core.inbox()) if self._asked else None
        self._near: list[str] = []

    def _server_of(self, urls: Sequence[str], options: Mapping[str, Any], inbox: object, **more: Any) -> Server:
        meant = {key for url in urls for key in options_for(url, self._options)}
        options = {key: value for key, value in options.items() if key in OF_SERVER or key in meant}
        return Server(served_by(inbox, self.status, self.table), *urls, reflection=False, **options, **more)

    @abstractmethod
    def _reply(
        self, message: _core.RouteMessage[Any], payload: AnyBuffer, type: int | None, timeout: float | None
    ) -> Any:
        """Sends a message back to the sender of another: what ``message.reply()`` calls."""

    # --- endpoints ---

    def _dial(self, name: str) -> _core.Connection:
        if "://" not in name:
            name = f"tcp://{name}"
        return _Endpoint(name, **options_for(name, self._options)).connection

    def _start_work(self, work: _core.RouteWork) -> None:
        thread = threading.Thread(target=work.run, name=f"nearcall-route-{work.name}", daemon=True)
        thread.start()
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(thread)

    # --- tables ---

    def install(self, text: str, *, toml: bool = False) -> None:
        """Puts a table in force: all of it at once, in the place of the one before. What is sent meanwhile goes by one
        of the two. Receivers that are new in it have been connected before, or 0.25 seconds are over; in the thread of
        an event loop this does not wait for them.

        Args:
            text: RMR's text, which may also be a change of the table in force; or TOML.
            toml: Whether it is TOML.

        Raises:
            InvalidArgument: the table is wrong; the message names the line. The one before stays in force.
        """
        self._core.install(text, self._own_names(), toml=toml, grace=_GRACE, may_wait=self._may_wait())

    def _may_wait(self) -> bool:
        """Whether this thread may wait for connections."""
        return True

    def load(self, path: str | Path) -> None:
        """Puts a table from a file in force: TOML if its name ends so, otherwise RMR's text.

        Raises:
            OSError: the file cannot be read.
            InvalidArgument: the table is wrong, or empty; the message names file and line. The one before stays in
                force.
        """
        try:
            text, toml = read_table(Path(path))
            self.install(text, toml=toml)
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: {error}") from None

    def table(self) -> RouteTable | None:
        """The table in force; ``None`` if there is none."""
        found = self._core.table()
        return None if found is None else RouteTable(*found)

    def _own_names(self) -> list[str]:
        urls = self.urls
        # What is kept for one of a group is not this node's alone: it may send there.
        urls = [url for url in urls if not is_kept(url)]
        urls = [*urls, *map(_told, urls)]
        names = [self.name, *self._rmr_sender, *urls, *(url.partition("://")[2] for url in urls)]
        return list(dict.fromkeys(name for name in names if name))

    # --- what is known ---

    @property
    def urls(self) -> list[str]:
        """Where the node takes messages. A TCP port of 0 is replaced by the port that the system chose."""
        near = self._near if self._server is None else self._server.urls
        far = [f"{SCHEME}{place}" for place in self._rmr_places]
        return (far + near if self._listens_first else near + far) + self._kept_places

    @property
    def _address(self) -> str:
        """Where others reach the node; empty if they do not."""
        return next((_told(url) for url in self.urls if not is_kept(url)), "")

    @property
    def _takes_from_inbox(self) -> bool:
        """Whether messages come that no call brings, so that handlers run in threads of their own."""
        return bool(self._rmr_places or self._kept_places)

    def is_ready(self) -> bool:
        """Whether a table is in force, and all the nodes that it names are connected."""
        return self._core.is_ready()

    def status(self) -> NodeStatus:
        """What the node has done so far."""
        taken, waiting, malformed, unrouted = self._core.counts()
        found = self._core.table()
        used, left = self._core.endpoints()
        endpoints = [EndpointStatus(each.name, *each.counts()) for each in used]
        return NodeStatus(
            name=self.name,
            urls=self.urls,
            table=None if found is None else found[0],
            taken=taken,
            waiting=waiting,
            malformed=malformed,
            failed=self._failed,
            unhandled=self._unhandled,
            unrouted=unrouted,
            endpoints=sorted(endpoints, key=lambda each: each.name),
            rmr=None if not any(rmr := self._core.rmr_counts()) else RmrStatus(*rmr),
            left=LeftStatus(*left) if any(left) else None,
        )

    # --- begin and end ---

    def _bind(self, dispatch: _core.RouteDispatch | None, threads: int) -> None:
        """Has its URLs from now on; ``dispatch`` will have handlers called, in at most so many threads."""
        if self._server is not None:
            # Such messages come to no server. Where there are some, threads of their own handle all.
            if dispatch is not None and not self._takes_from_inbox:
                self._server = self._make_server(dispatch, max_concurrency=threads)
            self._server.bind()
        for number, place in enumerate(self._rmr_places):
            self._rmr_places[number] = self._core.listen_rmr(place)
        urls = self.urls
        if not self._is_named:
            self.name = _name_of(urls[0])  # with the port that the system chose
        self._rmr_sender = sender_at(self.name, self._rmr_places)
        self._core.set_rmr_sender(*self._rmr_sender)
        self._core.set_address(self.name, self._address, [shared for url in urls if (shared := _shared_place(url))])

    def _serve(self, dispatch: _core.RouteDispatch | None, threads: int) -> None:
        """Takes messages from now on, as was said to :meth:`_bind`."""
        if self._server is not None:
            self._server.start()
        if dispatch is not None and self._takes_from_inbox:
            work = partial(dispatch.work, _AT_ONCE if threads == 1 else 1)
            for number in range(threads):
                thread = threading.Thread(target=work, name=f"nearcall-route-handler-{number}", daemon=True)
                self._consuming.append(thread)
                thread.start()

    def _take_no_more(self, grace: float) -> None:
        """Takes no more messages. Those that have come are still handled. Harmless when repeated."""
        if self._server is not None:
            self._server.stop(grace)
        self._core.take_no_more()
        for thread in self._consuming:
            thread.join(grace)

    def _close(self, grace: float) -> None:
        """Sends what is queued, and nothing more. Harmless when repeated."""
        self._core.close(grace)
        for thread in self._threads:
            if thread.name != _EXCHANGE:
                thread.join(grace + 1.0)
        self._core.end()
        for thread in self._threads:
            thread.join(1.0)
        if self._server is not None:
            # It has functions of this node, and is as the core is.
            self._near, self._server = self._server.urls, None


def _weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a node, which does not keep that."""
    found = weakref.WeakMethod(method)

    def call(*args: Any, **kwargs: Any) -> Any:
        still = found()
        if still is None:
            raise FailedPrecondition("the node is gone")
        return still(*args, **kwargs)

    return call


def read_table(path: Path) -> tuple[str, bool]:
    """The text of a table's file, and whether it is TOML.

    Raises:
        OSError: it cannot be read.
        InvalidArgument: it is empty, or no text.
    """
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidArgument(f"line {line}: the byte {data[error.start]:#04x} is no UTF-8") from None
    if not text.strip():
        raise InvalidArgument("the file is empty: a table for nobody is `newrt | start` and `newrt | end`")
    return text, path.suffix == ".toml"


def _name_of(url: str) -> str:
    """The name of a node that is given none: as much of the end of its URL as a name may have."""
    name = url.partition("://")[2] or url
    return name.encode()[-_LONGEST_NAME:].decode(errors="ignore")


def is_kept(url: str) -> bool:
    """Whether it is a subject whose messages a NATS server keeps."""
    return url.startswith(("jetstream://", "jetstream+tls://"))


def _told(url: str) -> str:
    """A node's URL as others are told it: one that listens at all of the machine's addresses names one of them.

    What is encrypted is checked by name, so there it is the machine's name.
    """
    scheme, separator, place = url.partition("://")
    host, _, port = place.rpartition(":")
    if scheme not in ("tcp", "tls") or not is_any(host):
        return url
    return f"{scheme}{separator}{socket.getfqdn() if scheme == 'tls' else own_address()}:{port}"


def _shared_place(url: str) -> str:
    """How the addresses begin of others who are where only those reach each other who are there; empty elsewhere."""
    scheme, separator, rest = url.partition("://")
    if scheme.startswith("nats"):
        return f"{scheme}{separator}{rest.partition('/')[0]}/"
    return "inproc://" if scheme == "inproc" else ""


def options_for(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a node's options that count for connections to a URL."""
    scheme = url.partition("://")[0]
    return {key: value for key, value in options.items() if not OF_BOTH[key] or scheme in OF_BOTH[key]}
