"""What a servicer sets for its call besides the response: a status, metadata, and callbacks for the end.

The contexts for threads and for event loops share it. They differ only in how they wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .. import _core
from ..call.metadata import encode_metadata
from ..errors import DeadlineExceeded, RpcError, error_class
from ..log import ERROR, log
from ..metadata_pairs import Metadata
from .addresses import peer_name
from .details import DETAILS, details_of
from .peer import status_code, status_number
from .settings import compression_of

__all__ = ["Aborted", "Metadatum", "Outcome", "pairs_of"]


class Metadatum(NamedTuple):
    """One key and value of metadata."""

    key: str
    value: str | bytes


class Aborted(Exception):
    """Raised by ``context.abort`` to end the servicer's method."""


def pairs_of(metadata: Metadata) -> tuple[Metadatum, ...]:
    """Metadata as grpcio has it."""
    return tuple(Metadatum(key, value) for key, value in metadata.pairs())


class Outcome:
    """The call of one servicer's method.

    Args:
        call: The core's call.
        path: ``/package.Service/Method``
        watch: Called for a call that has callbacks, to run them if the call ends early.
    """

    def __init__(self, call: _core.Call, path: str, watch: Callable[[Outcome], None]) -> None:
        self.call = call
        self.path = path
        self.number: int | None = None
        self.message: str | None = None
        self.trailing: tuple[Any, ...] = ()
        self.aborted = False
        self.over = False
        self._details: Any = None
        self._compress: bool | None = None
        self._watch = watch
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] | None = []

    @property
    def active(self) -> bool:
        """Whether the client still waits for the outcome."""
        return not self.over and not self.ended_early

    @property
    def ended_early(self) -> bool:
        """Whether the client has given the call up, or its deadline has passed."""
        left = self.call.time_left
        return self.call.cancelled or (left is not None and left <= 0)

    @property
    def invocation_metadata(self) -> tuple[Metadatum, ...]:
        """The metadata that the client sent with its request."""
        return tuple(pair for pair in pairs_of(Metadata(self.call.metadata)) if not pair.key.startswith(":"))

    @property
    def peer(self) -> str:
        """The caller's address, as grpcio names it."""
        return peer_name(self.call.peer)

    def identities(self) -> Mapping[str, list[bytes]]:
        """The content of the client's certificate, by the names of grpcio's properties."""
        peer = self.call.peer
        found: dict[str, list[bytes]] = {}
        if "subject" in peer:
            found["transport_security_type"] = [b"ssl"]
            common = [part[3:] for part in str(peer["subject"]).split(",") if part.strip().startswith("CN=")]
            found["x509_common_name"] = [each.encode() for each in common]
        if peer.get("names"):
            found["x509_subject_alternative_name"] = [str(name).encode() for name in peer["names"]]
        return found

    def identity_key(self) -> str | None:
        """The property that names the client; ``None`` if there is none."""
        found = self.identities()
        names = ("x509_subject_alternative_name", "x509_common_name")
        return next((name for name in names if found.get(name)), None)

    def send_initial(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
        """Sends metadata ahead of the response."""
        self.call.send_initial(encode_metadata(_pairs(metadata)))

    def set_trailing(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
        """Replaces the metadata that is sent with the end of the call.

        Raises:
            ValueError: a key or a value is malformed.
        """
        pairs = _pairs(metadata)
        encode_metadata([pair for pair in pairs if pair[0] != DETAILS])
        self.trailing = tuple(Metadatum(key, value) for key, value in pairs)

    def abort(self, code: Any, message: Any, trailing: Iterable[tuple[str, str | bytes]] | None = ()) -> None:
        """Fixes the status with which the call ends, whatever the servicer does from now on."""
        number = status_number(code)
        # An aborted call has no response, so that it cannot end with OK.
        self.number = number or status_number(None)
        self.message = _text(message)
        if trailing:
            self.set_trailing(trailing)
        self.aborted = True

    def set_code(self, code: Any) -> None:
        """Sets the status code with which the call ends."""
        if not self.aborted:
            self.number = status_number(code)

    def set_message(self, message: Any) -> None:
        """Sets the status message."""
        if not self.aborted:
            self.message = _text(message)

    def set_compression(self, compression: Any) -> None:
        """Sets how further messages are compressed.

        Raises:
            ValueError: nearcall does not write this compression.
        """
        self.call.compress = self._compress = compression_of(compression) is not None

    def skip_next_compression(self) -> None:
        """Sends the next message uncompressed."""
        self.call.compress = False

    def message_sent(self) -> None:
        """Ends :meth:`skip_next_compression`, once a message is sent."""
        self.call.compress = self._compress

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Calls a function once when the call ends, even before the servicer has returned. ``False`` if it has ended
        already.
        """
        with self._lock:
            if self._callbacks is None:
                return False
            self._callbacks.append(callback)
            first = len(self._callbacks) == 1
        if first:
            self._watch(self)
        return True

    def run_callbacks(self) -> None:
        """Runs all callbacks, once. What they raise goes to the log."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception as error:
                log(ERROR, "a callback of a call of %s raised %s", self.path, type(error).__name__, error=error)

    def succeed(self) -> None:
        """Called when the servicer has returned.

        Raises:
            RpcError: the servicer has set a status other than OK.
        """
        if self.number:
            raise self._status()
        left = self.call.time_left
        if left is not None and left <= 0:
            # A callback for the end may have made the servicer return at that very moment, and the client's clock may
            # be behind.
            raise DeadlineExceeded(f"{self.path}: the deadline has passed")
        self._send_trailing()

    def failure(self, error: BaseException) -> BaseException:
        """The error to raise for an exception of the servicer."""
        if isinstance(error, RpcError) or not self.number:
            self._send_trailing()
            return error
        if not self.aborted:
            # The code that was set before counts, but this exception was not intended.
            log(ERROR, "%s raised %s", self.path, type(error).__name__, error=error)
            if self.message is None:
                self.message = f"{type(error).__name__}: {error}"
        return self._status()

    def end(self) -> None:
        """Called at the end of the call: runs the callbacks."""
        self.over = True
        if self._callbacks:
            self.run_callbacks()
        else:
            self._callbacks = None

    def _send_trailing(self) -> None:
        """Sends the trailing metadata. Raises ``ValueError`` if the details in it are no status."""
        if not self.trailing:
            return
        trailing, self.trailing = self.trailing, ()
        for pair in trailing:
            if pair[0] == DETAILS:
                self._details = details_of(pair[1])
        self.call.add_trailing(encode_metadata([pair for pair in trailing if pair[0] != DETAILS]))

    def _status(self) -> RpcError:
        self._send_trailing()
        return error_class(self.number or 0)(self.message or "", details=self._details)

    @property
    def code(self) -> Any:
        """The code that was set, as grpcio's enum; ``None`` if none was."""
        return None if self.number is None else status_code(self.number)


def _pairs(metadata: Iterable[tuple[str, str | bytes]] | None) -> list[tuple[str, str | bytes]]:
    return [(key, value) for key, value in metadata or ()]


def _text(message: Any) -> str | None:
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else message
