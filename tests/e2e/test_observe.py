"""What the shipped interceptors tell Prometheus, OpenTelemetry and a log: real packages, over every transport."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from opentelemetry.trace import StatusCode as SpanStatus
from prometheus_client import CollectorRegistry, generate_latest

import nearcall
from nearcall import StatusCode

from .deadlines import longer_and_longer
from .process import start_program
from .services import PATIENCE
from .test_introspection import until

Make = Callable[..., Any]


class Telemetry:
    """An SDK of its own."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.interceptor = nearcall.observe.opentelemetry(tracer_provider=self.tracers, meter_provider=self.meters)

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def spans(self, name: str, kind: SpanKind, count: int = 1) -> list[ReadableSpan]:
        """So many spans; those of a server may end after the client has its reply."""

        def found() -> list[ReadableSpan] | None:
            spans = [span for span in self.all() if (span.name, span.kind) == (name, kind)]
            assert len(spans) <= count
            return spans if len(spans) == count else None

        result: list[ReadableSpan] = until(found)
        return result

    def pair(self, name: str) -> tuple[ReadableSpan, ReadableSpan]:
        """The spans of one call, at the client and at the server; the one must be the other's parent."""
        (client,), (server,) = self.spans(name, SpanKind.CLIENT), self.spans(name, SpanKind.SERVER)
        assert server.parent is not None
        assert server.parent.span_id == client.context.span_id
        assert server.context.trace_id == client.context.trace_id
        return client, server

    def forget(self) -> None:
        self._exporter.clear()

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    telemetry.close()


@nearcall.service
class Work:
    """Methods of every kind, in threads and in the loop."""

    def __init__(self, tracers: TracerProvider | None = None) -> None:
        self.tracer = (tracers or TracerProvider()).get_tracer("work")
        self.release = threading.Event()
        self.waits = 0

    def add(self, a: int, b: int) -> int:
        with self.tracer.start_as_current_span("inside"):
            return a + b

    async def add_in_loop(self, a: int, b: int) -> int:
        with self.tracer.start_as_current_span("inside"):
            await asyncio.sleep(0)
            return a + b

    def count(self, n: int) -> Iterator[int]:
        for number in range(n):
            with self.tracer.start_as_current_span("inside"):
                pass
            yield number

    async def count_in_loop(self, n: int) -> AsyncIterator[int]:
        for number in range(n):
            with self.tracer.start_as_current_span("inside"):
                await asyncio.sleep(0)
            yield number

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    def double(self, numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            yield 2 * number

    @nearcall.oneway
    def tell(self) -> None:
        with self.tracer.start_as_current_span("inside"):
            pass

    def fail(self, code: int) -> int:
        raise nearcall.errors.error_class(code)("no")  # type: ignore[attr-defined]

    def crash(self) -> int:
        raise ValueError("a fault")

    def waiting(self) -> int:
        """How many calls of the next method have come here."""
        return self.waits

    async def wait_in_loop(self) -> int:
        self.waits += 1
        await asyncio.Event().wait()
        return 1

    async def silent_in_loop(self) -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    def baggage(self) -> str | None:
        value = baggage.get_baggage("tenant")
        return None if value is None else str(value)


@contextlib.contextmanager
def serving(url: str, *interceptors: Any, service: Work | None = None) -> Iterator[str]:
    with nearcall.Server(service or Work(), url, interceptors=interceptors) as server:
        yield server.urls[0]


@pytest.fixture
def traced(telemetry: Telemetry, new_url: str) -> Iterator[str]:
    with serving(new_url, telemetry.interceptor, service=Work(telemetry.tracers)) as url:
        yield url


def status_of(span: ReadableSpan) -> StatusCode:
    assert span.attributes is not None
    return StatusCode[str(span.attributes["rpc.response.status_code"])]


def test_spans_of_every_kind_from_threads(telemetry: Telemetry, traced: str) -> None:
    with nearcall.connect(traced, Work, interceptors=[telemetry.interceptor]) as work:
        assert work.add(1, 2) == 3
        assert work.add_in_loop(1, 2) == 3
        assert list(work.count(3)) == [0, 1, 2]
        assert list(work.count_in_loop(3)) == [0, 1, 2]
        assert work.total(iter([1, 2])) == 3
        assert list(work.double(iter([1, 2]))) == [2, 4]
        work.tell()
        inside = {"add": 1, "add_in_loop": 1, "count": 3, "count_in_loop": 3, "total": 0, "double": 0, "tell": 1}
        for method, count in inside.items():
            for span in (pair := telemetry.pair(f"Work/{method}")):
                assert span.attributes == {
                    "rpc.system.name": "nearcall",
                    "rpc.method": f"Work/{method}",
                    "rpc.response.status_code": "OK",
                } | {key: value for key, value in (span.attributes or {}).items() if key == "network.peer.address"}
                assert span.status.status_code == SpanStatus.UNSET
            # What the handler does belongs to the server's span, whichever thread or task it does it in.
            server = pair[1].context.span_id
            own = [span for span in telemetry.all() if span.parent is not None and span.parent.span_id == server]
            assert [span.name for span in own] == ["inside"] * count, method
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_spans_of_every_kind_from_an_event_loop(telemetry: Telemetry, traced: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(traced, Work, interceptors=[telemetry.interceptor]) as work:
            assert await work.add(1, 2) == 3
            assert [number async for number in work.count(3)] == [0, 1, 2]
            assert [number async for number in await work.count_in_loop(3)] == [0, 1, 2]
            assert await work.total(iter([1, 2])) == 3
            assert [number async for number in work.double(iter([1, 2]))] == [2, 4]
            await work.tell()
            with pytest.raises(nearcall.NotFound):
                await work.fail(5)
            task = asyncio.create_task(work.wait_in_loop())
            while not await work.waiting():
                pass
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            async with work.silent_in_loop() as replies:
                assert await replies.__anext__() == 1

    asyncio.run(main())
    for method in ("add", "count", "count_in_loop", "total", "double", "tell"):
        assert [status_of(span) for span in telemetry.pair(f"Work/{method}")] == [StatusCode.OK] * 2
    assert [status_of(span) for span in telemetry.pair("Work/fail")] == [StatusCode.NOT_FOUND] * 2
    for method in ("wait_in_loop", "silent_in_loop"):
        assert [status_of(span) for span in telemetry.pair(f"Work/{method}")] == [StatusCode.CANCELLED] * 2


def test_callers_span_is_the_parent(telemetry: Telemetry, traced: str) -> None:
    tracer = telemetry.tracers.get_tracer("caller")
    with nearcall.connect(traced, Work, interceptors=[telemetry.interceptor]) as work:
        with tracer.start_as_current_span("outside") as outside:
            work.add(1, 2)
        client, _ = telemetry.pair("Work/add")
        assert client.parent is not None
        assert client.parent.span_id == outside.get_span_context().span_id


@pytest.mark.parametrize("method", ["count", "count_in_loop"])
def test_a_streams_span_ends_with_the_stream(telemetry: Telemetry, traced: str, method: str) -> None:
    with nearcall.connect(traced, Work, interceptors=[telemetry.interceptor]) as work:
        replies = getattr(work, method)(3)
        assert next(replies) == 0
        assert [span for span in telemetry.all() if span.kind == SpanKind.CLIENT] == []
        assert list(replies) == [1, 2]
        assert status_of(telemetry.pair(f"Work/{method}")[0]) == StatusCode.OK


@pytest.mark.parametrize("how", ["close", "with", "forget"])
def test_a_stream_that_is_left(telemetry: Telemetry, traced: str, how: str) -> None:
    with nearcall.connect(traced, Work, interceptors=[telemetry.interceptor]) as work:
        replies: Any = work.silent_in_loop()
        assert next(replies) == 1
        if how == "close":
            replies.close()
            replies.close()
        elif how == "with":
            with replies:
                pass
        del replies
        gc.collect()
        client, server = telemetry.pair("Work/silent_in_loop")
        assert (status_of(client), status_of(server)) == (StatusCode.CANCELLED, StatusCode.CANCELLED)


def test_deadlines(telemetry: Telemetry, traced: str) -> None:
    with nearcall.connect(traced, Work, interceptors=[telemetry.interceptor]) as work:
        got: list[int] = []
        for seconds in longer_and_longer():
            telemetry.forget()
            with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
                got.extend(work.silent_in_loop())  # type: ignore[arg-type]
            if got:
                break
        client, server = telemetry.pair("Work/silent_in_loop")
        assert (status_of(client), client.status.status_code) == (StatusCode.DEADLINE_EXCEEDED, SpanStatus.ERROR)
        # Its own clock, or the client's word: whichever came first.
        assert status_of(server) in (StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED)


def test_errors(telemetry: Telemetry, traced: str) -> None:
    with nearcall.connect(traced, Work, interceptors=[telemetry.interceptor]) as work:
        with pytest.raises(nearcall.NotFound):
            work.fail(5)
        with pytest.raises(nearcall.Unknown):
            work.crash()
    client, server = telemetry.pair("Work/fail")
    assert (client.status.status_code, server.status.status_code) == (SpanStatus.ERROR, SpanStatus.UNSET)
    assert client.status.description == "no"
    assert client.attributes is not None
    assert client.attributes["error.type"] == "NOT_FOUND"
    client, server = telemetry.pair("Work/crash")
    assert [span.status.status_code for span in (client, server)] == [SpanStatus.ERROR] * 2
    (event,) = server.events
    assert event.attributes is not None
    assert (event.name, event.attributes["exception.type"]) == ("exception", "ValueError")


def test_durations(telemetry: Telemetry, traced: str) -> None:
    with nearcall.connect(traced, Work, interceptors=[telemetry.interceptor]) as work:
        for _ in range(7):
            work.add(1, 2)
        with pytest.raises(nearcall.NotFound):
            work.fail(5)
    telemetry.spans("Work/add", SpanKind.SERVER, 7)
    telemetry.pair("Work/fail")

    def counts() -> dict[tuple[Any, ...], int]:
        data = telemetry.reader.get_metrics_data()
        assert data is not None
        seen: dict[tuple[Any, ...], int] = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            assert metric.unit == "s"
            for point in metric.data.data_points:
                labels: Any = point.attributes
                key = (metric.name, labels["rpc.method"], labels["rpc.response.status_code"], labels.get("error.type"))
                seen[key] = point.count  # type: ignore[union-attr]
                assert 0 < point.sum < 10 * point.count  # type: ignore[union-attr]
                assert point.explicit_bounds[0] == 1e-5  # type: ignore[union-attr]
        return seen

    expected = {
        ("rpc.client.call.duration", "Work/add", "OK", None): 7,
        ("rpc.server.call.duration", "Work/add", "OK", None): 7,
        ("rpc.client.call.duration", "Work/fail", "NOT_FOUND", "NOT_FOUND"): 1,
        ("rpc.server.call.duration", "Work/fail", "NOT_FOUND", None): 1,
    }
    assert until(lambda: counts() == expected)


@pytest.mark.parametrize("value", ["", "00-zz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff-1-1-1", "x" * 10_000])
def test_a_peers_nonsense_is_no_context(telemetry: Telemetry, traced: str, value: str) -> None:
    with (
        nearcall.connect(traced, Work) as work,
        nearcall.metadata([("traceparent", value), ("traceparent", value), ("tracestate", "=,=" * 99)]),
    ):
        assert work.add(1, 2) == 3
    (server,) = telemetry.spans("Work/add", SpanKind.SERVER)
    assert server.parent is None


def test_another_propagator(key: str) -> None:
    interceptor = nearcall.observe.opentelemetry(propagator=W3CBaggagePropagator())
    with (
        serving(f"shm://observe{key}", interceptor) as url,
        nearcall.connect(url, Work, interceptors=[interceptor]) as work,
    ):
        assert work.baggage() is None
        token = context.attach(baggage.set_baggage("tenant", "ä b"))
        try:
            assert work.baggage() == "ä b"
        finally:
            context.detach(token)


SERVER = """
import json, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import nearcall
from tests.e2e.services import Basics

exporter, tracers = InMemorySpanExporter(), TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(exporter))
traced = nearcall.observe.opentelemetry(tracer_provider=tracers)
with nearcall.Server(Basics(), sys.argv[1], interceptors=[traced]) as server:
    print(server.urls[0], flush=True)
    sys.stdin.read()
print(json.dumps([[span.parent.trace_id, span.parent.span_id] for span in exporter.get_finished_spans()]))
"""


@pytest.mark.slow
def test_context_crosses_processes(telemetry: Telemetry, outside_url: str) -> None:
    from .services import Basics

    with start_program(SERVER, outside_url) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with nearcall.connect(url, Basics, interceptors=[telemetry.interceptor]) as basics:
            assert basics.add(1, 2) == 3
        out, _ = process.communicate("", timeout=20)
    (client,) = telemetry.spans("Basics/add", SpanKind.CLIENT)
    assert json.loads(out) == [[client.context.trace_id, client.context.span_id]]


def test_prometheus(new_url: str) -> None:
    registry = CollectorRegistry()
    # Two interceptors of one registry count in one place.
    with serving(new_url, nearcall.observe.prometheus(registry)) as url:
        with nearcall.connect(url, Work, interceptors=[nearcall.observe.prometheus(registry)]) as work:

            def use() -> None:
                for _ in range(50):
                    work.add(1, 2)
                    work.add_in_loop(1, 2)
                    assert list(work.count(2)) == [0, 1]
                    with pytest.raises(nearcall.NotFound):
                        work.fail(5)

            threads = [threading.Thread(target=use) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            work.tell()
            replies: Any = work.silent_in_loop()
            assert next(replies) == 1
            replies.close()

        def sample(side: str, name: str, method: str, **labels: str) -> float | None:
            return registry.get_sample_value(f"nearcall_{side}_{name}", {"service": "Work", "method": method, **labels})

        expected = [("add", "OK", 200), ("add_in_loop", "OK", 200), ("count", "OK", 200), ("fail", "NOT_FOUND", 200)]
        expected += [("tell", "OK", 1), ("silent_in_loop", "CANCELLED", 1)]
        for side in ("client", "server"):
            for method, code, count in expected:
                assert until(lambda: sample(side, "handled_total", method, code=code) == count)  # noqa: B023
                assert sample(side, "started_total", method) == count
                assert sample(side, "handling_seconds_count", method) == count
                assert sample(side, "handling_seconds_bucket", method, le="+Inf") == count
                total = sample(side, "handling_seconds_sum", method)
                assert total is not None
                assert 0 < total < 100 * count
    text = generate_latest(registry).decode()
    assert 'nearcall_server_handled_total{code="NOT_FOUND",method="fail",service="Work"} 200.0' in text


def test_access_log(new_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nearcall.access")
    with serving(new_url, nearcall.observe.access_log()) as url:
        log = nearcall.observe.access_log("nearcall.access.client", failed=logging.ERROR)
        with nearcall.connect(url, Work, interceptors=[log]) as work:
            work.add(1, 2)
            assert list(work.count_in_loop(2)) == [0, 1]
            with pytest.raises(nearcall.NotFound):
                work.fail(5)
        until(lambda: len(caplog.records) >= 6)
    lines = {
        (record.name, record.levelname, re.sub(r"\d+\.\d{3} ms", "T", record.getMessage()).split(" T")[0])
        for record in caplog.records
    }
    assert lines == {
        ("nearcall.access", "INFO", "server Work.add OK"),
        ("nearcall.access", "INFO", "server Work.count_in_loop OK"),
        ("nearcall.access", "WARNING", "server Work.fail NOT_FOUND"),
        ("nearcall.access.client", "INFO", "client Work.add OK"),
        ("nearcall.access.client", "INFO", "client Work.count_in_loop OK"),
        ("nearcall.access.client", "ERROR", "client Work.fail NOT_FOUND"),
    }
    parts = next(record.__dict__ for record in caplog.records if record.levelname == "WARNING")
    assert (parts["side"], parts["method"], parts["kind"], parts["code"]) == (
        "server",
        "Work.fail",
        "unary",
        "NOT_FOUND",
    )
    assert parts["seconds"] > 0
    assert parts["peer"]


@pytest.mark.parametrize("name", ["prometheus", "opentelemetry"])
def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, {"prometheus": "prometheus_client"}.get(name, name), None)
    with pytest.raises(ImportError, match=re.escape(f"pip install nearcall[{name}]")):
        getattr(nearcall.observe, name)()
