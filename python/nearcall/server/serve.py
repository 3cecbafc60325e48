"""``nearcall.serve``: serving until told to end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from ..options.checked import check_seconds
from ..options.names import check_names, option_names
from .server import Server
from .signals import Terminated, Told, raise_when_told

if TYPE_CHECKING:
    from .workers import Refresh, Workers

__all__ = ["serve", "serve_alone", "serve_with_workers"]

_LOOK = 0.5
"""Seconds after which the main thread checks whether a signal told it to end."""


@overload
def serve(
    *services_and_urls: object,
    workers: None = None,
    grace: float = 5.0,
    on_ready: Callable[[Server], object] | None = None,
    **options: Any,
) -> None: ...
@overload
def serve(
    *services_and_urls: object,
    workers: int,
    grace: float = 5.0,
    on_ready: Callable[[Workers], object] | None = None,
    **options: Any,
) -> None: ...
def serve(
    *services_and_urls: object,
    workers: int | None = None,
    grace: float = 5.0,
    on_ready: Callable[[Any], object] | None = None,
    **options: Any,
) -> None:
    """Serves objects at URLs until interrupted (Ctrl-C) or told to end (``SIGTERM``, without ``workers`` ``SIGHUP``).

    With ``workers``, ``SIGHUP`` replaces them, one after the other: each has a successor that is ready before it
    leaves.

    Args:
        services_and_urls: As for :class:`Server`. With ``workers``, classes or functions without arguments in place of
            the objects: each worker process makes objects of its own.
        workers: Serve with so many processes. This process accepts the clients, hands each to the worker with the
            fewest, and starts another worker when one dies.
        grace: Seconds that calls under way have to finish when serving ends. Who tells it again to end, by a second
            Ctrl-C for instance, ends the grace.
        on_ready: Called with the server once it listens everywhere; ``server.urls`` has the ports by then. With
            ``workers`` it is called with the :class:`~nearcall.Workers`, once all of them serve.
        options: As for :class:`Server`.

    Raises:
        WorkerFailed: a worker could not begin to serve, or workers die at once again and again.
        RuntimeError: it is called in the thread of a running event loop.
        Exception: what the ``lifespan`` has raised, once the server has stopped.
    """
    check_names(options, (*option_names(serve), *option_names(Server.__init__)))
    if workers is not None:
        _refuse_in_loop()
        serve_with_workers(services_and_urls, workers=workers, grace=grace, on_ready=on_ready, **options)
        return
    serve_alone(services_and_urls, grace=grace, on_ready=on_ready, **options)


def serve_alone(
    services_and_urls: Sequence[object],
    *,
    grace: float = 5.0,
    on_ready: Callable[[Server], object] | None = None,
    on_stopping: Callable[[], object] | None = None,
    **options: Any,
) -> None:
    """:func:`serve` without worker processes.

    Args:
        services_and_urls: As for :func:`serve`.
        grace: As for :func:`serve`.
        on_ready: As for :func:`serve`.
        on_stopping: Called when serving is to end, before calls under way are waited for.
        options: As for :class:`Server`.
    """
    _refuse_in_loop()
    server = Server(*services_and_urls, **options)
    told = Told()
    try:
        try:
            told = raise_when_told()
            server.start()
            if on_ready is not None:
                on_ready(server)
            # A signal does not wake this thread if it comes just as the thread falls asleep, or if the system gives it
            # to another thread.
            while not (told.to_end or server.wait(_LOOK)):
                pass
        except (KeyboardInterrupt, Terminated):
            pass
        finally:
            told.begin_to_end()
            if on_stopping is not None:
                on_stopping()
            server.stop(grace)
    except (KeyboardInterrupt, Terminated):
        server.stop(0)  # told again, and maybe before it has begun to stop
    finally:
        told.restore()
    if server.failure is not None:
        raise server.failure


def _refuse_in_loop() -> None:
    """Refuses to serve in the thread of a running event loop, which could neither go on nor hear of Ctrl-C.

    Raises:
        RuntimeError: a loop runs here.
    """
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None:  # who has not imported it has no loop
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "nearcall.serve() would hold up the event loop that runs here: write 'with nearcall.Server(...):' and await "
        "what ends it, or call serve() where no loop runs; coroutine handlers have one of their own"
    )


def serve_with_workers(
    services_and_urls: Sequence[object],
    *,
    workers: int,
    grace: float = 5.0,
    on_ready: Callable[[Workers], object] | None = None,
    late_options: Callable[[], dict[str, Any]] = dict,
    refresh: Refresh | None = None,
    on_stopping: Callable[[], object] | None = None,
    on_reloading: Callable[[bool], object] | None = None,
    **options: Any,
) -> None:
    """:func:`serve` with worker processes.

    Args:
        services_and_urls: As for :func:`serve`.
        workers: As for :func:`serve`.
        grace: As for :func:`serve`.
        on_ready: As for :func:`serve`.
        late_options: Called in each worker: makes the options that must not exist before the fork.
        refresh: Called at ``SIGHUP``: reads anew what to serve and how.
        on_stopping: Called when serving is to end, before calls under way are waited for.
        on_reloading: Called with ``True`` when workers begin to be replaced, and with ``False`` when all are, or when
            it was given up.
        options: As for :func:`serve`.

    Raises:
        WorkerFailed: as for :func:`serve`.
    """
    from .workers import Workers  # only where they are wanted

    grace = check_seconds("grace", grace, endless=True)
    crew = Workers(services_and_urls, workers, grace, options, late_options, refresh)
    crew.on_stopping, crew.on_reloading = on_stopping, on_reloading
    crew.run(on_ready)
