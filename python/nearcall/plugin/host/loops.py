"""``nearcall.plugin.AsyncPluginHost``: the same host for an event loop, which never waits for a plugin."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from ...aio.channel import Channel
from ...call.deadline import timeout
from ...call.wrong_with import for_loops, wrong_with
from ...client.channel import Explain
from ...errors import Unavailable
from ...service.for_loops import Interface
from ..points.asking import begin, run_in_loop
from ..points.points import ExtensionPoint
from ..points.settings import PluginEvent, check_settings
from .host import HOW_HOSTS_ARE_USED, Directory, Extension, PluginBase, PluginHostBase, Plugins
from .telling import call_safely

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ..points.settings import HostOptions

__all__ = ["AsyncPlugin", "AsyncPluginHost"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Interface)


class AsyncPlugin(PluginBase):
    """A plugin of an :class:`AsyncPluginHost`; with the methods of :class:`~nearcall.plugin.Plugin`."""

    @overload
    async def service(self, service: Callable[..., T]) -> T: ...
    @overload
    async def service(self, service: Callable[..., object]) -> Any: ...
    async def service(self, service: Callable[..., Any]) -> Any:
        """A service that the plugin offers, to be awaited. A plugin that is not started yet is started now.

        Type checkers see it as they do that of :func:`nearcall.aio.connect`.
        """
        if self.state == "stopped":
            await self.start()
        return self._supervised.service(cast("type", service))

    async def start(self) -> None:
        """Starts the plugin, and waits until it runs or the start has failed."""
        self._supervised.start()
        await asyncio.to_thread(self._supervised.settled.wait)

    async def stop(self) -> None:
        """Stops the plugin, and waits for its end."""
        await asyncio.to_thread(self._supervised.stop)

    async def restart(self) -> None:
        """Stops the plugin, reads its manifest again, and starts it."""
        await asyncio.to_thread(self._supervised.restart)
        await asyncio.to_thread(self._supervised.settled.wait)

    async def grant(self, permission: str) -> None:
        """Grants a permission that was denied or revoked."""
        await asyncio.to_thread(self._supervised.grant, permission)


class _PluginChannel(Channel):
    """A channel to a plugin, which no other server can replace."""

    _by_item = True

    def __init__(self, url: str, shown: str, explain: Explain, **options: Any) -> None:
        self._shown = shown
        self._explain = explain
        super().__init__(url, **options)

    def _why_closed(self) -> str | None:
        return None if self._explain is None else self._explain("", True)


class AsyncPluginHost(PluginHostBase):
    """The plugins of a program with an event loop. Arguments are those of :class:`~nearcall.plugin.PluginHost`::

        async with nearcall.plugin.AsyncPluginHost("plugins", points=[spoken_text]) as host:
            spoken = host.extension(spoken_text)
            print(await spoken("hello"))

    It belongs to the loop in which it is started. ``on_event`` is called there; ``ask`` in a thread, because it may
    wait.
    """

    def __init__(self, directory: Directory, **options: Unpack[HostOptions]) -> None:
        super().__init__(directory, check_settings(**options))
        self._plugins = Plugins({name: AsyncPlugin(each) for name, each in self._by_id.items()}, self.mistakes)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def plugins(self) -> Mapping[str, AsyncPlugin]:
        """All plugins that were found, by their ids."""
        return self._plugins

    async def start(self) -> Self:
        """Starts the plugins, unless they are started lazily, and waits until each runs or its start has failed."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._start_all)
        return self

    async def stop(self) -> None:
        """Stops all plugins and waits for their ends. Harmless when repeated."""
        await asyncio.to_thread(self._stop_all)

    def extension(self, point: ExtensionPoint[P, R]) -> Extension[P, Awaitable[R]]:
        """Calls of an extension point, to be awaited. See :meth:`nearcall.plugin.PluginHost.extension`.

        Raises:
            ValueError: the host does not have this extension point.
        """
        self._known(point)

        def call(*args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
            return cast("Awaitable[R]", run_in_loop(begin(point, self._of(point), args, kwargs)))

        return Extension(point, call)

    def _home(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._loop.is_closed():
            raise Unavailable("the event loop of the plugin host is closed, or the host was not started in one")
        return self._loop

    def open(self, url: str, shown: str, explain: Explain, **options: Any) -> Channel:
        """See :class:`~nearcall.plugin.starting.Connecting`."""
        return _PluginChannel(url, shown, explain, **options)

    def do(self, work: Callable[[], Any], seconds: float) -> Any:
        """See :class:`~nearcall.plugin.starting.Connecting`."""

        async def inside() -> Any:
            with timeout(seconds):
                result = work()
                return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(inside(), self._home()).result()

    def close(self, channel: Any) -> None:
        """See :class:`~nearcall.plugin.starting.Connecting`."""
        # If the loop is closed, so are its connections.
        with contextlib.suppress(Unavailable, RuntimeError):
            self._home().call_soon_threadsafe(channel.close)

    def _deliver(self, event: PluginEvent) -> None:
        on_event = self._settings.on_event
        if on_event is not None:
            # If the loop is closed, nobody is left to be told.
            with contextlib.suppress(Unavailable, RuntimeError):
                self._home().call_soon_threadsafe(call_safely, on_event, event)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    if not TYPE_CHECKING:  # a type checker refuses it by itself
        __enter__ = __exit__ = wrong_with(for_loops(*HOW_HOSTS_ARE_USED))
