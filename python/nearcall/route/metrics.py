"""What nodes have done, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .base import NodeBase
from .service import NodeStatus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["prometheus"]

_OF_ENDPOINTS = {
    "sent": "Messages that the transport has taken.",
    "failed_hard": "Messages that cannot be sent at all.",
    "failed_soft": "Messages that were refused to their senders because the queue was full.",
    "dropped": "Messages that were dropped.",
    "handed_on": "Messages that went to another member of the group, since this one was not connected.",
}
_OF_NODES = {
    "taken": "Messages that were taken to be handled.",
    "malformed": "Messages that could not be read.",
    "failed": "Messages whose handlers have raised, or whose payloads do not fit their type.",
    "unhandled": "Messages of a type that no handler takes.",
    "unrouted": "Messages for which the table has no entry.",
}


def prometheus(*nodes: NodeBase, registry: CollectorRegistry | None = None) -> None:
    """Shows what nodes have done to Prometheus, which reads it when it asks; needs ``nearcall[prometheus]``:

    - ``nearcall_route_sent_total``, ``..._failed_hard_total``, ``..._failed_soft_total``, ``..._dropped_total`` and
      ``..._handed_on_total``, with the labels ``node`` and ``endpoint``; ``nearcall_route_queued``,
      ``nearcall_route_queued_bytes`` and ``nearcall_route_connected`` (0 or 1) likewise. The endpoint ``(left)`` stands
      for all those together that the node uses no more: the sums never fall;
    - ``nearcall_route_taken_total``, ``..._malformed_total``, ``..._failed_total``, ``..._unhandled_total``,
      ``..._unrouted_total`` and ``nearcall_route_waiting``, with the label ``node``.

    Args:
        nodes: The nodes, for threads or for event loops; each has a name of its own.
        registry: Where to register them; ``prometheus_client``'s own if not given.

    Raises:
        ImportError: ``prometheus_client`` is not installed.
        ValueError: nodes are registered there already. Register all of them at once.
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        raise ImportError("nearcall.route.prometheus needs its package: pip install nearcall[prometheus]") from None
    (REGISTRY if registry is None else registry).register(_Collector(nodes))


class _Collector:
    """Asks nodes when Prometheus does."""

    def __init__(self, nodes: tuple[NodeBase, ...]) -> None:
        self._nodes = nodes

    def describe(self) -> Iterable[Metric]:
        """The names, so that two collectors do not have the same."""
        return _metrics([])

    def collect(self) -> Iterable[Metric]:
        """The counts of now."""
        return _metrics([node.status() for node in self._nodes])


def _metrics(nodes: list[NodeStatus]) -> Iterable[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    def of_endpoints(family: Any, value: str) -> Any:
        for node in nodes:
            for endpoint in node.endpoints:
                family.add_metric((node.name, endpoint.name), float(getattr(endpoint, value)))
            if node.left is not None and value != "connected":
                family.add_metric((node.name, "(left)"), float(getattr(node.left, value)))
        return family

    def of_nodes(family: Any, value: str) -> Any:
        for node in nodes:
            family.add_metric((node.name,), float(getattr(node, value)))
        return family

    both = ("node", "endpoint")
    for name, text in _OF_ENDPOINTS.items():
        yield of_endpoints(CounterMetricFamily(f"nearcall_route_{name}", text, labels=both), name)
    for name, text in (
        ("queued", "Messages in the queue."),
        ("queued_bytes", "Their bytes."),
        ("connected", "Whether there is a connection."),
    ):
        yield of_endpoints(GaugeMetricFamily(f"nearcall_route_{name}", text, labels=both), name)
    for name, text in _OF_NODES.items():
        yield of_nodes(CounterMetricFamily(f"nearcall_route_{name}", text, labels=("node",)), name)
    waiting = GaugeMetricFamily("nearcall_route_waiting", "Messages that have arrived and wait.", labels=("node",))
    yield of_nodes(waiting, "waiting")
