"""A page with the metrics of Prometheus, for all workers of a server at one address."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from ..options.names import checks_names

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["prometheus_page"]

_TOPIC = "prometheus"
_LAST_ANSWERS = 2.0
"""Seconds that answers under way have when the page ends. Colleagues are asked for one."""


@contextmanager
@checks_names
def prometheus_page(server: Any, address: str, registry: CollectorRegistry | None = None) -> Generator[str, None, None]:
    """Serves the metrics of this process by HTTP, for Prometheus to fetch; in a lifespan, say::

        def lifespan(server: nearcall.Server) -> Iterator[None]:
            with nearcall.observe.prometheus_page(server, "127.0.0.1:9100"):
                yield

    With ``workers`` all of them listen at the same address, and whichever answers shows the metrics of all: each with a
    label ``worker``, its number. The successor of a worker goes on under its number, from zero. A worker that does not
    answer within a second is left out of that page.

    Args:
        server: The server, as a lifespan gets it.
        address: ``"HOST:PORT"``; whoever reaches it can read the metrics.
        registry: The metrics; those of ``prometheus_client`` itself if not given.

    Yields:
        The URL of the page. A port of 0 is replaced by the one that the system chose; not for workers.

    Raises:
        ImportError: ``prometheus_client`` is not installed.
        OSError: the address cannot be had.
        ValueError: it is no ``"HOST:PORT"``.
    """
    try:
        from prometheus_client import REGISTRY, generate_latest
        from prometheus_client.exposition import CONTENT_TYPE_LATEST
    except ImportError:
        raise ImportError("prometheus_page needs its package: pip install nearcall[prometheus]") from None
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f'the address of a page of metrics is "HOST:PORT", not {address!r}')
    metrics = REGISTRY if registry is None else registry
    colleagues = server.colleagues

    def text() -> bytes:
        if colleagues is None:
            return generate_latest(metrics)
        pages = {colleagues.number: generate_latest(metrics)} | colleagues.ask(_TOPIC)
        return generate_latest(_Pages(dict(sorted(pages.items()))))

    def own(_: float) -> bytes:
        return generate_latest(metrics)

    if colleagues is not None:
        colleagues.answers[_TOPIC] = own

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = text()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Not logged."""

    web = _Web((host.strip("[]"), int(port)), Page, shared=colleagues is not None)
    thread = threading.Thread(target=web.serve_forever, name="nearcall-metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{web.server_port}/metrics"
    finally:
        web.finish()
        thread.join()


class _Web(ThreadingHTTPServer):
    """An HTTP server; ``shared``: other processes may listen at the same address."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], *, shared: bool) -> None:
        self._answering: list[threading.Thread] = []
        self._is_idle = False
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler, bind_and_activate=False)
        try:
            if shared:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self.server_bind()
            self.server_activate()
        except BaseException:
            self.server_close()
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread of its own, which does not hold up the process's end."""
        self._answering = [thread for thread in self._answering if thread.is_alive()]
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._answering.append(thread)
        thread.start()

    def handle_timeout(self) -> None:
        self._is_idle = True

    def finish(self) -> None:
        """Ends: who has connected before is answered. A worker that is replaced would reset their connections."""
        self.shutdown()
        self.timeout = 0
        while not self._is_idle:
            self.handle_request()
        self.server_close()
        until = time.monotonic() + _LAST_ANSWERS
        for thread in self._answering:
            thread.join(max(0.0, until - time.monotonic()))


class _Pages:
    """What ``generate_latest`` writes: the metrics of several pages, each with the number of its worker."""

    def __init__(self, pages: Mapping[int, bytes]) -> None:
        self._pages = pages

    def collect(self) -> Iterable[Metric]:
        """The metrics, each once."""
        from prometheus_client import Metric
        from prometheus_client.parser import text_string_to_metric_families

        found: dict[str, Metric] = {}
        for worker, page in self._pages.items():
            for family in text_string_to_metric_families(page.decode()):
                metric = found.get(family.name)
                if metric is None:
                    metric = found[family.name] = Metric(family.name, family.documentation, family.type)
                for sample in family.samples:
                    metric.add_sample(sample.name, sample.labels | {"worker": str(worker)}, sample.value)
        return found.values()
