"""A census of bytes with multiprocessing: a pool, a queue for progress, shared memory, a managed object, a pipe.

    python before.py

It prints::

    progress: 4 of 4
    zeros: 125000, ones: 250000
    in the ledger: ['part 0', 'part 1', 'part 2', 'part 3']
    a clerk says: 3 words
    a clerk failed: ValueError: nothing to count
"""

import multiprocessing
from multiprocessing.managers import BaseManager
from multiprocessing.shared_memory import SharedMemory

SIZE = 1_000_000
PARTS = 4


class Ledger:
    """One object, which the processes share: it lives in a process of the manager's."""

    def __init__(self):
        self._entries = []

    def enter(self, entry):
        self._entries.append(entry)

    def entries(self):
        return sorted(self._entries)


class Office(BaseManager):
    pass


Office.register("Ledger", Ledger)


def begin(progress, ledger):
    """What a worker of the pool has: arguments cannot carry a queue."""
    global PROGRESS, LEDGER
    PROGRESS, LEDGER = progress, ledger


def census(job):
    name, part = job
    memory = SharedMemory(name)
    try:
        first = part * SIZE // PARTS
        counted = bytes(memory.buf[first : first + SIZE // PARTS])
        LEDGER.enter(f"part {part}")
        PROGRESS.put(part)
        return counted.count(0), counted.count(1)
    finally:
        memory.close()


def clerk(pipe):
    """A helper with a protocol of its own: a tuple says what is wanted, another one what came of it."""
    while (message := pipe.recv()) is not None:
        kind, text = message
        try:
            if kind == "words":
                if not text:
                    raise ValueError("nothing to count")
                pipe.send(("ok", len(text.split())))
        except Exception as error:  # or the other side waits for ever
            pipe.send(("failed", error))


def take_census(context):
    memory = SharedMemory(create=True, size=SIZE)
    try:
        memory.buf[:] = bytes([0, 1, 1, 2, 3, 4, 5, 6]) * (SIZE // 8)
        progress = context.Queue()
        with Office(ctx=context) as office:
            ledger = office.Ledger()
            with context.Pool(2, begin, (progress, ledger)) as pool:
                results = pool.imap_unordered(census, [(memory.name, part) for part in range(PARTS)])
                zeros, ones = map(sum, zip(*results, strict=True))
            done = [progress.get() for _ in range(PARTS)]
            print(f"progress: {len(done)} of {PARTS}")
            print(f"zeros: {zeros}, ones: {ones}")
            print("in the ledger:", ledger.entries())
    finally:
        memory.close()
        memory.unlink()  # or it stays until the machine is restarted


def ask_a_clerk(context):
    ours, theirs = context.Pipe()
    process = context.Process(target=clerk, args=(theirs,))
    process.start()
    for text in ("one two three", ""):
        ours.send(("words", text))
        outcome, value = ours.recv()
        if outcome == "ok":
            print(f"a clerk says: {value} words")
        else:
            print(f"a clerk failed: {type(value).__name__}: {value}")
    ours.send(None)
    process.join()


if __name__ == "__main__":
    spawning = multiprocessing.get_context("spawn")
    take_census(spawning)
    ask_a_clerk(spawning)
