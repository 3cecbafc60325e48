"""Clients and servers of different versions: every call is right, or refused with a sentence that says what differs.

The rows are in ``versions.py``. The columns are here: calls from threads and from event loops, streams, clients without
a class, and servers that are replaced under a connected client.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .conftest import TRANSPORTS
from .process import ServerProcess
from .versions import (
    CHANGES,
    FIELD_CHANGES,
    Change,
    FieldChange,
    NewMethods,
    NewNotes,
    OldMethods,
    OldNotes,
    make,
    plain,
)

OTHER = {"old": "new", "new": "old"}
STYLES = ["call", "stream", "collect", "both"]
FACES = ["threads", "loop"]
_numbers = itertools.count(1)


class Loop:
    """An event loop in a thread, for clients that outlive a test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def servers(runtime_dir: Path) -> Iterator[dict[str, str]]:
    """A server of each version, for all tests that do not replace it."""
    with ExitStack() as stack:
        urls = {version: f"unix://{runtime_dir}/versions-{version}-{next(_numbers)}" for version in OTHER}
        for version, url in urls.items():
            stack.enter_context(ServerProcess(url, services=f"tests.e2e.versions:{version}"))
        yield urls


class Caller:
    """A client of either face, and without a class if need be."""

    def __init__(self, url: str, cls: type | None, loop: Loop | None) -> None:
        self._loop = loop
        if loop is None:
            self._client: Any = nearcall.connect(url, cls)
        else:
            self._client = loop.run(self._connect(url, cls))
        self.service: Any = self._client.service

    @staticmethod
    async def _connect(url: str, cls: type | None) -> Any:
        return await nearcall.aio.connect(url, cls)

    def call(self, method: Callable[..., Any], *args: Any, streams: bool = False, **kwargs: Any) -> Any:
        """The result as plain data; the only item of a stream."""
        if self._loop is not None:
            result = self._loop.run(self._await(method, args, kwargs, streams))
        elif streams:
            (result,) = method(*args, **kwargs)
        else:
            result = method(*args, **kwargs)
        return plain(result)

    async def _await(self, method: Any, args: Any, kwargs: Any, streams: bool) -> Any:
        if not streams:
            return await method(*args, **kwargs)
        (result,) = [item async for item in method(*args, **kwargs)]
        return result

    def close(self) -> None:
        if self._loop is None:
            self._client.close()
        else:
            self._loop.run(self._close())

    async def _close(self) -> None:
        self._client.close()

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check(expected: Any, call: Callable[[], Any], method: str) -> None:
    """The call is right, or refused in one line that names the method."""
    if not isinstance(expected, str) or len(expected) < 3:
        assert call() == expected
        return
    with pytest.raises(nearcall.RpcError) as caught:
        call()
    message = caught.value.message
    assert expected in message
    assert method in message
    assert "\n" not in message


def call_parameters(caller: Caller, service: Any, style: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if style in ("collect", "both"):
        args = (iter([1]), *args)
    return caller.call(getattr(service, style), *args, streams=style in ("stream", "both"), **kwargs)


def call_fields(caller: Caller, service: Any, streams: bool, name: str, values: Any) -> Any:
    if name == "put":
        method, args = (service.puts, ([values],)) if streams else (service.put, (values,))
    else:
        method, args = (service.gets if streams else service.get), values
    return caller.call(method, *args, streams=streams)


def check_parameters(caller: Caller, service: Any, change: Change, calls: Any, style: str) -> None:
    if isinstance(calls, str):
        method = f"{change.name}.{style}"
        # Values that fit what the client declares: it may not know yet that there is another server.
        declared = change.old if calls is change.old_calls else change.new
        some = tuple({"int": 1, "float": 1.0, "str": "x"}[each] for each in re.findall(r": (\w+)", declared))
        check(calls, lambda: call_parameters(caller, service, style, some, {}), method)
        return
    for args, kwargs, expected in calls:
        name = f"{change.name}.{style}()"
        check(expected, lambda a=args, k=kwargs: call_parameters(caller, service, style, a, k), name)  # type: ignore[misc]


def check_fields(caller: Caller, service: Any, change: FieldChange, calls: Any, names: Any, streams: bool) -> None:
    if isinstance(calls, str):
        check(calls, lambda: call_fields(caller, service, False, "put", names["to_p"](1, 5)), f"{change.name}.put")
        return
    for name, expression, outcome in calls:
        expected = outcome
        values = eval(f"({expression},)" if name == "get" else expression, names)
        if streams and isinstance(expected, str):
            expected = expected.replace("argument 'p': ", "")
            expected = expected.replace("must be", "").strip()
        method = f"{change.name}.{name}{'s' if streams else ''}"
        check(expected, lambda n=name, v=values: call_fields(caller, service, streams, n, v), method)  # type: ignore[misc]


def calls_of(change: Change | FieldChange, version: str) -> Any:
    return change.old_calls if version == "old" else change.new_calls


CELLS = pytest.mark.parametrize(
    ("change", "version"),
    [pytest.param(change, version, id=f"{change.name}-{version} client") for change in CHANGES for version in OTHER],
)
FIELD_CELLS = pytest.mark.parametrize(
    ("change", "version"),
    [
        pytest.param(change, version, id=f"{change.name}-{version} client")
        for change in FIELD_CHANGES
        for version in OTHER
    ],
)


@pytest.mark.parametrize("face", FACES)
@CELLS
def test_parameters(change: Change, version: str, face: str, servers: dict[str, str], loop: Loop) -> None:
    cls, url, calls = make(change, version)[change.name], servers[OTHER[version]], calls_of(change, version)
    if isinstance(calls, str):
        check(calls, lambda: Caller(url, cls, loop if face == "loop" else None), f"{change.name}.")
        return
    with Caller(url, cls, loop if face == "loop" else None) as caller:
        for style in STYLES:
            check_parameters(caller, caller.service, change, calls, style)


@pytest.mark.parametrize("face", FACES)
@FIELD_CELLS
def test_fields(change: FieldChange, version: str, face: str, servers: dict[str, str], loop: Loop) -> None:
    names, url, calls = make(change, version), servers[OTHER[version]], calls_of(change, version)
    if isinstance(calls, str):
        check(calls, lambda: Caller(url, names[change.name], loop if face == "loop" else None), f"{change.name}.")
        return
    with Caller(url, names[change.name], loop if face == "loop" else None) as caller:
        for streams in (False, True):
            check_fields(caller, caller.service, change, calls, names, streams)


@pytest.mark.parametrize("face", FACES)
def test_methods(face: str, servers: dict[str, str], loop: Loop) -> None:
    for cls, version, missing in ((OldMethods, "new", "goes"), (NewMethods, "old", "comes")):
        with Caller(servers[version], cls, loop if face == "loop" else None) as caller:
            assert caller.call(caller.service.stays) == version
            assert caller.call(caller.service.turns) == {"old": 1, "new": 2}[version]
            with pytest.raises(
                nearcall.Unimplemented, match=f"the server's Methods has no method '{missing}'; it has "
            ):
                caller.call(getattr(caller.service, missing))


class Replaced:
    """Clients of every service that were connected before their server was replaced by one of the other version."""

    def __init__(self, stack: ExitStack, url: str, version: str, loop: Loop) -> None:
        self.callers: dict[tuple[str, str], Caller] = {}
        self.names = {change.name: make(change, version) for change in [*CHANGES, *FIELD_CHANGES]}
        methods = OldMethods if version == "old" else NewMethods
        with ServerProcess(url, services=f"tests.e2e.versions:{version}"):
            for face, at in (("threads", None), ("loop", loop)):
                for name in self.names:
                    self.callers[face, name] = stack.enter_context(Caller(url, self.names[name][name], at))
                self.callers[face, "Methods"] = stack.enter_context(Caller(url, methods, at))
                notes = OldNotes if version == "old" else NewNotes
                self.callers[face, "Notes"] = stack.enter_context(Caller(url, notes, at))
                self.callers[face, "plain"] = stack.enter_context(Caller(url, None, at))
        stack.enter_context(ServerProcess(url, services=f"tests.e2e.versions:{OTHER[version]}"))


@pytest.fixture(scope="module")
def replaced(runtime_dir: Path, loop: Loop) -> Iterator[dict[str, Replaced]]:
    with ExitStack() as stack:
        urls = {version: f"unix://{runtime_dir}/replaced-{version}-{next(_numbers)}" for version in OTHER}
        yield {version: Replaced(stack, url, version, loop) for version, url in urls.items()}


# The stream first: nothing has been called on it yet when the other server comes.
@pytest.mark.parametrize("face", FACES)
@CELLS
def test_parameters_after_an_update(change: Change, version: str, face: str, replaced: dict[str, Replaced]) -> None:
    caller = replaced[version].callers[face, change.name]
    for style in reversed(STYLES):
        check_parameters(caller, caller.service, change, calls_of(change, version), style)


@pytest.mark.parametrize("face", FACES)
@FIELD_CELLS
def test_fields_after_an_update(change: FieldChange, version: str, face: str, replaced: dict[str, Replaced]) -> None:
    caller, names = replaced[version].callers[face, change.name], replaced[version].names[change.name]
    for streams in (True, False):
        check_fields(caller, caller.service, change, calls_of(change, version), names, streams)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("version", OTHER)
def test_methods_after_an_update(version: str, face: str, replaced: dict[str, Replaced]) -> None:
    caller = replaced[version].callers[face, "Methods"]
    assert caller.call(caller.service.stays) == OTHER[version]
    assert caller.call(caller.service.turns) == {"old": 2, "new": 1}[version]
    missing = {"old": "goes", "new": "comes"}[version]
    with pytest.raises(nearcall.Unimplemented, match=f"the server's Methods has no method '{missing}'"):
        caller.call(getattr(caller.service, missing))


def check_notes(caller: Caller, version: str) -> None:
    service = caller.service
    if version == "old":
        caller.call(service.note, "A", target="B")
        assert caller.call(service.noted) == {"source": "A", "target": "B", "text": ""}
        caller.call(service.note, "A", "B")
        assert caller.call(service.noted) == {"source": "A", "target": "B", "text": ""}
    else:
        caller.call(service.note, "B", "A")
        assert caller.call(service.noted) == {"source": "A", "target": "B"}
        check("'text: str' was given", lambda: caller.call(service.note, "B", "A", "x"), "Notes.note()")


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("version", OTHER)
def test_one_way_calls(version: str, face: str, servers: dict[str, str], loop: Loop) -> None:
    cls = OldNotes if version == "old" else NewNotes
    with Caller(servers[OTHER[version]], cls, loop if face == "loop" else None) as caller:
        check_notes(caller, version)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("version", OTHER)
def test_one_way_calls_after_an_update(version: str, face: str, replaced: dict[str, Replaced]) -> None:
    check_notes(replaced[version].callers[face, "Notes"], version)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("version", OTHER)
def test_clients_without_a_class_after_an_update(version: str, face: str, replaced: dict[str, Replaced]) -> None:
    caller = replaced[version].callers[face, "plain"]
    for change in CHANGES:
        for style in reversed(STYLES):
            service = getattr(caller.service, change.name)
            check_parameters(caller, service, change, calls_of(change, version), style)
    for change in FIELD_CHANGES:
        service, calls = getattr(caller.service, change.name), calls_of(change, version)
        if isinstance(calls, str):
            check(calls, lambda s=service: caller.call(s.put, {}), f"{change.name}.put")  # type: ignore[misc]
        elif version == "old" and change.plain_calls is not None:
            for streams in (True, False):
                check_fields(caller, service, change, change.plain_calls, {}, streams)


@pytest.mark.parametrize("face", FACES)
def test_what_a_client_without_a_class_gives_in_excess(face: str, servers: dict[str, str], loop: Loop) -> None:
    with Caller(servers["old"], None, loop if face == "loop" else None) as caller:
        service = caller.service.FieldAdded
        assert caller.call(service.put, {"x": 1}) == {"x": 1}
        check(
            "argument 'p' cannot be sent: P has no field 'y', which would be lost: leave it out",
            lambda: caller.call(service.put, {"x": 1, "y": 7}),
            "FieldAdded.put",
        )


@pytest.mark.slow
@pytest.mark.parametrize("version", OTHER)
def test_over_every_transport(version: str, outside: str, runtime_dir: Path) -> None:
    # Before an update and after it; over the others the table above says it all.
    change = next(change for change in CHANGES if change.name == "Reordered")
    cls, calls = make(change, version)["Reordered"], calls_of(change, version)
    (args, kwargs, expected), *_ = calls
    with ServerProcess(
        TRANSPORTS[outside](f"v{next(_numbers)}", runtime_dir), services=f"tests.e2e.versions:{version}"
    ) as first:
        client = nearcall.connect(first.url, cls)
        assert client.call(*args, **kwargs) == expected
        (items,) = client.stream(*args, **kwargs)
        assert items == expected
    with client, ServerProcess(first.url, services=f"tests.e2e.versions:{OTHER[version]}"):
        for args, kwargs, expected in calls:
            assert list(client.both([1], *args, **kwargs)) == [expected]
            assert client.call(*args, **kwargs) == expected
            assert client.collect([1], *args, **kwargs) == expected
