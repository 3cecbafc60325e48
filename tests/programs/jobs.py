"""A job system: clients and runners with certificates, jobs in a database, metrics, restarts that no job notices.

Written from the pages of docs/ alone: security (TLS), guide/workers, guide/applications, guide/streams, guide/failures,
guide/reconnecting, observability. Run by test_jobs.py, and by hand:

    nearcall dev-certs certs 127.0.0.1
    python jobs.py serve tls://127.0.0.1:7443 certs jobs.sqlite 127.0.0.1:9100
    python jobs.py work tls://127.0.0.1:7443 certs                     (as often as you like)
    python jobs.py submit tls://127.0.0.1:7443 certs 8 9 10
"""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import nearcall


class State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass
class Job:
    id: str
    number: int


@dataclass
class Status:
    state: State
    result: int | None = None
    error: str | None = None
    attempts: int = 0


class NoSuchJob(nearcall.NotFound):
    """The caller has no job of this id."""


class Store:
    """Jobs in a database, which all worker processes of the server share."""

    SCHEMA = """
        CREATE TABLE IF NOT EXISTS jobs (
            id TEXT PRIMARY KEY, owner TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'waiting',
            result INTEGER, error TEXT, attempts INTEGER NOT NULL DEFAULT 0, until REAL NOT NULL DEFAULT 0)"""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connections = threading.local()
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute(self.SCHEMA)

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's: each handler's thread has its own."""
        found: sqlite3.Connection | None = getattr(self._connections, "own", None)
        if found is None:
            found = self._connections.own = sqlite3.connect(self._path, timeout=20, isolation_level=None)
        return found

    def add(self, job: Job, owner: str) -> None:
        self.connection.execute(
            "INSERT INTO jobs (id, owner, number) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (job.id, owner, job.number)
        )

    def status(self, id: str, owner: str) -> Status:
        found: tuple[str, int | None, str | None, int] | None = self.connection.execute(
            "SELECT state, result, error, attempts FROM jobs WHERE id = ? AND owner = ?", (id, owner)
        ).fetchone()
        if found is None:
            raise NoSuchJob(f"you have no job {id}")
        return Status(State(found[0]), *found[1:])

    def take(self, lease: float) -> Job | None:
        """A job that waits, or whose runner has not been heard of for its lease."""
        now = time.time()
        found: tuple[str, int] | None = self.connection.execute(
            """UPDATE jobs SET state = 'running', attempts = attempts + 1, until = ? WHERE id = (
                 SELECT id FROM jobs WHERE state = 'waiting' OR (state = 'running' AND until < ?) LIMIT 1)
               RETURNING id, number""",
            (now + lease, now),
        ).fetchone()
        return found and Job(*found)

    def finish(self, id: str, result: int | None, error: str | None) -> None:
        state = State.DONE if error is None else State.FAILED
        self.connection.execute(
            "UPDATE jobs SET state = ?, result = ?, error = ? WHERE id = ? AND state = 'running'",
            (state.value, result, error, id),
        )


def caller() -> str:
    """Who calls, as its certificate says."""
    subject: object = nearcall.context().peer.get("subject")
    if not isinstance(subject, str):
        raise nearcall.Unauthenticated("come with a certificate")
    return subject


@nearcall.service
class Jobs:
    """For those who have jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @nearcall.idempotent
    def submit(self, job: Job, *, owner: str = nearcall.depends(caller)) -> None:
        """Adds a job under an id of the caller's choice: sent twice, it is one."""
        self._store.add(job, owner)

    @nearcall.idempotent
    def status(self, id: str, *, owner: str = nearcall.depends(caller)) -> Status:
        return self._store.status(id, owner)

    def follow(self, id: str, *, owner: str = nearcall.depends(caller)) -> Iterator[Status]:
        """Each new status, until the job is over."""
        before = None
        while before is None or before.state in (State.WAITING, State.RUNNING):
            now = self._store.status(id, owner)
            if now != before:
                yield now
                before = now
            else:
                time.sleep(0.02)


@nearcall.service
class Runs:
    """For those who run jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def take(self, lease: float = 5.0) -> Job | None:
        """A job, if there is one. Not idempotent: one whose reply is lost comes back when its lease is over."""
        return self._store.take(lease)

    @nearcall.idempotent
    def finish(self, id: str, result: int | None = None, error: str | None = None) -> None:
        self._store.finish(id, result, error)


def tls(certs: str, *, server: bool = False) -> nearcall.TLS:
    folder = Path(certs)
    if server:
        return nearcall.TLS(cert=folder / "server.pem", key=folder / "server.key", client_ca=folder / "ca.pem")
    return nearcall.TLS(cert=folder / "client.pem", key=folder / "client.key", ca=folder / "ca.pem")


def serve(url: str, certs: str, database: str, metrics: str) -> None:
    def lifespan(server: nearcall.Server) -> Iterator[None]:
        with nearcall.observe.prometheus_page(server, metrics):
            yield

    Store(database).connection.close()  # made once: two workers that make it at a time may find it locked
    nearcall.serve(
        lambda: Jobs(Store(database)),  # each worker process makes its own
        lambda: Runs(Store(database)),
        url,
        workers=2,
        tls=tls(certs, server=True),
        interceptors=[nearcall.observe.prometheus()],
        lifespan=lifespan,
    )


def fibonacci(number: int) -> int:
    if number < 0:
        raise ValueError(f"there is no Fibonacci number {number}")
    a, b = 0, 1
    for _ in range(number):
        a, b = b, a + b
    return a


def work(url: str, certs: str) -> None:
    """Runs jobs until it is ended. A server that restarts is waited for."""
    with nearcall.Channel(url, tls=tls(certs), wait_for_ready=True, timeout=30) as channel:
        runs = channel.client(Runs).service
        while True:
            try:
                job = runs.take(lease=2.0)
            except nearcall.Unavailable:  # the worker process died with the call: the lease brings the job back
                continue
            if job is None:
                time.sleep(0.02)
                continue
            try:
                runs.finish(job.id, result=fibonacci(job.number))
            except ValueError as error:
                runs.finish(job.id, error=str(error))


def outcome(jobs: Jobs, id: str) -> Status:
    """The last status of a job. A stream ends with the worker process that sends it, and is asked for again."""
    while True:
        try:
            *_, last = jobs.follow(id)
        except nearcall.Unavailable:
            continue
        return last


def submit(url: str, certs: str, *numbers: str) -> None:
    with nearcall.connect(url, Jobs, tls=tls(certs), wait_for_ready=True, timeout=30) as jobs:
        sent = [Job(uuid.uuid4().hex, int(number)) for number in numbers]
        for job in sent:
            jobs.submit(job)
        for job in sent:
            last = outcome(jobs, job.id)
            print(job.number, last.error if last.result is None else last.result, flush=True)


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command == "serve":
        serve(*words)
    elif command == "work":
        work(*words)
    else:
        submit(*words)
