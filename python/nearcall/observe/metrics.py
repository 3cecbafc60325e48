"""Counters and histograms for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..call.interceptors import CallInfo, ServerCall
from ..options.names import checks_names
from ..status import StatusCode
from .calls import BUCKETS, Followed, Interceptor, follow

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["prometheus"]


@checks_names
def prometheus(registry: CollectorRegistry | None = None, *, buckets: Sequence[float] = BUCKETS) -> Interceptor:
    """An interceptor that counts and times calls, at a client or at a server; needs ``nearcall[prometheus]``.

    The metrics, here those of a server; those of a client are called ``nearcall_client_...``:

    - ``nearcall_server_started_total{service,method}``: calls begun;
    - ``nearcall_server_handled_total{service,method,code}``: calls ended, by status code, such as ``NOT_FOUND``;
    - ``nearcall_server_handling_seconds{service,method}``: a histogram from a call's beginning to its end, the end of a
      stream.

    Args:
        registry: Where to register them; ``prometheus_client``'s own if not given. All interceptors of one registry
            share its metrics.
        buckets: Upper bounds of the histogram, seconds; those of the registry's first interceptor count.

    Raises:
        ImportError: ``prometheus_client`` is not installed.
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        raise ImportError("nearcall.observe.prometheus needs its package: pip install nearcall[prometheus]") from None

    registered = REGISTRY if registry is None else registry
    with _lock:
        metrics = _metrics.get(registered)
        if metrics is None:
            metrics = _metrics[registered] = _Metrics(registered, buckets)

    def begin(call: CallInfo) -> Followed:
        method = metrics.method(isinstance(call, ServerCall), call.method)
        method.started.inc()
        return _Counted(call, method)

    return follow(begin)


class _Metrics:
    """The metrics in one registry."""

    def __init__(self, registry: CollectorRegistry, buckets: Sequence[float]) -> None:
        self._sides = [_Side(side, registry, tuple(buckets)) for side in ("client", "server")]
        self._methods: dict[tuple[bool, str], _Method] = {}

    def method(self, at_server: bool, name: str) -> _Method:
        """The metrics of one method: kept, because looking up labels costs more than counting."""
        found = self._methods.get((at_server, name))
        if found is None:
            found = self._methods[at_server, name] = _Method(self._sides[at_server], name)
        return found


class _Side:
    """The metrics of the clients, or of the servers."""

    def __init__(self, side: str, registry: CollectorRegistry, buckets: tuple[float, ...]) -> None:
        from prometheus_client import Counter, Histogram

        labels = ("service", "method")
        name = f"nearcall_{side}"
        self.started = Counter(f"{name}_started_total", f"Calls begun at the {side}.", labels, registry=registry)
        self.handled = Counter(
            f"{name}_handled_total", f"Calls ended at the {side}, by status code.", (*labels, "code"), registry=registry
        )
        self.handling = Histogram(
            f"{name}_handling_seconds",
            f"From the beginning of a call to its end, at the {side}.",
            labels,
            registry=registry,
            buckets=buckets,
        )


class _Method:
    """The metrics of one method."""

    def __init__(self, side: _Side, name: str) -> None:
        service, _, method = name.rpartition(".")
        self.started = side.started.labels(service, method)
        self.handling = side.handling.labels(service, method)
        self._handled = side.handled
        self._labels = service, method
        self._codes: dict[StatusCode, Any] = {}

    def ended(self, code: StatusCode, seconds: float) -> None:
        self.handling.observe(seconds)
        counter = self._codes.get(code)
        if counter is None:
            counter = self._codes[code] = self._handled.labels(*self._labels, code.name)
        counter.inc()


class _Counted(Followed):
    """A call that is counted when it ends."""

    def __init__(self, call: CallInfo, method: _Method) -> None:
        super().__init__(call)
        self._method = method

    def ended(self, code: StatusCode, seconds: float, error: BaseException | None) -> None:
        self._method.ended(code, seconds)


# Metrics of one name can only be registered once, and a program may make an interceptor for each of its servers.
_metrics: WeakKeyDictionary[CollectorRegistry, _Metrics] = WeakKeyDictionary()
_lock = threading.Lock()
