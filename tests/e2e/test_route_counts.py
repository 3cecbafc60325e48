"""What a node has done becomes no less when its table changes: what was counted stays counted."""

from __future__ import annotations

import threading

import pytest

from nearcall import cli, route

from .test_route import PATIENCE, noting, table_of, until


def done(status: route.NodeStatus) -> tuple[int, int]:
    """Messages that were sent, and those that were dropped or wait."""
    all_of: list[route.EndpointStatus | route.LeftStatus] = [*status.endpoints]
    all_of += [] if status.left is None else [status.left]
    return sum(each.sent for each in all_of), sum(each.dropped + each.queued for each in all_of)


def test_counts_outlast_the_table(
    key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearcall.route.sending._GRACE", 0.01)  # what waits for who is in no table is dropped soon
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    first, second = f"shm://r{key}first", f"shm://r{key}second"
    sender = route.Node(f"shm://r{key}sender", queue=10_000)
    with noting(first, 1)[0], noting(second, 1)[0], sender:
        route.prometheus(sender, registry=registry)
        sender.install(table_of(f"rte | 1 | {first}", f"rte | 2 | shm://r{key}nobody"))
        until(lambda: next(each for each in sender.status().endpoints if each.name == first).connected, "the first")
        for _ in range(3):
            sender.send(1, b"x")
        sender.send(2, b"waits")
        assert sender.status().left is None
        assert done(sender.status()) == (3, 1)
        sender.install(table_of(f"rte | 1 | {second}"))
        status = sender.status()
        assert [each.name for each in status.endpoints] == [second]
        assert done(status) == (3, 1)
        until(lambda: (left := sender.status().left) is not None and left.dropped == 1, "the end of what waits")
        sender.ready(PATIENCE)
        sender.send(1, b"x")
        sender.install(table_of(f"rte | 1 | {first}"))
        sender.ready(PATIENCE)
        sender.send(1, b"x")
        left = sender.status().left
        assert left is not None
        assert (left.endpoints, left.sent, left.dropped, left.queued) == (3, 4, 1, 0)
        assert done(sender.status()) == (5, 1)
        values = registry.get_sample_value
        labels = {"node": sender.name, "endpoint": "(left)"}
        assert values("nearcall_route_sent_total", labels) == 4
        assert values("nearcall_route_dropped_total", labels) == 1
        assert values("nearcall_route_connected", labels) is None
        assert values("nearcall_route_sent_total", labels | {"endpoint": first}) == 1
        assert cli.main(["route", "status", sender.urls[0]]) == 0
        assert "  to 3 endpoints that have left: 4 sent, 0 queued (0 bytes), 1 dropped" in capsys.readouterr().out


def test_no_look_finds_less_than_the_one_before(key: str) -> None:
    first, second = f"shm://r{key}first", f"shm://r{key}second"
    sender = route.Node(f"shm://r{key}sender")
    over = threading.Event()
    fell: list[tuple[tuple[int, int], tuple[int, int]]] = []

    def watch() -> None:
        last = (0, 0)
        while not over.is_set():
            now = done(sender.status())
            if now[0] < last[0]:
                fell.append((last, now))
            last = now

    with noting(first, 1)[0], noting(second, 1)[0], sender:
        watching = threading.Thread(target=watch)
        watching.start()
        try:
            for number in range(200):
                sender.install(table_of(f"rte | 1 | {(first, second)[number % 2]}"))
                sender.send(1, b"x")
        finally:
            over.set()
            watching.join(PATIENCE)
        until(lambda: done(sender.status()) == (200, 0), "all messages")
    assert not fell
