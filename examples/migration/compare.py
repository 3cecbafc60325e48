"""Measures what the pages about Pyro5, RPyC, pyzmq and multiprocessing say, in turns with nearcall on this machine.

    python examples/migration/compare.py [ROUNDS [COUNT]]

Client and server are processes of their own, over TCP where nothing else is said. Each round measures every row once,
so that what disturbs the machine disturbs all; printed are the median of the rounds, and the lowest and highest.
"""

import contextlib
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Iterator

import nearcall
from nearcall import route

HOST = "127.0.0.1"
TYPE = 1000


@nearcall.service
class Peer:
    def __init__(self):
        self._seen = 0

    def items(self, count: int) -> Iterator[int]:
        yield from range(count)

    def all(self, count: int) -> list[int]:
        return list(range(count))

    @nearcall.oneway
    def push(self, message: bytes) -> None:
        self._seen += 1

    def seen(self) -> int:
        return self._seen

    def job(self, number: int) -> int:
        return number * number


def serve_nearcall(pipe, url):
    nearcall.serve(Peer(), url, on_ready=lambda server: pipe.send(server.urls[0]))


def serve_pyro5(pipe):
    import Pyro5.api

    @Pyro5.api.expose
    class Items:
        def items(self, count):
            yield from range(count)

    with Pyro5.api.Daemon(host=HOST) as daemon:
        pipe.send(str(daemon.register(Items)))
        daemon.requestLoop()


def serve_rpyc(pipe):
    import rpyc
    from rpyc.utils.server import ThreadedServer

    class Lists(rpyc.Service):
        def exposed_all(self, count):
            return list(range(count))

    server = ThreadedServer(Lists, hostname=HOST, port=0)
    serving = threading.Thread(target=server.start)
    serving.start()
    while not server.active:
        time.sleep(0.01)
    pipe.send(server.port)
    serving.join()


def serve_zmq(pipe):
    import zmq

    context = zmq.Context()
    pulled, done = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pipe.send([socket.bind_to_random_port(f"tcp://{HOST}") for socket in (pulled, done)])
    while True:
        if pulled.recv() == b"last":
            done.send(b"done")


def serve_route(pipe):
    node = route.Node(f"tcp://{HOST}:0")
    seen = [0]

    @node.on(TYPE)
    def count(message):
        if message.payload == b"last":
            message.reply(b"done")
        seen[0] += 1

    with node:
        pipe.send(node.urls[0])
        pipe.recv()


@contextlib.contextmanager
def started(target, *arguments):
    """A server in a process of its own, and what it says of where it is."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def square(number):
    return number * number


def cases(stack, count):
    """Each row: what is done, with what, and a function that does it ``count`` times."""
    tcp = nearcall.connect(stack.enter_context(started(serve_nearcall, f"tcp://{HOST}:0")), Peer)
    shm = nearcall.connect(stack.enter_context(started(serve_nearcall, "shm://example-compare")), Peer)
    peers = {"nearcall": tcp.service, "nearcall, shm": shm.service}

    def pushes(peer):
        before = peer.seen()
        for _ in range(count):
            peer.push(b"a measurement")
        while peer.seen() < before + count:
            pass

    def jobs(peer):
        calls = [nearcall.start(peer.job, number) for number in range(count)]
        assert sum(call.result() for call in calls) >= 0

    with contextlib.suppress(ImportError):
        import Pyro5.api

        proxy = stack.enter_context(Pyro5.api.Proxy(stack.enter_context(started(serve_pyro5))))
        yield "an item of a stream", "Pyro5", lambda: list(proxy.items(count))
    for name, peer in peers.items():
        yield "an item of a stream", name, lambda peer=peer: list(peer.items(count))
    with contextlib.suppress(ImportError):
        import rpyc

        conn = rpyc.connect(HOST, stack.enter_context(started(serve_rpyc)))
        stack.callback(conn.close)
        yield "an item of a list that is iterated", "RPyC, netref", lambda: list(conn.root.all(count))
        yield (
            "an item of a list that is iterated",
            "RPyC, buffiter",
            lambda: list(rpyc.buffiter(conn.root.all(count), 100)),
        )
    for name, peer in peers.items():
        yield "an item of a list that is iterated", name, lambda peer=peer: list(peer.all(count))
    with contextlib.suppress(ImportError):
        import zmq

        ports = stack.enter_context(started(serve_zmq))
        context = stack.enter_context(zmq.Context())
        pushed, done = (stack.enter_context(context.socket(kind)) for kind in (zmq.PUSH, zmq.PULL))
        pushed.connect(f"tcp://{HOST}:{ports[0]}")
        done.connect(f"tcp://{HOST}:{ports[1]}")

        def push_zmq():
            for _ in range(count - 1):
                pushed.send(b"a measurement")
            pushed.send(b"last")
            done.recv()

        yield "a message one way", "pyzmq, PUSH/PULL", push_zmq
    for name, peer in peers.items():
        yield "a message one way", f"{name}, one-way call", lambda peer=peer: pushes(peer)
    receiver = stack.enter_context(started(serve_route))
    node = stack.enter_context(route.Node(f"tcp://{HOST}:0"))
    node.install(f"newrt|start|t\nrte|{TYPE}|{receiver}\nnewrt|end|1\n")
    node.ready(timeout=20)

    def push_route():
        for _ in range(count - 1):
            node.send(TYPE, b"a measurement")
        node.call(TYPE, b"last", timeout=60)

    yield "a message one way", "nearcall.route", push_route
    pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(1))
    yield "a job", "multiprocessing, Pool.map, chunks of 1", lambda: pool.map(square, range(count), chunksize=1)
    yield "a job", "multiprocessing, Pool.map", lambda: pool.map(square, range(count))
    for name, peer in peers.items():
        yield "a job", f"{name}, started calls", lambda peer=peer: jobs(peer)


def main(rounds=5, count=2000):
    with contextlib.ExitStack() as stack:
        rows = [(what, which, run, []) for what, which, run in cases(stack, count)]
        for _ in range(rounds):
            for _, _, run, taken in rows:
                begun = time.perf_counter()
                run()
                taken.append((time.perf_counter() - begun) / count * 1e6)
        print("microseconds each, median [lowest–highest]")
        for what, which, _, taken in rows:
            print(f"{what:36}{which:40}{statistics.median(taken):8.2f} [{min(taken):.2f}–{max(taken):.2f}]")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
