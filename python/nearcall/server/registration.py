"""``Server(register=...)``: keeps the server registered in directories for as long as it serves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..client.standing import Standing
from ..errors import InvalidArgument, RpcError, Unavailable
from ..log import ERROR, INFO, WARNING, log
from ..options.checked import check_flag, with_option
from ..types.shown import shown

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..client.options import ChannelOptions
    from ..directory import Entry

__all__ = ["Register", "Registration", "Registrations"]


class Registration:
    """Where a server is registered, and as what, for the option ``register`` of :class:`Server`.

    Args:
        url: As clients write it: ``directory+tcp://host:port/name?key=value``. The server is registered under the name,
            with the metadata. If several hosts are listed, it is registered in the directory of each.
        at: The URL at which clients reach the server; ``None``: the first of the server's own that others can reach.
        exclusive: Whether nobody else may have the name, at another URL.
        options: Of the connection to the directory, as for :func:`nearcall.connect`: ``tls``, ``interceptors`` with a
            token, and so on.

    Raises:
        InvalidArgument: the URL or an option is malformed.
        TypeError: there is no such option.
        ValueError: nothing can be registered there, or an option does not fit the directory's URL.
    """

    def __init__(
        self, url: str, *, at: str | None = None, exclusive: bool = False, **options: Unpack[ChannelOptions]
    ) -> None:
        from ..client.options import check_options  # few register
        from ..directory import Entry
        from ..directory.address import FILE, read_address
        from ..directory.entries import check_entry

        address = read_address(url)
        if address.place.startswith(FILE):
            raise with_option(
                ValueError(f"nothing registers in a file: write the server into {address.place}"), "register"
            )
        if not address.name:
            raise with_option(
                InvalidArgument(f"{url} has no name to register: write it after the last slash"), "register"
            )
        check_entry(Entry(address.name, at or "", address.metadata))
        check_options(address.place, None, **options)
        self._address = address
        self._at = at
        self._exclusive = check_flag("exclusive", exclusive)
        self._options = options
        self._shown = url

    def __repr__(self) -> str:
        return f"Registration({self._shown!r})"

    def _is_for(self, urls: Sequence[str]) -> bool:
        """Whether a server at these URLs can be registered."""
        from ..directory.reachable import usable_elsewhere

        return self._at is not None or any(map(usable_elsewhere, urls))

    def _keepers(self, urls: list[str]) -> list[_Keeper]:
        from ..directory import Entry
        from ..directory.reachable import usable_elsewhere

        at = self._at or next(filter(usable_elsewhere, urls))
        entry = Entry(self._address.name, at, self._address.metadata)
        return [_Keeper(place, entry, self._exclusive, self._options) for place in self._address.places]


Register: TypeAlias = "str | Registration | Sequence[str | Registration]"
"""What the option ``register`` takes."""


class Registrations:
    """The registrations of one server.

    Args:
        register: The option.
        urls: Where the server is to listen.
        allow_plaintext: The server's option: for directories of which only the URL is given.

    Raises:
        InvalidArgument: a URL is malformed.
        ValueError: nothing can be registered there, or no other process can reach the server.
    """

    def __init__(self, register: Register, urls: Sequence[str], allow_plaintext: bool) -> None:
        given = [register] if isinstance(register, (str, Registration)) else list(register)
        self._asked = [
            each if isinstance(each, Registration) else Registration(each, allow_plaintext=allow_plaintext)
            for each in given
        ]
        self._keepers: list[_Keeper] = []
        if urls and not all(each._is_for(urls) for each in self._asked):
            error = ValueError(f"no other process reaches a server at {', '.join(urls)}: it cannot be registered")
            raise with_option(error, "register")

    def begin(self, urls: list[str]) -> None:
        """Registers the server, in threads: a directory that is not there yet is waited for."""
        self._keepers = [keeper for each in self._asked for keeper in each._keepers(urls)]
        for keeper in self._keepers:
            threading.Thread(target=keeper.run, name="nearcall-register", daemon=True).start()

    def end(self) -> None:
        """Ends the registrations: clients look for other servers."""
        for keeper in self._keepers:
            keeper.end()


class _Keeper(Standing):
    """Keeps an entry in one directory."""

    spread = True

    def __init__(self, place: str, entry: Entry, exclusive: bool, options: Any) -> None:
        super().__init__()
        self._place = place
        self._entry = entry
        self._exclusive = exclusive
        self._options = options
        self._told: str | None = None

    def connect(self) -> Any:
        from ..client.channel import connect
        from ..directory import Directory

        return connect(self._place, Directory, **self._options)

    def begin(self, service: Any) -> Any:
        return service.register(self._entry, self._exclusive)

    def take(self, service: Any, item: Entry) -> None:
        self._told = None
        log(INFO, "registered as %s at %s, in the directory at %s", item.name, item.url, self._place)

    def failed(self, error: Exception) -> None:
        if not isinstance(error, RpcError):
            log(ERROR, "registering in the directory at %s", self._place, error=error)
        elif self._told != type(error).__name__:  # each reason once: the next attempt comes soon
            self._told = type(error).__name__
            level = WARNING if isinstance(error, Unavailable) else ERROR
            text = "%s is not registered in the directory at %s, which is tried again: %s"
            log(level, text, self._entry.name, self._place, shown(error.message))
