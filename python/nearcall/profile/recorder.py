"""Writes down each remote call of this process: where it was made, when, how long it took, and how it ended.

Records go into a file that is mapped into memory, so that they outlive the process, however it ends: by a signal, by
``os._exit``, or by the end of a fork that runs no exit handlers. What they refer to (names, stacks, threads) is in a
second file, one line of JSON for each, written when it is first met. Both are made at the first call.

A call costs about a microsecond. Stacks are known by the code objects and instructions in them, so that only a stack
that was never seen before costs more.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import sys
import sysconfig
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import perf_counter_ns as clock
from types import CodeType, FrameType, ModuleType
from typing import Any, cast

Sizes = Callable[[tuple[Any, ...]], int]
"""Measures values, bytes; -1: it does not."""

__all__ = ["CALLS", "FAILED", "RECORD", "TABLES", "VERSION", "Call", "Recorder", "clock", "here"]

VERSION = 1
"""Of the two files; a reader refuses others."""
RECORD = struct.Struct("<12q")
"""Number from 1, parent's number or 0, stack, name, lane, begin, end, waited (ns), bytes sent, bytes received, outcome,
arguments.
"""
CHUNK = 8192
"""Records that the file grows by: a whole number of pages."""
CALLS, TABLES = ".calls", ".tables"
"""The endings of the two files."""
MOST_STACKS = 50_000
MOST_NAMES = 20_000
MOST_LANES = 10_000
MOST_ARGUMENTS = 20_000
"""Beyond these, what is new is not told apart any more: a program may run for days."""
DEEPEST = 200
"""Frames of a stack that are looked at."""
MOST_COMPARED = 2000
"""Calls of a method whose arguments are compared, if none is the same as one before."""
LONGEST_ARGUMENT = 200
"""Characters or bytes of an argument that is compared with those of other calls."""
MEASURED = 16
"""The arguments and the result of one call in so many are measured, since that encodes them anew."""
_SHORT = frozenset({int, float, bool, type(None)})
_LONG = frozenset({str, bytes})
FAILED = 1
"""Outcomes from here on are names of errors, plus this; 0: no error."""


class Call:
    """A call under way. What adapters below it send and receive is counted here."""

    recorder: Recorder
    here: Here
    number: int
    parent: int
    outer: Call | None
    outer_number: int
    stack: int
    name: int
    lane: int
    begun: int
    waited = -1
    """Nanoseconds that the program waited so far; -1: as long as the call lasts."""
    sent = -1
    received = -1
    """Bytes; -1: not known."""
    arguments = 0

    def end(self, error: BaseException | None = None) -> None:
        """The call has ended, in the thread in which it has begun or was entered last."""
        ended = clock()
        self.leave()
        self.recorder.write(self, ended, 0 if error is None else self.recorder.error(error))

    def end_elsewhere(self, error: BaseException | None = None) -> None:
        """The call has ended, perhaps in another thread; :meth:`leave` was called before."""
        ended = clock()
        self.recorder.write(self, ended, 0 if error is None else self.recorder.error(error))

    def leave(self) -> None:
        """This thread does something else while the call is under way."""
        mine = self.here
        mine.call = self.outer
        mine.number = self.outer_number

    def enter(self) -> None:
        """This thread goes on with the call."""
        self.outer, self.outer_number = here.call, here.number
        here.call, here.number = self, self.number

    def takes(self, sent: int = 0, received: int = 0) -> None:
        """Counts bytes."""
        if sent:
            self.sent = sent if self.sent < 0 else self.sent + sent
        if received:
            self.received = received if self.received < 0 else self.received + received


class Here(threading.local):
    """What each thread knows of itself."""

    def __init__(self) -> None:
        self.call: Call | None = None
        """The innermost call that this thread is in and that counts bytes."""
        self.number = 0
        """The number of the innermost call that this thread is in; 0: in none."""
        self.made_at = -1
        """The stack that calls of the coroutine that runs count for; -1: that of now."""
        self.lane = -1
        """The thread's own lane, without a task."""


here = Here()


class Recorder:
    """What this process writes down.

    Args:
        folder: Where its files go.
        one_in: Of so many calls one is recorded, at random; 1: each.
        most: Records that are kept. Of more calls a random choice remains, each as likely as another.
    """

    def __init__(self, folder: str, one_in: int = 1, most: int = 250_000) -> None:
        self._folder = folder
        self._one_in = one_in
        self._most = most
        # Not the program's own generator: its numbers are to be the same with a profiler and without.
        self._random = random.Random()
        self._choose = self._random.random
        self._share = 1.0 / one_in
        # A signal's handler or the garbage collector may make a call while this thread holds it.
        self._lock = threading.RLock()
        self._ids = count()
        self._said: list[str] = []
        self._stacks: dict[tuple[int, ...], int] = {}
        self._kept: dict[int, CodeType] = {}
        self._stops: set[int] = set()
        self._frames: dict[tuple[str, int, str], int] = {}
        self._names: dict[tuple[str, str, str], int] = {}
        self._lanes: dict[tuple[int, str], int] = {}
        self._arguments: dict[Any, int] = {}
        self._errors: dict[type, int] = {}
        self._here = here
        self._own = _folders_of_libraries()
        self._new_files()
        self._say({"version": VERSION, "argv": getattr(sys, "orig_argv", sys.argv), "begun": clock()})
        assert (RECORD.size, CHUNK) == (96, 8192), "as `around` has it"
        self.stop_at(getattr(threading.Thread, "_bootstrap_inner", None))
        os.register_at_fork(after_in_child=self._forked)

    # What a call costs: these three.

    def begin(self, name: int, task: str = "", depth: int = 2) -> Call | None:
        """A call begins; ``None`` if this one is not recorded.

        Args:
            name: From :meth:`name`.
            task: The name of the task that calls, in an event loop.
            depth: How many frames lie between this method and the caller of what was patched.
        """
        if self._share < 1.0 and self._choose() >= self._share:
            return None
        if task and self._here.made_at >= 0:
            call = Call()
            call.stack = self._here.made_at
            return self._begun(call, name, task)
        frame: FrameType | None = sys._getframe(depth)
        found = _place_in_loop(frame, self._stops) if task else _place(frame)
        call = Call()
        stack = self._stacks.get(found)
        call.stack = self._new_stack(found, sys._getframe(depth)) if stack is None else stack
        return self._begun(call, name, task)

    def stack_here(self, depth: int = 2) -> int:
        """The stack of now, for calls that are made later; ``depth`` as for :meth:`begin`."""
        found = _place_in_loop(sys._getframe(depth), self._stops)
        stack = self._stacks.get(found)
        return self._new_stack(found, sys._getframe(depth)) if stack is None else stack

    def _begun(self, call: Call, name: int, task: str) -> Call:
        call.recorder = self
        mine = self._here
        call.here = mine
        call.lane = mine.lane if mine.lane >= 0 and not task else self._lane(task)
        call.name = name
        call.number = next(self._numbers)
        call.outer = mine.call
        call.parent = call.outer_number = mine.number
        mine.call = call
        mine.number = call.number
        call.begun = clock()
        return call

    def around(self, name: int, function: Callable[..., Any], sizes: tuple[Sizes, Sizes] | None = None) -> Any:
        """The same function, with each of its calls recorded: :meth:`begin` and :meth:`write` in one, for functions
        that take few microseconds themselves.

        Args:
            name: From :meth:`name`.
            function: It waits for its result.
            sizes: Two functions that measure the arguments and the result, of one call in `MEASURED`.
        """
        getframe, choose, share = sys._getframe, self._choose, self._share
        stacks, mine, most, pack_into = self._stacks, self._here, self._most, RECORD.pack_into
        place, now = _place, clock
        size_out, size_in = sizes or (_not_measured, _not_measured)
        arguments_of = self.arguments_of
        compared = repeated = 0
        measured_in = 1 if sizes else 1 << 62  # the next call that is measured, counted from here

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal compared, repeated, measured_in
            if share < 1.0 and choose() >= share:
                return function(*args, **kwargs)
            key = place(getframe(1))
            stack = stacks.get(key)
            if stack is None:
                stack = self._new_stack(key, getframe(1))
            arguments = 0
            if compared < MOST_COMPARED or repeated > compared >> 3:
                known = len(self._arguments)
                arguments = arguments_of(name, args, kwargs)
                compared += 1
                if arguments and len(self._arguments) == known:
                    repeated += 1
            state = mine.__dict__  # this thread's: to look for it once takes half the time
            outer = state["number"]
            lane = state["lane"]
            if lane < 0:
                lane = self._lane("")
            number = state["number"] = next(self._numbers)
            outcome = 0
            sent = received = -1
            measured_in -= 1
            measured = measured_in <= 0
            begun = ended = now()
            try:
                result = function(*args, **kwargs)
                ended = now()
                if measured:
                    received = size_in((result,))
                return result
            except BaseException as error:
                ended = now()
                outcome = self.error(error)
                raise
            finally:
                state["number"] = outer
                if measured:
                    measured_in = MEASURED
                    sent = size_out((*args, *kwargs.values()) if kwargs else args)
                waited = ended - begun
                at = number - 1 if number <= most else self._replaced(number)
                try:
                    pack_into(
                        self._maps[at >> 13], (at & 8191) * 96, number, outer, stack, name, lane, begun, ended, waited,
                        sent, received, outcome, arguments,
                    )  # fmt: skip
                except IndexError:
                    self._put(
                        at, number, outer, stack, name, lane, begun, ended, waited, sent, received, outcome, arguments
                    )

        return call

    def write(self, call: Call, ended: int, outcome: int) -> None:
        """A call has ended. One that began before a fork is not of the child."""
        begun, number = call.begun, call.number
        self._put(
            number - 1 if number <= self._most else self._replaced(number),
            number,
            call.parent,
            call.stack,
            call.name,
            call.lane,
            begun,
            ended,
            ended - begun if call.waited < 0 else call.waited,
            call.sent,
            call.received,
            outcome,
            call.arguments,
        )

    def _put(self, place: int, *fields: int) -> None:
        try:
            RECORD.pack_into(self._maps[place >> 13], (place & 8191) * 96, *fields)
        except IndexError:
            if self._grow(place >> 13):
                self._put(place, *fields)

    def _replaced(self, number: int) -> int:
        """The place of a record when all are taken: one of the others gives way, or this is put where none is read, so
        that in the end each call was kept as likely as another.
        """
        return min(int(self._choose() * number), self._most)

    def arguments_of(self, name: int, values: tuple[Any, ...], names: dict[str, Any] | None = None) -> int:
        """A number for these arguments, by which calls with equal ones are found; 0 if they are long, or no plain
        values: to compare those would run the program's own code.
        """
        if names:
            values = (*values, *names.items())
        if not _SHORT.issuperset(map(type, values)) and not _are_plain(values):
            return 0
        known = self._arguments
        key = (name, values)
        found = known.get(key)
        if found is None:
            if len(known) >= MOST_ARGUMENTS:
                return 0
            found = known[key] = len(known) + 1
        return found

    # What happens once.

    def name(self, library: str, kind: str, text: str) -> int:
        """A number for what is called.

        Args:
            library: ``"nearcall"``, for example.
            kind: ``"call"``, ``"oneway"``, ``"started"``, ``"stream"``, ``"item"``, ``"attribute"``, ``"connect"`` or
                ``"wait"``: for calls that were made before.
            text: Its name, as users write it.
        """
        found = self._names.get((library, kind, text))
        if found is not None:
            return found
        with self._lock:
            if len(self._names) >= MOST_NAMES:
                text = "(others)"
            key = (library, kind, text)
            found = self._names.get(key)
            if found is None:
                found = self._names[key] = next(self._ids)
                self._say({"name": [found, *key]})
            return found

    def error(self, error: BaseException) -> int:
        """The outcome of a call that has raised this."""
        kind = type(error)
        found = self._errors.get(kind)
        if found is None:
            found = self._errors[kind] = FAILED + self.name("", "error", kind.__name__)
        return found

    def stop_at(self, function: Callable[..., object] | None) -> None:
        """Frames from this function on outwards are an event loop's, and in no stack."""
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            self._kept[id(code)] = code
            self._stops.add(id(code))

    def skip(self, adapter: ModuleType) -> None:
        """Frames of this adapter, and of others in its folder, are no lines of the program."""
        if adapter.__file__ is not None:
            self._own = (*self._own, f"{Path(adapter.__file__).parent}/")

    def note(self, text: str) -> None:
        """Something that whoever reads the profile has to know."""
        with self._lock:
            self._say({"note": text})

    def task(self) -> str:
        """The name of the task that runs in this thread, for :meth:`begin`."""
        asyncio = sys.modules.get("asyncio")
        if asyncio is None:
            return ""
        try:
            found = asyncio.current_task()
        except RuntimeError:  # no loop runs
            return ""
        return "" if found is None else str(found.get_name())

    def _new_stack(self, key: tuple[int, ...], frame: FrameType | None) -> int:
        with self._lock:
            if key in self._stacks:
                return self._stacks[key]
            if len(self._stacks) >= MOST_STACKS:
                return -1
            frames: list[tuple[str, int, str]] = []
            outside: tuple[str, int, str] | None = None
            steps = 0
            while frame is not None and steps < DEEPEST and id(frame.f_code) not in self._stops:
                code = frame.f_code
                self._kept[id(code)] = code  # or another could get its address, and with it its place in the table
                where = (code.co_filename, frame.f_lineno or 0, getattr(code, "co_qualname", code.co_name))
                if self._is_librarys(code.co_filename):
                    outside = outside or where
                else:
                    frames.append(where)
                frame = frame.f_back
                steps += 1
            if not frames and outside is not None:
                frames = [outside]
            found = self._stacks[key] = next(self._ids)
            self._say({"stack": [found, *map(self._frame, frames)]})
            return found

    def _is_librarys(self, file: str) -> bool:
        return file.startswith(self._own) or "/site-packages/" in file or "/dist-packages/" in file

    def _frame(self, where: tuple[str, int, str]) -> int:
        found = self._frames.get(where)
        if found is None:
            found = self._frames[where] = next(self._ids)
            self._say({"frame": [found, *where]})
        return found

    def _lane(self, task: str) -> int:
        thread = threading.get_ident()
        found = self._lanes.get((thread, task)) if task else None
        if found is not None:
            return found
        with self._lock:
            key = (thread, task) if len(self._lanes) < MOST_LANES else (0, "")
            found = None if not task else self._lanes.get(key)
            if found is None:
                # A thread that begins may have the number of one that has ended.
                # Not `current_thread`: it would make an object for a thread that Python does not know.
                known = threading._active.get(thread)  # type: ignore[attr-defined] # pyright: ignore[reportUnknownMemberType]
                name = str(thread) if known is None else cast("threading.Thread", known).name
                found = self._lanes[key] = next(self._ids)
                self._say({"lane": [found, name, task] if key[0] else [found, "(others)", ""]})
            if not task:
                here.lane = found
            return found

    # The files.

    def _new_files(self) -> None:
        self._numbers = count(1)
        self._maps: list[mmap.mmap] = []
        self._calls: int | None = None
        self._tables: int | None = None
        self._broken = False

    def close(self) -> None:
        """Ends the recording: further calls are not written down."""
        self._broken = True
        self._maps.clear()
        for descriptor in (self._calls, self._tables):
            if descriptor is not None:
                os.close(descriptor)
        self._calls = self._tables = None

    def _say(self, what: dict[str, Any]) -> None:
        """Into the second file; if there is none yet, when it is made."""
        line = json.dumps(what) + "\n"
        self._said.append(line)
        if self._tables is not None:
            self._append(line)

    def _append(self, text: str) -> None:
        assert self._tables is not None
        try:
            os.write(self._tables, text.encode("utf-8", "surrogatepass"))
        except OSError:
            self._broken = True

    def _grow(self, chunk: int) -> bool:
        """Makes room for more records. ``False``: there is none on the disk, and nothing more is recorded."""
        with self._lock:
            while len(self._maps) <= chunk and not self._broken:
                try:
                    if self._calls is None:
                        self._open()
                    assert self._calls is not None
                    begins, size = len(self._maps) * CHUNK * RECORD.size, CHUNK * RECORD.size
                    # With room on the disk, not only a length: to write where there is none would end the process.
                    os.posix_fallocate(self._calls, begins, size)
                    # All pages at once: one by one, each would interrupt a call.
                    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
                    self._maps.append(mmap.mmap(self._calls, size, flags, offset=begins))
                except OSError:
                    self._broken = True
            return not self._broken

    def _open(self) -> None:
        path = Path(self._folder) / f"{os.getpid()}-{clock()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._calls = os.open(path.with_suffix(CALLS), flags, 0o600)
        self._tables = os.open(path.with_suffix(TABLES), flags | os.O_APPEND, 0o600)
        own = {"pid": os.getpid(), "parent": os.getppid(), "one_in": self._one_in, "most": self._most}
        self._append(json.dumps(own) + "\n" + "".join(self._said))

    def _forked(self) -> None:
        # The child's threads are gone, and one of them may have held the lock. The parent's files stay open: others of
        # its calls may be under way in this thread, and they are mapped memory alone.
        self._lock = threading.RLock()
        self._random.seed()
        calls, tables = self._calls, self._tables
        self._new_files()
        for descriptor in (calls, tables):
            if descriptor is not None:
                os.close(descriptor)
        self._lanes.clear()
        self._said = [line for line in self._said if not line.startswith('{"lane"')]
        here.call, here.number, here.lane = None, 0, -1


if sys.version_info >= (3, 11):

    def _place(frame: FrameType | None) -> tuple[int, ...]:
        """What tells a stack from others: where each of its frames is."""
        # The instructions are a part of their code object's memory: their addresses are one number for both.
        key: list[int] = []
        while frame:
            key.append(id(frame.f_code) + frame.f_lasti)
            frame = frame.f_back
        return tuple(key)
else:

    def _place(frame: FrameType | None) -> tuple[int, ...]:
        """What tells a stack from others: where each of its frames is."""
        key: list[int] = []
        add = key.append
        while frame is not None:
            add(id(frame.f_code))
            add(frame.f_lasti)
            frame = frame.f_back
        return tuple(key)


def _place_in_loop(frame: FrameType | None, stops: set[int]) -> tuple[int, ...]:
    """The same as far as the event loop, from where on all are the same."""
    key: list[int] = []
    add = key.append
    while frame is not None:
        code = id(frame.f_code)
        if code in stops:
            break
        add(code)
        add(frame.f_lasti)
        frame = frame.f_back
    return tuple(key)


def _not_measured(_values: tuple[Any, ...]) -> int:
    return -1


def _are_plain(values: tuple[object, ...]) -> bool:
    for value in values:
        kind = type(value)
        if kind in _LONG:
            if len(cast("str | bytes", value)) > LONGEST_ARGUMENT:
                return False
        elif kind is tuple:
            if not _are_plain(cast("tuple[object, ...]", value)):
                return False
        elif kind not in _SHORT:
            return False
    return True


def _folders_of_libraries() -> tuple[str, ...]:
    """Where code lies that is not the program's own."""
    own = Path(__file__).parent.parent
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if paths.get(key)}
    return (*(f"{path}/" for path in sorted(found)), f"{own}/", "<frozen ")
