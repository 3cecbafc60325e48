"""Coroutine handlers that look at their event loop, and some that treat it badly."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator
from contextvars import ContextVar
from weakref import ReferenceType, ref

import anyio
import anyio.lowlevel

import nearcall

from .events import Events

PATIENCE = 30.0
"""Seconds after which a handler that waits for the test gives up."""

_note: ContextVar[str] = ContextVar("note", default="")


@nearcall.service
class Looping:
    def __init__(self) -> None:
        self._blocked = Events()
        self._released = Events()
        self._took: dict[str, int] = defaultdict(int)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._weak: dict[str, ReferenceType[asyncio.Task[None]]] = {}
        self._callers: dict[str, asyncio.Future[tuple[str, str]]] = {}
        self._ended: dict[str, int] = defaultdict(int)

    async def echo(self, data: bytes) -> bytes:
        return data

    async def turns(self, number: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return number

    def threaded(self, number: int) -> int:
        return number

    def _block(self, key: str) -> None:
        self._blocked[key].set()
        self._released[key].wait(PATIENCE)

    async def block(self, key: str) -> str:
        """Blocks the loop in the handler's first step."""
        self._block(key)
        return key

    async def block_later(self, key: str) -> None:
        """Blocks the loop when nothing is being served any more."""
        asyncio.get_running_loop().call_later(0.01, self._block, key)

    def blocked(self, key: str) -> bool:
        """Waits until the loop is blocked; in a thread."""
        return self._blocked[key].wait(PATIENCE)

    def release(self, key: str) -> None:
        self._released[key].set()

    async def loop(self) -> str:
        return type(asyncio.get_running_loop()).__module__

    async def note(self, text: str) -> str:
        """What an earlier handler has left in this one's context."""
        before = _note.get()
        _note.set(text)
        return before

    async def noted(self, text: str) -> str:
        _note.set(text)
        await asyncio.sleep(0)
        return _note.get()

    async def own_task(self) -> bool:
        """Whether the task is the same in the first step and after it, and nobody else's."""
        first = asyncio.current_task()
        await asyncio.sleep(0)
        return first is not None and first is asyncio.current_task() and first in asyncio.all_tasks()

    async def call_another(self, url: str) -> int:
        """A call of its own, with what surrounds this handler."""
        async with nearcall.aio.connect(url, Looping, timeout=PATIENCE) as another:
            return await another.threaded(1)  # type: ignore[misc, no-any-return]

    async def keep_task(self, key: str) -> None:
        """Keeps its task where a later handler finds it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks[key] = task

    async def cancel_kept(self, key: str) -> bool:
        """Cancels the task of a handler that has ended, which does nothing."""
        cancelled = self._tasks.pop(key).cancel()
        await asyncio.sleep(0)
        return cancelled

    async def change_task(self, key: str, how: str) -> str:
        """Does something to its task that the task of a later handler must not show, and ends without waiting."""
        task = asyncio.current_task()
        assert task is not None
        if how == "cancelled":
            task.cancel()
        elif how == "named":
            task.set_name(key)
        elif how == "watched":
            task.add_done_callback(lambda _: self._count_end(key))
        elif how == "weak":
            self._weak[key] = ref(task)
        return how

    def _count_end(self, key: str) -> None:
        self._ended[key] += 1

    async def look_at_task(self, key: str) -> tuple[bool, bool, int]:
        """Whether this handler's task has the name of that key, whether it is the one kept weakly, and how many tasks
        of that key have told of their end.
        """
        task = asyncio.current_task()
        assert task is not None
        weak = self._weak.get(key)
        named, kept = task.get_name() == key, weak is not None and weak() is task
        await asyncio.sleep(0)
        return named, kept, self._ended[key]

    async def leave_a_task(self, key: str) -> None:
        """Starts a task that asks for its call when this handler has ended, and others have run."""

        async def ask() -> tuple[str, str]:
            for _ in range(3):
                await asyncio.sleep(0)
            call = nearcall.context()
            return call.method, str(call.metadata["key"])

        self._callers[key] = asyncio.ensure_future(ask())

    async def who_called(self, key: str) -> tuple[str, str]:
        """What that task has found."""
        return await self._callers.pop(key)

    async def shown(self, key: str) -> tuple[str, str, int]:
        """This handler's task, as another one sees it while this waits: its text, its coroutine's state, its frames."""
        task = asyncio.current_task()
        assert task is not None

        async def look() -> tuple[str, str, int]:
            return repr(task), inspect.getcoroutinestate(task.get_coro()), len(task.get_stack())  # type: ignore[arg-type]

        return await asyncio.ensure_future(look())

    async def cancel_itself(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(PATIENCE)

    async def wait_for(self, seconds: float) -> str:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), seconds)
        except asyncio.TimeoutError:
            return "timed out"
        return "finished"

    async def moved_on(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds) as scope:
            await anyio.sleep(PATIENCE)
        return scope.cancelled_caught

    async def group(self, n: int) -> int:
        """Starts tasks in its first step."""
        total = 0

        async def add(number: int) -> None:
            nonlocal total
            await anyio.lowlevel.checkpoint()
            total += number

        async with anyio.create_task_group() as group:
            for number in range(n):
                group.start_soon(add, number)
        return total

    async def length(self, blocks: AsyncIterator[bytes]) -> int:
        return sum([len(block) async for block in blocks])

    async def take(self, key: str, blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Counts what it takes, and sends it all back."""
        async for block in blocks:
            self._took[key] += 1
            yield block

    def took(self, key: str) -> int:
        return self._took[key]


def looping() -> list[object]:
    return [Looping()]
