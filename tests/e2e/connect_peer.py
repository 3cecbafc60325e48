"""Clients of Connect and gRPC-Web over HTTP/1.1, from their descriptions, with the standard library's HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

PROTOCOLS = ("connect", "connect stream", "grpc-web", "grpc-web-text")
GRPC_CODES = (
    *("ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists"),
    *("permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented"),
    *("internal", "unavailable", "data_loss", "unauthenticated"),
)
PATIENCE = 20.0
"""Seconds after which a read has failed."""


class Result(NamedTuple):
    """What became of a call."""

    code: str
    """Connect's name of it, or ``"ok"``."""
    message: str
    messages: list[bytes]
    head: list[tuple[str, str]]
    trailers: list[tuple[str, str]]
    status: int
    """HTTP's."""
    details: list[dict[str, Any]]

    @property
    def only(self) -> bytes:
        """The one message of a call that went well."""
        assert self.code == "ok", self
        (message,) = self.messages
        return message


class Connection(http.client.HTTPConnection):
    """One, to a port or to a socket in the file system."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        scheme, _, place = url.partition("://")
        self._path = place if "unix" in scheme else None
        self._tls = tls
        super().__init__("localhost" if self._path else place, timeout=PATIENCE)

    def connect(self) -> None:
        if self._path is None:
            super().connect()
            if self._tls is not None:
                self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)


def envelope(message: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


class Peer:
    """A client of one protocol, with one connection.

    Args:
        url: The server's.
        protocol: One of :data:`PROTOCOLS`.
        codec: ``"proto"`` or ``"json"``.
        tls: For ``https://``.
    """

    def __init__(self, url: str, protocol: str, *, codec: str = "proto", tls: ssl.SSLContext | None = None) -> None:
        self.protocol, self.codec = protocol, codec
        self.connection = Connection(url, tls)

    def begin(
        self,
        path: str,
        messages: Iterable[bytes],
        *,
        headers: Iterable[tuple[str, str]] = (),
        timeout_ms: int | None = None,
        chunked: bool = False,
    ) -> http.client.HTTPResponse:
        """Sends a call, and waits for the head of its response."""
        parts: Iterable[bytes] = messages
        if self.protocol != "connect":
            parts = (envelope(message) for message in messages)
        if self.protocol == "grpc-web-text":
            parts = map(base64.b64encode, parts)
        kinds = {"connect": "", "connect stream": "connect+"}
        kind = f"application/{kinds.get(self.protocol, self.protocol + '+')}{self.codec}"
        fields = [("content-type", kind), *headers]
        if timeout_ms is not None:
            of_connect = self.protocol.startswith("connect")
            fields.append(("connect-timeout-ms", str(timeout_ms)) if of_connect else ("grpc-timeout", f"{timeout_ms}m"))
        if self.protocol.startswith("connect"):
            fields.append(("connect-protocol-version", "1"))
        self.connection.putrequest("POST", path, skip_accept_encoding=True)
        for name, value in fields:
            self.connection.putheader(name, value)
        if chunked:
            self.connection.putheader("transfer-encoding", "chunked")
            self.connection.endheaders(parts, encode_chunked=True)
        else:
            body = b"".join(parts)
            self.connection.putheader("content-length", str(len(body)))
            self.connection.endheaders(body)
        return self.connection.getresponse()

    def call(self, path: str, messages: Iterable[bytes] | bytes, **options: Any) -> Result:
        """A whole call."""
        response = self.begin(path, [messages] if isinstance(messages, bytes) else messages, **options)
        return self.result(response)

    def envelopes(self, response: http.client.HTTPResponse) -> Iterator[tuple[int, bytes]]:
        """The flags and messages of a response, as they come."""
        if self.protocol == "grpc-web-text":
            # Each part is padded by itself, so that four characters are at most three bytes.
            text = response.read()
            body = b"".join(base64.b64decode(text[at : at + 4]) for at in range(0, len(text), 4))
            while body:
                flag, length = struct.unpack_from(">BI", body)
                yield flag, body[5 : 5 + length]
                body = body[5 + length :]
            return
        while head := response.read(5):
            flag, length = struct.unpack(">BI", head)
            yield flag, response.read(length) if length else b""

    def result(self, response: http.client.HTTPResponse) -> Result:
        """The rest of a call."""
        head = [(name.lower(), value) for name, value in response.getheaders()]
        kind = response.getheader("content-type", "")
        if self.protocol == "connect":
            return self._unary(response, head, kind)
        if response.status != 200:
            return Result("", response.read().decode(), [], head, [], response.status, [])
        messages: list[bytes] = []
        code, words, trailers, details = "", "", [], list[dict[str, Any]]()
        for flag, message in self.envelopes(response):
            assert not code, "nothing comes after the end"
            if flag == 0:
                messages.append(message)
            elif flag == 2:
                end = json.loads(message)
                error = end.get("error", {"code": "ok"})
                code, words, details = error["code"], error.get("message", ""), error.get("details", [])
                trailers = [(key, value) for key, values in end.get("metadata", {}).items() for value in values]
            else:
                assert flag == 0x80, flag
                lines = message.decode().split("\r\n")
                assert lines.pop() == "", "each line has an end"
                pairs = [(key, value) for key, _, value in (line.partition(":") for line in lines)]
                fields = dict(pairs)
                code, words = GRPC_CODES[int(fields["grpc-status"])], unquote(fields.get("grpc-message", ""))
                trailers = [(key, value) for key, value in pairs if not key.startswith("grpc-")]
        assert code, "a response ends with its status"
        return Result(code, words, messages, head, trailers, response.status, details)

    def _unary(self, response: http.client.HTTPResponse, head: list[tuple[str, str]], kind: str) -> Result:
        body = response.read()
        trailers = [(name.removeprefix("trailer-"), value) for name, value in head if name.startswith("trailer-")]
        if response.status == 200:
            return Result("ok", "", [body], head, trailers, 200, [])
        if kind != "application/json":
            return Result("", body.decode(), [], head, trailers, response.status, [])
        error = json.loads(body)
        details = error.get("details", [])
        return Result(error["code"], error.get("message", ""), [], head, trailers, response.status, details)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
