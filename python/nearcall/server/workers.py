"""``nearcall.serve(..., workers=N)``: several processes behind one URL (docs/adr/0011-workers.md).

The parent binds the sockets, accepts the clients, and hands each to the worker with the fewest clients. It has no
threads and runs no code of the services, so that it can fork another worker at any time. Between the parent and a
worker there are

- the lifeline, a socket pair: through it the worker says once that it serves, or why it cannot; when the parent closes
  its end, or dies, the worker finishes its calls and ends;
- a channel for each URL, a socket pair through which the clients come;
- a counter of the worker's clients that have gone.

The workers share a memory (:mod:`.kept`), of which the parent knows nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import multiprocessing
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ..log import ERROR, INFO, WARNING, log
from ..options.checked import check_seconds, check_whole
from ..service.service import is_service
from .board import Question
from .health import ServerHealth
from .instances import is_made_per_client
from .kept import Kept
from .listening import OF_LISTENERS, listen, make_listeners
from .replacing import Place, Replacing
from .server import Server
from .signals import Terminal
from .worker import SLACK, Task, Worker, start_worker

__all__ = ["WorkerFailed", "Workers"]

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before a worker that died unsettled is replaced; each pause is twice the last."""
MOST_DEATHS = 5
"""How often in a row a worker may die unsettled while no other has settled."""
AT_ONCE = 64
"""Clients accepted at most before the parent looks after the workers again."""
ACCEPT_PAUSE = 0.1
"""Seconds without accepting after the system refused to accept a client."""


class WorkerFailed(RuntimeError):
    """A worker process could not begin to serve, or workers died at once again and again; the message says why.

    If the worker raised an exception, the cause of this one shows its traceback.
    """


class _WorkersTraceback(Exception):
    """Shows the text of a traceback from another process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


Refresh: TypeAlias = "Callable[[], tuple[Sequence[Callable[[], object]], dict[str, Any], Callable[[], dict[str, Any]]]]"
"""Reads the settings anew: what makes the objects, the options, what makes the late ones; raises if they are wrong."""


class Workers:
    """The worker processes of :func:`nearcall.serve`, as ``on_ready`` gets them."""

    def __init__(
        self,
        services_and_urls: Sequence[object],
        workers: int,
        grace: float,
        options: dict[str, Any],
        late_options: Callable[[], dict[str, Any]] = dict,
        refresh: Refresh | None = None,
    ) -> None:
        count = check_whole("workers", workers)
        self._asked = [item for item in services_and_urls if isinstance(item, str)]
        makers = [_check_maker(item) for item in services_and_urls if not isinstance(item, str)]
        if not makers:
            raise TypeError("there is nothing to serve: give a class that is a @nearcall.service")
        if not self._asked:
            raise ValueError("there is nowhere to serve: give a URL such as shm://name or tcp://127.0.0.1:7000")
        for url in self._asked:
            if url.startswith("inproc://"):
                raise ValueError(f"{url} reaches one process only: serve it without workers, or use shm://")
            if url.startswith(("fd://", "stdio:")):
                raise ValueError("fd:// and stdio: have one client: serve them without workers")
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "serve(..., workers=...) must be called in the main thread: it is told by signals to end"
            )
        inspect.signature(Server).bind_partial(**options)  # a misspelt name is a TypeError here, not in every worker
        of_listeners = {name: value for name, value in options.items() if name in OF_LISTENERS}
        of_servers = {name: value for name, value in options.items() if name not in OF_LISTENERS}
        self._listeners = make_listeners(self._asked, **of_listeners)
        self._urls: list[str] = []
        kept = Kept()
        self._task = Task(makers, self._urls, self._listeners, of_servers, late_options, grace, count, kept)
        self._earlier = self._task
        self._slots = [Place(number) for number in range(count)]
        self._replacing = Replacing(self._slots, self._start)
        self._refresh = refresh
        self._reload = self._reloading = False
        self.on_stopping: Callable[[], object] | None = None
        """Called when serving is to end; not for users."""
        self.on_reloading: Callable[[bool], object] | None = None
        """Called when workers begin to be replaced, and when that is over; not for users."""
        self._context = multiprocessing.get_context("fork")
        self._turns = itertools.count(1)
        self._begun = False
        self._not_accepting_until = 0.0
        self._signals = 0
        self._waker: tuple[socket.socket, socket.socket] | None = None
        self._said: dict[str, bool] = {}
        """The health that was set, by name, for new workers."""
        self._health = ServerHealth(self._say)

    @property
    def health(self) -> ServerHealth:
        """What all workers tell gRPC's health checks. Each of them can change it, too, as its ``server.health``: a
        ``lifespan`` gets that server.
        """
        return self._health

    @property
    def urls(self) -> list[str]:
        """Where the workers listen. A TCP port of 0 is replaced by the port that the system chose."""
        return list(self._urls)

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that serve."""
        return [worker.process.pid or 0 for worker in self._living() if worker.takes_clients]

    def __repr__(self) -> str:
        return f"<{len(self._slots)} nearcall workers at {', '.join(self._urls or self._asked)}>"

    def run(self, on_ready: Callable[[Workers], object] | None) -> None:
        """Serves until told to end.

        Raises:
            WorkerFailed: a worker could not begin to serve, or workers die at once again and again.
            AlreadyExists, InvalidArgument, OSError: as for :meth:`Server.start`.
        """
        try:
            listen(self._listeners, self._asked, self._urls)
            with self._heed_signals():
                try:
                    self._supervise(on_ready)
                finally:
                    if self.on_stopping is not None:
                        self.on_stopping()
                    self._stop()
        finally:
            self._listeners.close()
            self._task.kept.close()

    def _say(self, service: str, serving: bool) -> None:
        self._said[service] = serving
        for worker in self._living():
            worker.board.tell(service, serving)

    def _pass_on(self, asker: Worker, question: Question) -> None:
        with question.reply:
            for worker in self._living():
                if worker is not asker and worker.takes_clients:
                    worker.board.ask(question)

    def _supervise(self, on_ready: Callable[[Workers], object] | None) -> None:
        while not self._signals:
            self._fill()
            self._wait(self._until_next())
            self._look_after()
            self._replace()
            if not self._begun and all(slot.worker is not None and slot.worker.ready for slot in self._slots):
                self._begun = True
                if on_ready is not None:
                    on_ready(self)

    def _living(self) -> Iterator[Worker]:
        yield from (slot.worker for slot in self._slots if slot.worker is not None)
        yield from self._replacing.workers()

    # --- starting ---

    def _fill(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            if slot.worker is None and slot.not_before <= now:
                try:
                    slot.worker = self._start(slot, self._task)
                except OSError as error:
                    if not self._begun:
                        raise
                    log(WARNING, "cannot start worker %d: %s; trying again in a moment", slot.number, error)
                    slot.not_before = now + LONGEST_PAUSE

    def _start(self, place: Place, task: Task) -> Worker:
        worker = start_worker(self._context, place.number, task, self._inherited)
        worker.board.untold.update(self._said)
        return worker

    def _replace(self) -> None:
        """Goes on with a rolling restart, or begins one."""
        if self._reload and self._begun:
            self._reload = False
            self._tell_reloading(True)
            log(INFO, "told to reload: the workers are replaced, one after the other")
            task = self._fresh_task()
            if task is not None:
                self._earlier, self._task = self._task, task
                self._replacing.begin(task)
        if not self._replacing.step():
            self._task = self._earlier
        if self._reloading and not self._replacing.under_way:
            self._tell_reloading(False)

    def _tell_reloading(self, begins: bool) -> None:
        self._reloading = begins
        if self.on_reloading is not None:
            self.on_reloading(begins)

    def _fresh_task(self) -> Task | None:
        """The task by the settings of now; ``None`` if they are wrong."""
        if self._refresh is None:
            return self._task
        try:
            makers, options, late_options = self._refresh()
            grace = check_seconds("grace", options.pop("grace", 5.0), endless=True)
            return replace(
                self._task,
                makers=[_check_maker(item) for item in makers],
                options={name: value for name, value in options.items() if name not in OF_LISTENERS},
                late_options=late_options,
                grace=grace,
            )
        except Exception as error:
            log(ERROR, "the workers stay as they are, because the settings are wrong: %s", str(error))
            return None

    def _inherited(self) -> list[Callable[[], object]]:
        """What a newly forked worker must close: with these descriptors it would keep the other workers alive when the
        parent dies.
        """
        return [*(worker.forget for worker in self._living()), *(end.close for end in self._waker or ())]

    # --- waiting and accepting ---

    def _until_next(self) -> float | None:
        now = time.monotonic()
        times = [slot.not_before for slot in self._slots if slot.worker is None]
        if (look := self._replacing.until_next()) is not None:
            times.append(look)
        if self._not_accepting_until > now:
            times.append(self._not_accepting_until)
        return max(0.0, min(times) - now) if times else None

    def _wait(self, seconds: float | None) -> None:
        """Waits for clients, workers and signals, and accepts clients. The caller looks after the workers."""
        assert self._waker is not None
        poll = select.poll()
        poll.register(self._waker[0], select.POLLIN)
        takers: dict[int, Worker] = {}
        for worker in self._living():
            poll.register(worker.pidfd, select.POLLIN)
            if worker.board.open:
                poll.register(worker.board.end, select.POLLIN | (select.POLLOUT if worker.board.untold else 0))
            if not worker.ready:
                poll.register(worker.lifeline, select.POLLIN)
            if worker.takes_clients:
                takers[worker.channels[0].fileno()] = worker
                poll.register(worker.channels[0], 0)  # only to see that it was closed
        doors: dict[int, int] = {}
        if time.monotonic() >= self._not_accepting_until and takers and self._begun:
            # While no worker takes clients, they wait in the system's queue; so do those that come before all of the
            # first workers are ready, since the worker that is ready first would get them all.
            doors = {fileno: index for index, fileno in enumerate(self._listeners.filenos())}
            for fileno in doors:
                poll.register(fileno, select.POLLIN)
        events = poll.poll(None if seconds is None else math.ceil(seconds * 1000))
        with contextlib.suppress(BlockingIOError):
            self._waker[0].recv(4096)
        for fileno, _ in events:
            if fileno in takers:
                takers[fileno].leaving = True
        for fileno, _ in events:
            if fileno in doors and not self._signals:
                self._accept(doors[fileno])

    def _accept(self, index: int) -> None:
        for _ in range(AT_ONCE):
            try:
                client = self._listeners.accept(index)
            except OSError as error:
                log(WARNING, "cannot accept a client: %s; trying again in a moment", error)
                self._not_accepting_until = time.monotonic() + ACCEPT_PAUSE
                return
            if client is None:
                return
            try:
                self._hand_over(index, client)
            finally:
                os.close(client)

    def _hand_over(self, index: int, client: int) -> None:
        for worker in sorted((worker for worker in self._living() if worker.takes_clients), key=Worker.load):
            try:
                socket.send_fds(worker.channels[index], [b"\0"], [client])
            except OSError:
                continue  # it has just died, or takes no clients for the moment
            worker.clients += 1
            worker.turn = next(self._turns)
            return
        log(WARNING, "a client at %s was dropped: no worker takes it", self._urls[index])

    # --- looking after the workers ---

    def _look_after(self) -> None:
        for worker in list(self._living()):
            for message in worker.board.heard():
                if isinstance(message, Question):
                    self._pass_on(worker, message)
                else:
                    self._say(message.service, message.serving)
            worker.board.flush()
            if not worker.ready:
                worker.listen()
        for slot in self._slots:
            if slot.worker is not None and slot.worker.process.exitcode is not None:
                self._bury(slot, slot.worker)

    def _bury(self, slot: Place, worker: Worker) -> None:
        worker.listen()
        slot.worker = None
        worker.forget()
        died, told = worker.how_it_ended(), worker.failure()
        worker.process.close()
        if told is not None:
            died = f"worker {worker.number} could not begin to serve: {told[0]}"
        cause = None if told is None else _WorkersTraceback(told[1])
        if not self._begun and not worker.ready:
            raise WorkerFailed(died if told else f"{died} before it began to serve") from cause
        if worker.settled():
            slot.deaths = 0
        else:
            slot.deaths += 1
        if slot.deaths >= MOST_DEATHS and not any(other.settled() for other in self._living()):
            raise WorkerFailed(f"workers die at once again and again, {slot.deaths} times in a row; {died}") from cause
        pause = min(FIRST_PAUSE * 2 ** (slot.deaths - 1), LONGEST_PAUSE) if slot.deaths else 0.0
        slot.not_before = time.monotonic() + pause
        log(WARNING, "%s; another one is started%s", died, f" in {pause:.1f} s" if pause else "")

    # --- stopping ---

    def _stop(self) -> None:
        """Accepts no more clients, gives the workers the grace to finish, and kills those that do not end."""
        self._listeners.close()
        left = list(self._living())
        for worker in left:
            worker.let_go()
        signals = self._signals
        deadline = time.monotonic() + self._task.grace + SLACK
        for worker in left:
            # A further signal ends the waiting: the workers are killed at once.
            while worker.process.exitcode is None and self._signals == signals and time.monotonic() < deadline:
                poll = select.poll()
                poll.register(worker.pidfd, select.POLLIN)
                if self._waker is not None:
                    poll.register(self._waker[0], select.POLLIN)
                poll.poll(None if math.isinf(deadline) else max(0, math.ceil((deadline - time.monotonic()) * 1000)))
                if self._waker is not None:
                    with contextlib.suppress(BlockingIOError):
                        self._waker[0].recv(4096)
        for slot in self._slots:
            slot.worker = None
        self._replacing.forget()
        for worker in left:
            if worker.process.exitcode is None:
                in_time = self._signals == signals
                why = "did not end in time" if in_time else "was told again to end, and has calls under way"
                log(WARNING, "worker %d %s: it is killed", worker.number, why)
                worker.process.kill()
            worker.process.join()
            worker.process.close()
            worker.forget()

    @contextlib.contextmanager
    def _heed_signals(self) -> Generator[None, None, None]:
        """Counts SIGTERM and Ctrl-C instead of being interrupted by them, notes SIGHUP, and wakes from waiting."""
        terminal = Terminal()

        def note(number: int, frame: object) -> None:
            if number != signal.SIGHUP:
                self._signals += 1
            elif not terminal.hung_up():
                self._reload = True
            elif not terminal.ignored:
                self._signals += 1

        self._waker = socket.socketpair()
        for end in self._waker:
            end.setblocking(False)
        wakeup = signal.set_wakeup_fd(self._waker[1].fileno(), warn_on_full_buffer=False)
        heeded = [signal.SIGTERM, signal.SIGHUP]
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # as a script in the background has it
            heeded.append(signal.SIGINT)
        before = {number: signal.signal(number, note) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            for end in self._waker:
                end.close()
            self._waker = None


def _check_maker(item: object) -> Callable[[], object]:
    if is_made_per_client(item):
        return lambda: item  # each worker's server makes objects of it
    if is_service(type(item)):
        name = type(item).__name__
        raise TypeError(
            f"each worker makes an object of its own: give the class {name}, or a function that returns one"
        )
    if isinstance(item, type) and not is_service(item):
        raise TypeError(f"{item.__name__} is not a service: decorate it with @nearcall.service")
    if not callable(item):
        raise TypeError(f"{item!r} cannot be served: give a class that is a @nearcall.service")
    return item
