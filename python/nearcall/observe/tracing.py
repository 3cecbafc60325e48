"""Spans and metrics for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from .. import _core
from ..call.interceptors import CallInfo, ClientCall, ServerCall
from ..metadata_pairs import Metadata
from ..options.names import checks_names
from ..status import StatusCode
from .calls import BUCKETS, Followed, Interceptor, follow

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["opentelemetry"]

_SERVER_FAULTS = frozenset(
    {
        StatusCode.UNKNOWN,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.UNIMPLEMENTED,
        StatusCode.INTERNAL,
        StatusCode.UNAVAILABLE,
        StatusCode.DATA_LOSS,
    }
)
"""By OpenTelemetry's conventions for gRPC these codes are failures of the server itself; the others are answers."""


@checks_names
def opentelemetry(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    propagator: TextMapPropagator | None = None,
) -> Interceptor:
    """An interceptor that makes a span of each call, at a client or at a server; needs ``nearcall[opentelemetry]``.

    A span is called ``Calculator/add`` and has the attributes ``rpc.system.name`` (``nearcall``), ``rpc.method``
    (``Calculator/add``) and ``rpc.response.status_code`` (``OK``). It lasts until the call has ended, with a stream
    until the stream has. The client sends its context in the metadata, so that the server's span is a child of the
    client's, and the spans of what the handler does are children of the server's. One-way calls are no different; a
    client's span ends when the call is sent.

    The metrics ``rpc.client.call.duration`` and ``rpc.server.call.duration`` are histograms in seconds with the same
    attributes. All names are those of OpenTelemetry's conventions for RPC as of 2026.

    Args:
        tracer_provider: Records spans; the global provider if not given.
        meter_provider: Records metrics; the global provider if not given.
        propagator: How the context travels; as configured globally if not given, which usually is W3C's
            ``traceparent``.

    Raises:
        ImportError: ``opentelemetry-api`` is not installed.
    """
    try:
        from opentelemetry import metrics, propagate, trace
    except ImportError:
        raise ImportError(
            "nearcall.observe.opentelemetry needs its package: pip install nearcall[opentelemetry]"
        ) from None

    tracer = trace.get_tracer("nearcall", _core.VERSION, tracer_provider)
    meter = metrics.get_meter("nearcall", _core.VERSION, meter_provider)
    durations = [
        meter.create_histogram(
            f"rpc.{side}.call.duration",
            "s",
            f"How long calls take at the {side}.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        for side in ("client", "server")
    ]
    getter = _getter()

    def begin(call: CallInfo) -> Followed:
        at_server = isinstance(call, ServerCall)
        service, _, method = call.method.rpartition(".")
        name = f"{service}/{method}"
        attributes = {"rpc.system.name": "nearcall", "rpc.method": name}
        carries = propagator or propagate.get_global_textmap()
        parent = carries.extract(call.context.metadata, getter=getter) if isinstance(call, ServerCall) else None
        kind = trace.SpanKind.SERVER if at_server else trace.SpanKind.CLIENT
        span = tracer.start_span(name, parent, kind, attributes)
        surroundings = trace.set_span_in_context(span, parent)
        if isinstance(call, ClientCall):
            carries.inject(call.metadata, surroundings, setter=_setter())
        elif isinstance(call, ServerCall) and span.is_recording():
            address = call.context.peer.get("address")
            if address is not None:
                span.set_attribute("network.peer.address", str(address))
        return _Traced(call, span, surroundings, durations[at_server], attributes)

    return follow(begin)


class _Traced(Followed):
    """A call and its span."""

    def __init__(
        self, call: CallInfo, span: Span, surroundings: Any, duration: Histogram, attributes: dict[str, str]
    ) -> None:
        super().__init__(call)
        self._span = span
        self._surroundings = surroundings
        self._duration = duration
        self._attributes = attributes

    def step(self) -> AbstractContextManager[object]:
        return _attached(self._surroundings)

    def ended(self, code: StatusCode, seconds: float, error: BaseException | None) -> None:
        from opentelemetry.trace import Status
        from opentelemetry.trace import StatusCode as SpanStatus

        attributes = {**self._attributes, "rpc.response.status_code": code.name}
        failed = code in _SERVER_FAULTS if isinstance(self.call, ServerCall) else code != StatusCode.OK
        if failed:
            attributes["error.type"] = code.name
        span = self._span
        if span.is_recording():
            span.set_attributes(attributes)
            if failed:
                span.set_status(Status(SpanStatus.ERROR, str(error) if isinstance(error, Exception) else code.name))
                if isinstance(error, Exception):
                    span.record_exception(error)
        span.end()
        self._duration.record(seconds, attributes)


@contextmanager
def _attached(surroundings: Any) -> Generator[None, None, None]:
    from opentelemetry import context

    token = context.attach(surroundings)
    try:
        yield
    finally:
        context.detach(token)


def _getter() -> Any:
    """Reads metadata for a propagator. Made when first needed, because its base class is OpenTelemetry's."""
    from opentelemetry.propagators.textmap import Getter

    class _MetadataGetter(Getter[Metadata]):
        def get(self, carrier: Metadata, key: str) -> list[str] | None:
            # A peer may send anything under any key; a propagator expects text.
            return [value for value in carrier.getall(key.lower()) if isinstance(value, str)] or None

        def keys(self, carrier: Metadata) -> list[str]:
            return list(carrier)

    return _MetadataGetter()


def _setter() -> Any:
    """Writes metadata for a propagator."""
    from opentelemetry.propagators.textmap import Setter

    class _MetadataSetter(Setter[Any]):
        def set(self, carrier: dict[str, str | bytes], key: str, value: str) -> None:
            carrier[key.lower()] = value

    return _MetadataSetter()
