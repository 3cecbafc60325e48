"""The other machines of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

import msgspec

from nearcall_lab.engine import launch
from nearcall_lab.engine.launch import Measure
from nearcall_lab.environment import Environment
from nearcall_lab.hosts.connection import Connection, Session
from nearcall_lab.hosts.problem import HostFailed
from nearcall_lab.hosts.server import Server
from nearcall_lab.hosts.ship import cargo_for
from nearcall_lab.registry import Entrant, stays_here
from nearcall_lab.results.model import HostInfo
from nearcall_lab.scenario.cell import Cell
from nearcall_lab.scenario.host import host_of
from nearcall_lab.scenario.load import Planned
from nearcall_lab.workers.crew import Crew
from nearcall_lab.workers.worker import Unsupported

_MOST_CONNECTIONS = 3
"""To one machine, in a run: one that keeps breaking is given up."""


class Hosts:
    """Connects to each when the first launch needs it, and ends all of it in the end. A context manager."""

    def __init__(self, planned: Sequence[Planned], tell: Callable[[HostInfo], None] = lambda info: None) -> None:
        """`tell` is given what is known of a machine once a server has run there."""
        self._entrants: dict[str, dict[str, Entrant]] = {}
        for each in planned:
            if each.cell.host and not each.problem and not stays_here(each.entrant):
                self._entrants.setdefault(each.cell.host, {})[each.entrant.mechanism.name] = each.entrant
        self._tell = tell
        self._connections: dict[str, Connection] = {}
        self._made: dict[str, int] = {}
        self._failed: dict[str, HostFailed] = {}

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    @contextmanager
    def fresh_processes(self, cells: Sequence[Cell], entrant: Entrant) -> Iterator[Measure]:
        """As `engine.launch.fresh_processes`, with the server on the machine that the cells name."""
        url = cells[0].host
        if not url:
            with launch.fresh_processes(cells, entrant) as measure:
                yield measure
            return
        if reason := stays_here(entrant):
            raise Unsupported(reason)
        connection = self._connection(url)
        # Before the launch begins: what the lab starts while one runs is taken for the mechanism's.
        session = connection.start_agent()
        try:
            start = functools.partial(self._start, url, connection, session, entrant)
            with launch.fresh_processes(cells, entrant, start) as measure:
                yield measure
        finally:
            connection.end(session)

    def _start(self, url: str, connection: Connection, session: Session, entrant: Entrant, crew: Crew) -> Server:
        server = Server(connection, session, entrant, crew)
        self._tell(
            HostInfo(
                url,
                connection.address,
                msgspec.convert(server.environment, Environment),
                server.placement,
                connection.remark(),
            )
        )
        return server

    def _connection(self, url: str) -> Connection:
        found = self._connections.get(url)
        if found is not None and found.alive():
            return found
        if url in self._failed:
            raise self._failed[url]
        if found is not None:
            self._connections.pop(url).close()
        try:
            if self._made.get(url, 0) >= _MOST_CONNECTIONS:
                what = f"the connection broke {_MOST_CONNECTIONS} times"
                raise HostFailed(host_of(url), "connect", what, "it is not tried again in this run")
            self._made[url] = self._made.get(url, 0) + 1
            self._connections[url] = Connection(host_of(url), cargo_for(list(self._entrants[url].values())))
        except HostFailed as failure:  # what could not be made ready once, is not tried for each cell anew
            self._failed[url] = failure
            raise
        return self._connections[url]
