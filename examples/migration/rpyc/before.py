"""A log index with RPyC: objects that stay at the server, a callback, a call that is waited for later, a deadline.

    python before.py serve
    python before.py

It prints::

    indexed 2 files
    a.log:2 error: disk full
    b.log:1 error: no route
    2 hits
    counted meanwhile: 5
    b.log has 2 lines, the first is 'error: no route'
    too slow
    refused: KeyError
"""

import sys
import time

import rpyc
from rpyc.utils.server import ThreadedServer

ADDRESS = "127.0.0.1:7103"

FILES = {
    "a.log": ["start", "error: disk full", "stop"],
    "b.log": ["error: no route", "stop"],
}


@rpyc.service
class File:
    def __init__(self, name, lines):
        self._name = name
        self._lines = lines

    @rpyc.exposed
    def name(self):
        return self._name

    @rpyc.exposed
    def lines(self):
        return self._lines  # arrives as a netref: every use of it is a round trip


@rpyc.service
class Index(rpyc.Service):
    """Of this class each connection has an object of its own."""

    def on_connect(self, conn):
        self._files = {}

    @rpyc.exposed
    def add(self, files):
        # What came is the client's dict, and every look at it asks the client: so it is copied.
        self._files.update({name: list(files[name]) for name in list(files)})
        return len(self._files)

    @rpyc.exposed
    def search(self, word, found):
        hits = 0
        for name, lines in self._files.items():
            for number, line in enumerate(lines, 1):
                if word in line:
                    hits += 1
                    found(name, number, line)
        return hits

    @rpyc.exposed
    def count(self):
        return sum(len(lines) for lines in self._files.values())

    @rpyc.exposed
    def open(self, name):
        return File(name, self._files[name])

    @rpyc.exposed
    def compact(self, seconds):
        time.sleep(seconds)


def serve():
    host, _, port = ADDRESS.partition(":")
    ThreadedServer(Index, hostname=host, port=int(port)).start()


def ask():
    host, _, port = ADDRESS.partition(":")
    # Without this the server may not iterate the dict that it is given.
    conn = rpyc.connect(host, int(port), config={"allow_public_attrs": True})
    index = conn.root
    print("indexed", index.add(FILES), "files")
    hits = index.search("error", lambda name, number, line: print(f"{name}:{number} {line}"))
    print(hits, "hits")
    counting = rpyc.async_(index.count)()
    counting.wait()
    print("counted meanwhile:", counting.value)
    file = index.open("b.log")
    lines = file.lines()
    print(f"{file.name()} has {len(lines)} lines, the first is {lines[0]!r}")
    slow = rpyc.timed(index.compact, 0.1)(1.0)
    try:
        slow.wait()
    except TimeoutError:
        print("too slow")
    try:
        index.open("c.log")
    except KeyError as error:
        print("refused:", type(error).__name__)
    conn.close()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else ask()
