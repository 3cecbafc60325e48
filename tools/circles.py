"""Things that know each other, in a graph of who knows whom."""

from collections.abc import Mapping, Set
from typing import TypeVar

Node = TypeVar("Node", bound="tuple[str, ...]")


def circles(graph: Mapping[Node, Set[Node]]) -> list[list[Node]]:
    """Those that know each other, directly or by way of others: one list for each such group (Tarjan 1972).

    Args:
        graph: For each node those that it knows; all of them are keys, too.
    """
    order: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    found: list[list[Node]] = []

    def visit(node: Node) -> None:
        order[node] = low[node] = len(order)
        path.append(node)
        for other in sorted(graph[node]):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in path:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = path[path.index(node) :]
            del path[path.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found
