"""A page with the metrics of Prometheus, for all workers of a server at one address."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from ..log import WARNING, log
from ..options.names import checks_names
from .sums import Places, Said, noted

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["prometheus_page"]

_LAST_ANSWERS = 2.0
"""Seconds that answers under way have when the page ends. Colleagues are asked for one."""
_LOOK = 0.2
"""Seconds after which the page looks whether it is to end."""


@contextmanager
@checks_names
def prometheus_page(server: Any, address: str, registry: CollectorRegistry | None = None) -> Generator[str, None, None]:
    """Serves the metrics of this process by HTTP, for Prometheus to fetch; in a lifespan, say::

        def lifespan(server: nearcall.Server) -> Iterator[None]:
            with nearcall.observe.prometheus_page(server, "127.0.0.1:9100"):
                yield

    With ``workers`` all of them listen at the same address, and whichever answers shows the metrics of all: each with a
    label ``worker``, its number. Counters and histograms of a worker's successor go on where the worker's have ended,
    so that no sum ever falls; of what a killed worker has counted, the part is missing that nobody has fetched. A
    worker that does not answer within a second is shown with the counts that are known, and without its gauges.

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
    together = None if colleagues is None else _Together(colleagues, address, lambda: generate_latest(metrics).decode())

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                content = generate_latest(metrics) if together is None else together.page()
            except TimeoutError as error:
                self.send_error(503, str(error))
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Not logged."""

    web = _Web((host.strip("[]"), int(port)), Page, shared=together is not None)
    thread = threading.Thread(target=web.serve, name="nearcall-metrics", daemon=True)
    thread.start()
    if together is not None:
        # From then on the others do not hear this one: its calls may take long to end, and its successor is there.
        together.begin(web.over.set)
    try:
        yield f"http://{host}:{web.server_port}/metrics"
    finally:
        web.over.set()
        thread.join()
        web.wait()
        if together is not None:
            together.keep()


class _Together:
    """The metrics of all workers, as one of them knows them.

    Args:
        colleagues: The other workers.
        address: Of the page.
        own: Makes the text of this worker's own metrics.
    """

    def __init__(self, colleagues: Any, address: str, own: Callable[[], str]) -> None:
        self._colleagues = colleagues
        self._topic = f"prometheus {address}"
        self._make = own
        self._life: int = colleagues.kept.live()
        self._speaking = threading.Lock()

    def begin(self, leave: Callable[[], object]) -> None:
        """From now on this worker answers the others, until it is told to ``leave``."""

        def answer(_: float) -> bytes:
            return json.dumps(self._own()).encode()

        self._colleagues.answers[self._topic] = answer
        self._colleagues.leaving.append(leave)

    def page(self) -> bytes:
        """The page of all.

        Raises:
            TimeoutError: what is kept of the others cannot be read.
        """
        from prometheus_client import generate_latest

        answers = self._colleagues.ask(self._topic).values()
        said = [self._own(), *(Said(*json.loads(answer)) for answer in answers)]
        return generate_latest(Places(self._note(said), said))

    def keep(self) -> None:
        """Keeps what this worker has counted, for when it is gone."""
        try:
            self._note([self._own()])
        except Exception as error:
            log(WARNING, "what this worker has counted since Prometheus has asked is lost: %s", str(error))

    def _own(self) -> Said:
        # One after the other: who says something later has counted no less.
        with self._speaking:
            return Said(self._life, self._colleagues.number, time.monotonic(), self._make())

    def _note(self, said: list[Said]) -> dict[str, Any]:
        """Notes what workers have said of themselves. Returns what is known of all."""
        kept = self._colleagues.kept
        with kept.open() as content:
            book: dict[str, Any] = content.get(self._topic, {})
            content[self._topic] = book = noted(book, said, kept.lives)
        return book


class _Web(ThreadingHTTPServer):
    """An HTTP server; ``shared``: other processes may listen at the same address."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], *, shared: bool) -> None:
        self.over = threading.Event()
        """Set when it is to end."""
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

    def serve(self) -> None:
        """Answers until it is over, and then who has connected before. Who ends would reset their connections."""
        self.timeout = _LOOK
        while not self.over.is_set():
            self.handle_request()
        self.timeout, self._is_idle = 0, False
        while not self._is_idle:
            self.handle_request()
        self.server_close()

    def wait(self) -> None:
        """Waits for the answers under way."""
        until = time.monotonic() + _LAST_ANSWERS
        for thread in self._answering:
            thread.join(max(0.0, until - time.monotonic()))
