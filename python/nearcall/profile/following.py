"""What adapters put around functions: a call is followed to its end, whether it is waited for, awaited or iterated
over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from .recorder import Call, clock, here

__all__ = ["AsyncItems", "Awaited", "Items", "MadeHere", "Stepped", "count_bytes", "waited"]

R = TypeVar("R")
Function = Callable[..., Any]


def waited(call: Call | None, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Calls a function that waits; ``call`` ends with it."""
    if call is None:
        return function(*args, **kwargs)
    try:
        result = function(*args, **kwargs)
    except BaseException as error:
        call.end(error)
        raise
    call.end()
    return result


def count_bytes(*, sent: int = 0, received: int = 0) -> None:
    """Counts bytes for the call of this thread or task, if one is under way."""
    call = here.call
    if call is not None:
        call.takes(sent, received)


class Stepped(Coroutine[Any, Any, Any]):
    """Stands for a coroutine, and does something around each of its steps."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine

    def step(self, function: Function, *args: Any) -> Any:
        """Runs one step: ``function(*args)``."""
        raise NotImplementedError

    def __await__(self) -> Stepped:
        return self

    def __iter__(self) -> Stepped:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Goes on until the coroutine waits for something."""
        return self.step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        """The same, with an exception raised inside."""
        return self.step(self._coroutine.throw, *error)

    def close(self) -> None:
        """Gives the coroutine up."""
        self._coroutine.close()


class Awaited(Stepped):
    """Stands for a coroutine that was made by a call, and begins when that is first awaited. It may be awaited in
    another task than where it was made.
    """

    __slots__ = ("_begun", "_call", "_size")

    def __init__(self, call: Call, pending: Any, size: Callable[[tuple[Any, ...]], int] | None = None) -> None:
        super().__init__(pending)
        self._call = call
        self._size = size
        """Measures the result, bytes."""
        self._begun = False

    def step(self, function: Function, *args: Any) -> Any:
        """Runs one step as part of the call, and records it after the last."""
        call = self._call
        if not self._begun:
            self._begun = True
            call.begun = clock()
        call.enter()
        try:
            return function(*args)
        except StopIteration as result:
            ended = clock()
            if self._size is not None:
                call.received = self._size((result.value,))
            call.recorder.write(call, ended, 0)
            raise
        except BaseException as error:
            call.end_elsewhere(error)
            raise
        finally:
            call.leave()

    def close(self) -> None:
        """Gives the call up."""
        super().close()
        if self._begun:
            self._begun = False
            self._call.end_elsewhere(GeneratorExit())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)


class MadeHere(Stepped):
    """Stands for a coroutine of a library's, which makes calls when it runs, perhaps in a task that knows nothing of
    who made it: they count as made where the coroutine was.
    """

    __slots__ = ("_stack",)

    def __init__(self, stack: int, coroutine: Any) -> None:
        super().__init__(coroutine)
        self._stack = stack

    def step(self, function: Function, *args: Any) -> Any:
        """Runs one step; calls that begin in it count as made where the coroutine was."""
        before, here.made_at = here.made_at, self._stack
        try:
            return function(*args)
        finally:
            here.made_at = before


class _Stream:
    """Stands for a stream: what it waits for is counted, item by item."""

    def __init__(self, call: Call, items: Any) -> None:
        self._items = items
        self._call: Call | None = call
        call.waited = clock() - call.begun

    def _end(self, error: BaseException | None = None) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.end_elsewhere(error)

    def _ended(self, call: Call, begun: int, error: BaseException) -> None:
        """There is no further item: it was waited for since ``begun``."""
        call.waited += clock() - begun
        self._end(None if isinstance(error, (StopIteration, StopAsyncIteration)) else error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)

    def __del__(self) -> None:
        if self.__dict__.get("_call") is not None:
            self._end(GeneratorExit())


class Items(_Stream):
    """A stream in a thread."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        call = self._call
        if call is None:
            return next(self._items)
        begun = clock()
        try:
            item = next(self._items)
        except BaseException as error:
            self._ended(call, begun, error)
            raise
        call.waited += clock() - begun
        return item

    def close(self) -> None:
        """Gives the call up."""
        self._items.close()
        self._end(GeneratorExit())

    def __enter__(self) -> Items:
        self._items.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        result = self._items.__exit__(*error)
        self._end(GeneratorExit())
        return result

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]  # says what to write instead


class AsyncItems(_Stream):
    """A stream in an event loop."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        call = self._call
        if call is None:
            return await self._items.__anext__()
        begun = clock()
        try:
            item = await self._items.__anext__()
        except BaseException as error:
            self._ended(call, begun, error)
            raise
        call.waited += clock() - begun
        return item

    async def aclose(self) -> None:
        """Gives the call up."""
        await self._items.aclose()
        self._end(GeneratorExit())

    async def __aenter__(self) -> AsyncItems:
        await self._items.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        result = await self._items.__aexit__(*error)
        self._end(GeneratorExit())
        return result
