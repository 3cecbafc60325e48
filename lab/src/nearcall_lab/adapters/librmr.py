"""RMR's interface in C, through whatever ``librmr_si.so`` this machine has: RMR's own, or the one of nearcall's
repository. From Python by ctypes, as RMR's package for Python does it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from nearcall_lab.adapters.ports import free_port
from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

VARIABLE = "NEARCALL_LAB_RMR"
"""Environment variable that names the library's file, where it is not in one of the usual places."""
ITS_OWN = "RMR's own"
_NAMES = ("librmr_si.so", "librmr_si.so.4")
_ECHO, _QUOTE, _SEND, _FLUSH = 1_000, 1_001, 1_002, 1_003
"""Types of messages."""
_OK, _RETRY, _TIMEOUT = 0, 10, 12
"""States of messages."""
_CALLS_OF_THREADS = 0x02
"""Flag of `rmr_init`: `rmr_mt_call` will be used."""
_CALL = 2
"""The number of the call: the smallest that programs may use."""
_LIMIT_MS = 5_000
"""Of a call: a receiver that has died does not end it."""
_LOOK_AROUND_MS = 100
_PATIENCE_S = 10.0
_ROOM = 4_096
"""Bytes of payload that a message has from the beginning."""


def library() -> Path | None:
    """The library's file: the one that `VARIABLE` names, or else in the loader's places, or built in the repository
    that the lab is in.
    """
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    places = [
        *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)),
        str(Path(__file__).parents[4] / "target" / "rmr"),
        "/usr/local/lib",
        f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}",
        "/usr/lib",
    ]
    found = (Path(place) / name for place in places for name in _NAMES)
    return next((path.absolute() for path in found if path.is_file()), None)


def whose(path: Path) -> str:
    """Whose library a file is: nearcall's names itself in many of its texts."""
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            ours = content.find(b"nearcall") >= 0
        return "nearcall's" if ours else ITS_OWN
    return "unreadable"


def absent(mechanism: Mechanism | None = None) -> str:
    """Why there is no library, and what to do; empty where there is one."""
    return "" if library() else f"there is no librmr_si.so: make rmr, or name the file by {VARIABLE}"


_found = library()
MECHANISMS = (
    Mechanism(
        "librmr",
        f"librmr_si.so, {whose(_found)}" if _found else "librmr_si.so",
        "messaging",
        settings="by ctypes; SI95 over TCP, a table with an entry for each type; a message that has no room is sent "
        f"again at once; calls by rmr_mt_call, which waits {_LIMIT_MS / 1e3:g} s at most",
        typed="msgspec msgpack",
        transport="TCP",
        operations=("echo", "quote", "send"),
    ),
)


class _Message(ctypes.Structure):
    """What `rmr.h` lets programs see of a message."""

    _fields_ = (
        ("state", ctypes.c_int),
        ("mtype", ctypes.c_int),
        ("len", ctypes.c_int),
        ("payload", ctypes.c_void_p),
        ("xaction", ctypes.c_void_p),
        ("sub_id", ctypes.c_int),
        ("tp_state", ctypes.c_int),
    )


class Rmr:
    """One context of the library: it takes messages at `port`."""

    def __init__(self, host: str, port: int, table: Path | None = None) -> None:
        """`table` is the file with the first table. Raises `FileNotFoundError` where there is no library, `OSError`
        where it takes no messages.
        """
        path = library()
        if path is None:
            raise FileNotFoundError(absent())
        # It reads these once, when it begins.
        os.environ.update(RMR_RTG_SVC="-1", RMR_BIND_IF=host, RMR_SRC_ID=host, RMR_LOG_VLEVEL="1")
        if table is not None:
            os.environ["RMR_SEED_RT"] = str(table)
        handle = ctypes.CDLL(str(path), use_errno=True)
        message = ctypes.POINTER(_Message)
        number, pointer = ctypes.c_int, ctypes.c_void_p

        def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            found: Any = getattr(handle, name)
            found.restype, found.argtypes = result, arguments
            return found  # type: ignore[no-any-return]

        self.alloc = function("rmr_alloc_msg", message, pointer, number)
        self.realloc = function("rmr_realloc_payload", message, message, number, number, number)
        self.room = function("rmr_payload_size", number, message)
        self.send = function("rmr_send_msg", message, pointer, message)
        self.reply = function("rmr_rts_msg", message, pointer, message)
        self.call = function("rmr_mt_call", message, pointer, message, number, number)
        self.receive = function("rmr_torcv_msg", message, pointer, message, number)
        self._ready = function("rmr_ready", number, pointer)
        self._close = function("rmr_close", None, pointer)
        init = function("rmr_init", pointer, ctypes.c_char_p, number, number)
        self.context = init(str(port).encode(), _ROOM, _CALLS_OF_THREADS if table is not None else 0)
        if not self.context:
            raise OSError(ctypes.get_errno(), "rmr_init takes no messages there")

    def wait_until_ready(self) -> None:
        """Returns once a table is in force. Raises `TimeoutError`."""
        end = time.monotonic() + _PATIENCE_S
        while not self._ready(self.context):
            if time.monotonic() > end:
                raise TimeoutError(f"rmr_ready says no after {_PATIENCE_S:g} s")
            time.sleep(0.005)

    def filled(self, message: Any, type_: int, data: bytes) -> Any:
        """The message, or a longer one in its place, with this in it."""
        size = len(data)
        if self.room(message) < size:
            message = self.realloc(message, size, 0, 0)
        fields = message.contents
        ctypes.memmove(fields.payload, data, size)
        fields.mtype, fields.len, fields.sub_id = type_, size, -1
        return message

    def close(self) -> None:
        """Ends it."""
        self._close(self.context)


def taken(message: Any) -> bytes:
    """The payload."""
    fields = message.contents
    return ctypes.string_at(fields.payload, fields.len)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    port = free_port(spec.host)
    rmr = Rmr(spec.host, port)
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Order).decode
    receive, count_call = spec.receive, spec.served.count
    context, next_one = rmr.context, rmr.receive
    ready(f"{spec.host}:{port}")
    message = rmr.alloc(context, _ROOM)
    while not stop.is_set():
        message = next_one(context, message, _LOOK_AROUND_MS)
        fields = message.contents
        if fields.state:
            if fields.state == _TIMEOUT:
                continue
            raise OSError(f"rmr_torcv_msg: state {fields.state}")
        type_ = fields.mtype
        if type_ == _SEND:
            receive(taken(message))
            continue
        if type_ != _FLUSH:
            count_call()
        if type_ == _QUOTE:
            message = rmr.filled(message, _QUOTE, encode(fill(decode(taken(message)))))
        message = rmr.reply(context, message)
        while message.contents.state == _RETRY:
            message = rmr.reply(context, message)
    rmr.close()


def connect(spec: Spec) -> SimpleSession:
    types = (_ECHO, _QUOTE, _SEND, _FLUSH)
    table = Path(spec.directory) / f"table-{os.urandom(4).hex()}.rt"
    entries = "".join(f"rte | {each} | {spec.address}\n" for each in types)
    table.write_text(f"newrt | start | lab\n{entries}newrt | end | {len(types)}\n", encoding="utf-8")
    rmr = Rmr(spec.host, free_port(spec.host), table)
    context, filled, pass_on = rmr.context, rmr.filled, rmr.send
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Fill).decode
    message = rmr.alloc(context, _ROOM)

    def call(type_: int, data: bytes) -> bytes:
        nonlocal message
        reply = rmr.call(context, filled(message, type_, data), _CALL, _LIMIT_MS)
        if not reply:
            message = rmr.alloc(context, _ROOM)
            raise TimeoutError(f"rmr_mt_call: no reply within {_LIMIT_MS / 1e3:g} s")
        message = reply
        if reply.contents.state:
            raise OSError(f"rmr_mt_call: state {reply.contents.state}")
        return taken(reply)

    def send(data: bytes) -> None:
        nonlocal message
        message = pass_on(context, filled(message, _SEND, data))
        while message.contents.state == _RETRY:
            message = pass_on(context, message)
        if message.contents.state != _OK:
            raise OSError(f"rmr_send_msg: state {message.contents.state}")

    return SimpleSession(
        {
            "echo": lambda data: call(_ECHO, data),
            "quote": lambda order: decode(call(_QUOTE, encode(order))),
            "send": send,
        },
        rmr.close,
        rmr.wait_until_ready,
        on_flush=lambda: call(_FLUSH, b""),
    )
