"""The study's own method, of which only some results remain, since they overwrite each other.

The study stores what it measures under the name of the server alone, so that only the last benchmark of each server
survives: ten threads with a hundred requests each. Its tables of connection times and of latencies show only that run.
"""

from __future__ import annotations

import logging
import socket
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from nearcall_lab.studies.replica import Findings, main
from nearcall_lab.studies.serving import server_process

CLIENTS = 10
REQUESTS = 100
SEQUENTIAL = 1000


def serve_rpyc(kind: str, ready: Callable[[Any], None]) -> None:
    """RPyC's threaded or forking server; one method that returns a string."""
    import rpyc
    from rpyc.utils import server as servers

    class Bench(rpyc.Service):  # type: ignore[misc]
        def exposed_ping(self) -> str:
            return "pong"

    logging.disable(logging.CRITICAL)
    make = servers.ForkingServer if kind == "forking" else servers.ThreadedServer
    server = make(Bench, hostname="127.0.0.1", port=0)
    # The server listens only once `start` runs, which does not return.
    threading.Thread(target=lambda: ready(when_listening(server)), daemon=True).start()
    server.start()


def serve_flask(ready: Callable[[Any], None]) -> None:
    """Flask's development server, threaded."""
    import flask
    from werkzeug.serving import make_server

    app = flask.Flask("bench")
    logging.disable(logging.CRITICAL)

    @app.route("/ping")  # type: ignore[untyped-decorator]
    def ping() -> flask.Response:
        return flask.jsonify({"response": "pong"})

    server = make_server("127.0.0.1", 0, app, threaded=True)
    ready(server.port)
    server.serve_forever()


def when_listening(server: Any) -> int:
    """Returns the port once the server listens there.

    It checks the listening socket and does not connect: a forked server would inherit both ends of the connection, and
    never end.
    """
    while not server.listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        time.sleep(0.001)
    return int(server.port)


def rpyc_client(port: int) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """A function that connects, and one that makes a request."""
    import rpyc

    return lambda: rpyc.connect("127.0.0.1", port), lambda connection: connection.root.ping()


def http_client(port: int) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """The study's "connection" is an object that has not connected to anything yet."""
    import requests

    url = f"http://127.0.0.1:{port}/ping"
    return requests.Session, lambda session: session.get(url).json()


def concurrent(connect: Callable[[], Any], request: Callable[[Any], object]) -> tuple[list[float], list[float], float]:
    """Ten threads: seconds to connect, seconds per request, seconds for all. Measured with the wall clock, as in the
    study.
    """
    connections: list[float] = []
    latencies: list[float] = []
    lock = threading.Lock()

    def client() -> None:
        begin = time.time()
        connection = connect()
        connected = time.time() - begin
        mine = []
        for _ in range(REQUESTS):
            begin = time.time()
            request(connection)
            mine.append(time.time() - begin)
        with lock:
            connections.append(connected)
            latencies.extend(mine)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    begin = time.time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return connections, latencies, time.time() - begin


def run(findings: Findings, scale: float) -> None:
    """All three servers."""
    sequential = max(100, round(SEQUENTIAL * scale))

    def row(name: str, serve: Callable[..., None], arguments: tuple[Any, ...], make: Any) -> None:
        with server_process(serve, *arguments) as port:
            connect, request = make(port)
            one = connect()
            request(one)
            connections, latencies, seconds = concurrent(connect, request)
            ms = [value * 1e3 for value in connections]
            findings.put("connection", name, [statistics.fmean(ms), statistics.stdev(ms), min(ms), max(ms)])
            ms = sorted(value * 1e3 for value in latencies)
            percentiles = [ms[int(len(ms) * share)] for share in (0.5, 0.95, 0.99)]
            findings.put("latency", name, [statistics.fmean(ms), *percentiles, statistics.stdev(ms)])
            findings.put("concurrency", name, [len(ms), CLIENTS * REQUESTS - len(ms), seconds])
            begin = time.perf_counter()
            for _ in range(sequential):
                request(one)
            alone = (time.perf_counter() - begin) / sequential * 1e3
            findings.check(
                "overwritten",
                **{f"{name}, ten threads, ms": statistics.fmean(ms), f"{name}, one after the other, ms": alone},
            )
            one.close()
            if name == "HTTP threaded":
                made, replied = [], []
                for _ in range(100):
                    begin = time.perf_counter()
                    session = connect()
                    made.append(time.perf_counter() - begin)
                    request(session)
                    replied.append(time.perf_counter() - begin)
                    session.close()
                findings.check(
                    "no connection",
                    object_made_ms=statistics.median(made) * 1e3,
                    first_reply_ms=statistics.median(replied) * 1e3,
                )
            else:
                trips = round_trips(port, sequential)
                findings.check("two round trips", **{f"{name}, {key}": value for key, value in trips.items()})
                if name == "RPyC threaded":
                    for nodelay in (False, True):
                        single, twice = with_nodelay(port, nodelay, sequential)
                        word = "on" if nodelay else "off"
                        findings.check(
                            "nodelay",
                            **{
                                f"client's TCP_NODELAY {word}, one call": single,
                                f"client's TCP_NODELAY {word}, a call not waited for and one behind it": twice,
                            },
                        )
                    findings.check("pickle", **without_pickle(port))

    clocks = {"wall": time.get_clock_info("time"), "monotonic": time.get_clock_info("perf_counter")}
    findings.check("clock", **{name: float(info.adjustable) for name, info in clocks.items()})
    findings.attempt("RPyC threaded", lambda: row("RPyC threaded", serve_rpyc, ("threaded",), rpyc_client))
    findings.attempt("RPyC forking", lambda: row("RPyC forking", serve_rpyc, ("forking",), rpyc_client))
    findings.attempt("HTTP threaded", lambda: row("HTTP threaded", serve_flask, (), http_client))


def round_trips(port: int, calls: int) -> dict[str, float]:
    """``conn.root.ping()`` fetches the attribute and then calls it; with the method fetched once, a call is one round
    trip.
    """
    import rpyc

    connection = rpyc.connect("127.0.0.1", port)
    ping = connection.root.ping

    def mean_ms(work: Callable[[], object]) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - begin) / calls * 1e3

    times = {"as called, ms": mean_ms(lambda: connection.root.ping()), "method at hand, ms": mean_ms(ping)}
    connection.close()
    return times


def with_nodelay(port: int, nodelay: bool, calls: int) -> tuple[float, float]:
    """Median milliseconds of one call, and of a call right behind one that is not waited for."""
    import rpyc

    stream = rpyc.SocketStream.connect("127.0.0.1", port, nodelay=nodelay)
    connection = rpyc.connect_stream(stream)
    ping = connection.root.ping
    one_way = rpyc.async_(ping)

    def median_ms(work: Callable[[], object]) -> float:
        times = []
        for _ in range(calls):
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e3

    def twice() -> None:
        one_way()
        ping()

    found = median_ms(ping), median_ms(twice)
    connection.close()
    return found


def without_pickle(port: int) -> dict[str, float]:
    """A connection that may not pickle, and how often this process pickled anything all the same."""
    import rpyc
    from rpyc.core import protocol

    pickled = 0
    real = protocol.pickle

    class Counting:
        def __getattr__(self, name: str) -> Any:
            nonlocal pickled
            pickled += 1
            return getattr(real, name)

    protocol.pickle = Counting()
    try:
        connection = rpyc.connect("127.0.0.1", port, config={"allow_pickle": False})
        replies = sum(connection.root.ping() == "pong" for _ in range(REQUESTS))
        connection.close()
    finally:
        protocol.pickle = real
    return {
        f"of {REQUESTS} calls with allow_pickle=False, answered rightly": float(replies),
        "uses of pickle by RPyC's protocol in this client meanwhile": float(pickled),
    }


if __name__ == "__main__":
    main(run)
