"""The sockets of both sides of a proxy, for each kind of URL."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

from ..errors import InvalidArgument, Unavailable

__all__ = ["Upstream", "listen"]

_numbers = itertools.count(1)
_CONNECTING = 10.0


class Upstream(NamedTuple):
    """Where a server is, and what a proxy can read of a connection to it."""

    url: str
    family: socket.AddressFamily
    address: str | bytes | tuple[str, int]
    handshake: bool
    """Whether the handshake can be read."""
    frames: bool
    """Whether the frames after it can be read."""

    @classmethod
    def of(cls, url: str) -> Upstream:
        """The server of a URL.

        Raises:
            InvalidArgument: the URL is none that a proxy can lead to.
        """
        scheme, _, rest = url.partition("://")
        if scheme == "unix" and rest.startswith("/"):
            return cls(url, socket.AF_UNIX, rest, True, True)
        if scheme == "shm" and rest:
            return cls(url, socket.AF_UNIX, str(_runtime_dir() / f"{rest}.sock"), True, False)
        if scheme == "inproc" and rest:
            return cls(url, socket.AF_UNIX, _abstract(rest), True, False)
        host, colon, port = rest.rpartition(":")
        if scheme in ("tcp", "tls") and colon and port.isdecimal():
            host = host.removeprefix("[").removesuffix("]")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return cls(url, family, (host, int(port)), scheme == "tcp", scheme == "tcp")
        raise InvalidArgument(f"a proxy cannot lead to {url!r}: give the URL of a server, such as server.urls[0]")

    def connect(self) -> socket.socket:
        """A connection to the server.

        Raises:
            Unavailable: no server listens there.
        """
        connection = socket.socket(self.family)
        try:
            connection.settimeout(_CONNECTING)
            connection.connect(self.address)
        except OSError as error:
            connection.close()
            raise Unavailable(f"the proxy cannot connect to {self.url}: {error}") from None
        return connection


class Place(NamedTuple):
    """Where a proxy listens."""

    url: str
    socket: socket.socket
    left_behind: Path | None
    """A file or folder to remove at the end."""

    def close(self) -> None:
        """Stops listening, and removes its file or folder."""
        self.socket.close()
        if self.left_behind is not None and self.left_behind.is_dir():
            shutil.rmtree(self.left_behind, ignore_errors=True)
        elif self.left_behind is not None:
            self.left_behind.unlink(missing_ok=True)


def listen(upstream: Upstream) -> Place:
    """Listens at a new place of the same kind as the server's."""
    scheme = upstream.url.partition("://")[0]
    name = f"faulty-{os.getpid()}-{next(_numbers)}"
    listener = socket.socket(upstream.family)
    left: Path | None = None
    try:
        if scheme == "unix":
            left = Path(tempfile.mkdtemp(prefix="nearcall-"))
            path = str(left / "faulty")
            address: str | bytes | tuple[str, int] = path
            url = f"unix://{path}"
        elif scheme == "shm":
            left = _runtime_dir() / f"{name}.sock"
            address, url = str(left), f"shm://{name}"
        elif scheme == "inproc":
            address, url = _abstract(name), f"inproc://{name}"
        else:
            address, url = ("::1" if upstream.family == socket.AF_INET6 else "127.0.0.1", 0), ""
        listener.bind(address)
        if not url:
            host, port = listener.getsockname()[:2]
            url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        listener.listen(128)
    except BaseException:
        Place("", listener, left).close()
        raise
    listener.setblocking(False)
    return Place(url, listener, left)


def _abstract(name: str) -> bytes:
    return f"\0nearcall/{os.getpid()}/{name}".encode()


def _runtime_dir() -> Path:
    """Where the sockets of ``shm://`` are; the core checks the directory again when it uses it."""
    named, base = os.environ.get("NEARCALL_RUNTIME_DIR"), os.environ.get("XDG_RUNTIME_DIR")
    if named:
        directory = Path(named)
    elif base and Path(base).is_dir():
        directory = Path(base) / "nearcall"
    else:
        directory = Path(tempfile.gettempdir()) / f"nearcall-{os.geteuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Unavailable(f"{directory} must be a directory of this user that nobody else may enter (mode 0700)")
    return directory
