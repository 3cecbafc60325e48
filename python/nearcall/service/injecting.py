"""Fills in the dependencies of handlers, around each call."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from ..options.checked import with_option
from .depends import Dependency, Provider, is_asynchronous, provider_name
from .plan import BIDI_STREAM, SERVER_STREAM, MethodPlan

__all__ = ["Injector", "check_overrides"]

Handler: TypeAlias = "Callable[..., Any]"


def check_overrides(overrides: Mapping[Provider, Provider] | None) -> Mapping[Provider, Provider] | None:
    """The option ``overrides``, as given.

    Raises:
        TypeError: ``overrides`` is no mapping from functions to functions.
    """
    if overrides is None:
        return None
    functions = (*overrides, *overrides.values()) if isinstance(cast(object, overrides), Mapping) else (None,)
    if not all(map(callable, functions)):
        problem = f"overrides must be a dict from functions to what is called in their place, not {overrides!r}"
        raise with_option(TypeError(problem), "overrides")
    return overrides


_PLAIN: Final = "plain"
_AWAITED: Final = "awaited"
_SURROUNDS: Final = "surrounds"
_SURROUNDS_IN_LOOP: Final = "surrounds in loop"


class _Step(NamedTuple):
    """One provider of a recipe."""

    provide: Provider
    kind: str
    arguments: tuple[tuple[str, int], ...]
    """The provider's parameters, and the numbers of the earlier steps that give them."""


class Injector:
    """Fills in the dependencies of handlers.

    Args:
        overrides: Functions to call in place of some providers.
        lifespan: The server's lifespan: a provider whose value is made once for the server, and not for each call.
        value: Gives that value.
    """

    def __init__(
        self,
        overrides: Mapping[Provider, Provider] | None = None,
        lifespan: Provider | None = None,
        value: Callable[[], object] | None = None,
    ) -> None:
        self._overrides = dict(overrides or {})
        self._lifespan = lifespan
        self._value = value

    def around(self, plan: MethodPlan, handler: Handler) -> Handler:
        """The handler with its dependencies filled in, which takes only what callers give; the handler itself if it has
        none.

        Raises:
            TypeError: a dependency cannot be filled in; the message names the method and the parameter.
        """
        if not plan.dependencies:
            return handler
        return _Recipe(plan, self).around(handler)

    def step(self, provider: Provider, place: Callable[[str, Dependency], int], where: str, in_loop: bool) -> _Step:
        """How a provider is called.

        Args:
            provider: The function as it was declared.
            place: Finds the step that gives the value of a dependency of the provider.
            where: The handler's parameter that needs the provider, for messages.
            in_loop: Whether the handler is asynchronous.
        """
        given = self._overrides.get(provider, provider)
        if self._value is not None and given == self._lifespan:
            return _Step(self._value, _PLAIN, ())
        arguments: list[tuple[str, int]] = []
        for parameter in _parameters(given):
            if isinstance(parameter.default, Dependency):
                arguments.append((parameter.name, place(parameter.name, parameter.default)))
            elif parameter.default is inspect.Parameter.empty:
                raise TypeError(
                    f"{where}: nobody gives {provider_name(given)}() its parameter '{parameter.name}'; give it a "
                    "default such as nearcall.depends(...), or, if this is the server's lifespan, write "
                    "Server(lifespan=...)"
                )
        asynchronous = is_asynchronous(given)
        if asynchronous and not in_loop:
            raise TypeError(
                f"{where} is asynchronous ({provider_name(given)}), and the method is not: make the method "
                "'async def', or what it depends on 'def'"
            )
        if inspect.isasyncgenfunction(given):
            return _Step(asynccontextmanager(given), _SURROUNDS_IN_LOOP, tuple(arguments))
        if inspect.isgeneratorfunction(given):
            return _Step(contextmanager(given), _SURROUNDS, tuple(arguments))
        return _Step(given, _AWAITED if asynchronous else _PLAIN, tuple(arguments))


class _Recipe:
    """The providers to call before a method's handler, in order."""

    def __init__(self, plan: MethodPlan, injector: Injector) -> None:
        self._plan = plan
        self._injector = injector
        self._steps: list[_Step] = []
        self._placed: dict[Provider, int] = {}
        self._filled = [(name, self._place(name, dependency)) for name, dependency in plan.dependencies]
        self._surrounds = any(step.kind in (_SURROUNDS, _SURROUNDS_IN_LOOP) for step in self._steps)

    def _place(self, name: str, dependency: Dependency) -> int:
        provider = dependency.provider
        found = self._placed.get(provider)
        if found is None:
            where = f"{self._plan.full_name}(): the dependency '{name}'"
            self._steps.append(self._injector.step(provider, self._place, where, self._plan.handler_is_async))
            found = self._placed[provider] = len(self._steps) - 1
        return found

    def around(self, handler: Handler) -> Handler:
        """The handler with its dependencies filled in."""
        streams = self._plan.kind in (SERVER_STREAM, BIDI_STREAM)
        if self._plan.handler_is_async:
            return self._stream_in_loop(handler) if streams else self._call_in_loop(handler)
        return self._stream(handler) if streams else self._call(handler)

    def _fill(self, stack: ExitStack) -> dict[str, Any]:
        values: list[Any] = []
        for provide, kind, arguments in self._steps:
            value = provide(**{name: values[at] for name, at in arguments})
            values.append(stack.enter_context(_Given(value)) if kind == _SURROUNDS else value)
        return {name: values[at] for name, at in self._filled}

    async def _fill_in_loop(self, stack: AsyncExitStack) -> dict[str, Any]:
        values: list[Any] = []
        for provide, kind, arguments in self._steps:
            value = provide(**{name: values[at] for name, at in arguments})
            if kind == _SURROUNDS:
                value = stack.enter_context(_Given(value))
            elif kind == _SURROUNDS_IN_LOOP:
                value = await stack.enter_async_context(_GivenInLoop(value))
            elif kind == _AWAITED:
                value = await value
            values.append(value)
        return {name: values[at] for name, at in self._filled}

    def _call(self, handler: Handler) -> Handler:
        def call(*args: Any, **kwargs: Any) -> Any:
            with ExitStack() as stack:
                return handler(*args, **kwargs, **self._fill(stack))

        def call_simply(*args: Any, **kwargs: Any) -> Any:
            return handler(*args, **kwargs, **self._fill(_NO_STACK))

        return call if self._surrounds else call_simply

    def _stream(self, handler: Handler) -> Handler:
        def stream(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with ExitStack() as stack:
                yield from handler(*args, **kwargs, **self._fill(stack))

        return stream

    def _call_in_loop(self, handler: Handler) -> Handler:
        async def call(*args: Any, **kwargs: Any) -> Any:
            async with AsyncExitStack() as stack:
                return await handler(*args, **kwargs, **await self._fill_in_loop(stack))

        return call

    def _stream_in_loop(self, handler: Handler) -> Handler:
        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async with AsyncExitStack() as stack:
                items = handler(*args, **kwargs, **await self._fill_in_loop(stack))
                if not hasattr(items, "__aiter__"):
                    items = await items
                try:
                    async for item in items:
                        yield item
                finally:
                    if hasattr(items, "aclose"):
                        await items.aclose()

        return stream


_NO_STACK = ExitStack()
"""For recipes in which no provider surrounds the handler: this stack stays empty."""


class _Given:
    """A generator's context manager. If the generator swallows an exception, the other providers and the caller still
    get it.
    """

    def __init__(self, manager: AbstractContextManager[Any]) -> None:
        self._manager = manager

    def __enter__(self) -> Any:
        return self._manager.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._manager.__exit__(kind, error, traceback)


class _GivenInLoop:
    """The same for an asynchronous generator."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager

    async def __aenter__(self) -> Any:
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._manager.__aexit__(kind, error, traceback)


def _parameters(provider: Provider) -> list[inspect.Parameter]:
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        return [each for each in inspect.signature(provider).parameters.values() if each.kind not in stars]
    except ValueError:
        return []  # written in C: there is no signature to look at
