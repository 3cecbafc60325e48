"""One plugin as its host sees it: its state, and the transitions between states."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ...errors import Cancelled, FailedPrecondition, RpcError, Unavailable
from ...service.service import plan_of
from ...types.shown import shown
from ..inside.configuration import NOT_CONFINED
from ..manifests import sandboxing
from ..manifests.manifest import Manifest, ManifestError, read_manifest
from ..points.asking import Handler, Late
from ..points.settings import PluginEvent, Settings, State
from . import load
from .directories import Storage
from .load import Load
from .process import PluginProcess, environment
from .starting import Connecting, HopelessError, Lives, Run, command, decide, hand_over, make_ready, storage_of

if TYPE_CHECKING:
    from .watch import Watch

__all__ = ["Supervised"]

_CHUNK = 1 << 14
"""Bytes read from a pipe at a time."""
_REST = 1 << 18
"""Bytes read from a pipe after the process has ended: as much as may be left in the pipe, even if another process goes
on writing to it.
"""
_LONGEST_PAUSE = 30.0
"""Most seconds before a restart."""
_SETTLED = 60.0
"""Seconds of running after which a plugin's earlier crashes are forgotten."""
_ERRORS_EVERY = 1.0
"""Least seconds between two reports of errors of one plugin."""
_ENDING = 1.0
"""Seconds in which a plugin that is about to end has ended."""
_PROBE = 1.0
"""Seconds that a late plugin has to answer a probe."""
_LAST_WORDS = 1.0
"""Seconds to wait for the end of a process that has hung up, so that a message can say how it ended."""
_KILLED = 5.0
"""Seconds that the system may take for the end of a killed process."""


class Supervised:
    """One plugin. Any thread may use it.

    Args:
        manifest: The plugin's manifest.
        settings: The host's settings.
        watch: The thread that watches it.
        connecting: How to connect and call.
        tell: Called with each event.
        changed: Called when its handlers may have changed.
    """

    def __init__(
        self,
        manifest: Manifest,
        settings: Settings,
        watch: Watch,
        connecting: Connecting,
        tell: Callable[[PluginEvent], None],
        changed: Callable[[], None],
    ) -> None:
        self.manifest = manifest
        self.state: State = "stopped"
        self.run: Run | None = None
        self.settled = threading.Event()
        """Set when the plugin runs, or when it is clear that it does not; cleared while it starts."""
        self.answers: dict[str, bool] = {}
        """The answers of the user or the host about permissions."""
        self._settings = settings
        self._watch = watch
        self._connecting = connecting
        self._tell = tell
        self._changed = changed
        self._wanted = False
        self._lives = Lives()
        self._crashes: deque[float] = deque(maxlen=settings.restarts + 1)
        self._change = threading.RLock()
        self._last_error = 0.0
        self._errors_left_out = 0
        self._doubts = False
        """Whether a failed call is looked at later, because its plugin may be about to end."""

    @property
    def id(self) -> str:
        """The plugin's id."""
        return self.manifest.id

    def handlers(self) -> list[Handler]:
        """Its handlers, as long as it runs."""
        run = self.run
        return run.handlers if self.state == "running" and run is not None else []

    # Starting.

    def start(self) -> None:
        """Begins to start the plugin, if it is stopped or has failed, and forgets earlier crashes. Does not wait."""
        with self._change:
            self._wanted = True
            if self.state in ("stopped", "failed"):
                self._crashes.clear()
                self._begin()

    def _begin(self) -> None:
        self.state = "starting"
        self.settled.clear()
        threading.Thread(target=self._start, name=f"nearcall-start-{self.id}", daemon=True).start()

    def _start(self) -> None:
        try:
            decided = decide(self.manifest, self._settings, self.answers)
            kept_in = storage_of(self.manifest, self._settings, decided)
            words = command(self.manifest, self._settings, decided, kept_in)
            run = self._launch(words, Storage(kept_in, self._settings.disk) if kept_in else None)
        except Exception as error:
            self._fail(f"cannot be started: {_message(error)}")
            return
        if run is None:
            return
        try:
            make_ready(run, self.manifest, self._settings, decided, self._connecting, self._report)
            self._tell_of_downgrades(run)
            self._ready(run)
        except HopelessError as error:
            run.give_up(f"cannot be started: {error}", hopeless=True)
        except Exception as error:
            # A process that is ending hangs up first. Its exit status says more than the lost connection.
            if not (isinstance(error, Unavailable) and run.over.wait(_LAST_WORDS)):
                run.give_up(self._why_not_ready(error))
        finally:
            if run.over.is_set() and run.channel is not None:
                self._connecting.close(run.channel)  # the process has ended meanwhile

    def _tell_of_downgrades(self, run: Run) -> None:
        missing = [layer for layer in run.layers if layer["state"] in ("not_available", "refused")]
        if missing:
            told = "; ".join(f"{layer['name']}: {layer['detail']}" for layer in missing)
            self._say("downgraded", f"runs without a part of its sandbox: {shown(told)}")
        if not self.manifest.tested_with(self._settings.api):
            told = f"was tested with {self.manifest.tested}, and this is {self._settings.api}"
            self._say("downgraded", told)

    def _why_not_ready(self, error: Exception) -> str:
        seconds = f"{self._settings.handshake_timeout:g} s"
        if isinstance(error, TimeoutError):
            return f"was not ready within {seconds}"
        return f"did not start: {_message(error)}"

    def _launch(self, words: list[str], storage: Storage | None) -> Run | None:
        """Starts the process, in the thread that lives as long as the host. ``None`` if the plugin was stopped
        meanwhile.
        """
        done: Future[Run | None] = Future()

        def launch() -> None:
            try:
                with self._change:
                    if not self._wanted:
                        self._stopped()
                        done.set_result(None)
                        return
                    directory = str(self.manifest.directory)
                    process = PluginProcess(words, directory, environment())
                    run = Run(process, self._settings, self.id, threading.Event(), storage, self._lives)
                    self.run = run
                self._follow(run)
                done.set_result(run)
            except BaseException as error:
                done.set_exception(error)

        if not self._watch.call(launch):
            with self._change:
                self._stopped()
            return None
        return done.result()

    def _ready(self, run: Run) -> None:
        with self._change:
            if run.over.is_set() or not self._wanted:
                return
            self.state = "running"
            self._lives.running = run.end
        self._changed()
        self._say("started", f"is running as process {run.process.pid}")
        if self._settings.cpu_share is not None:
            found = Load(run.process.pid, self._settings.cpu_share)
            self._watch.later(load.EVERY, lambda: self._look_at(run, found))
        if run.storage is not None:
            self._weigh_later(run, run.storage)
        self._settle()

    # Watching. All of this runs in the watching thread.

    def _look_at(self, run: Run, found: Load) -> None:
        """Kills a plugin that takes more processor time than it may."""
        if run.over.is_set():
            return
        if (said := found.too_much()) is not None:
            run.give_up(said)
        else:
            self._watch.later(load.EVERY, lambda: self._look_at(run, found))

    def _weigh_later(self, run: Run, storage: Storage) -> None:
        def weigh() -> None:
            # In a thread of its own, because there may be many files.
            said = None if run.over.is_set() else storage.too_much(run.process.pid)
            if said is not None:
                run.give_up(said, hopeless=True)
            elif not run.over.is_set():
                self._weigh_later(run, storage)

        def aside() -> None:
            if not run.over.is_set():
                threading.Thread(target=weigh, name=f"nearcall-disk-{self.id}", daemon=True).start()

        self._watch.later(storage.pause, aside)

    def _follow(self, run: Run) -> None:
        self._watch.follow(run.process.pidfd, lambda: self._ended(run))
        for pipe, _ in run.outputs:
            self._watch.follow(pipe.fileno(), lambda pipe=pipe: self._read(run, pipe))  # type: ignore[misc]

    def _read(self, run: Run, pipe: Any) -> None:
        output = dict(run.outputs)[pipe]
        descriptor = pipe.fileno()
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        pause = output.take(data)
        if not data or pause > 0:
            self._watch.forget(descriptor)
        if data and pause > 0:
            # It has printed too much: it waits, and costs this process nothing.
            self._watch.later(pause, lambda: self._read_on(run, pipe))

    def _read_on(self, run: Run, pipe: Any) -> None:
        if not run.over.is_set() and not pipe.closed:
            self._watch.follow(pipe.fileno(), lambda: self._read(run, pipe))

    def _ended(self, run: Run) -> None:
        """Its process has ended."""
        self._watch.forget(run.process.pidfd)
        for pipe, output in run.outputs:
            self._watch.forget(pipe.fileno())
            left = _REST
            with contextlib.suppress(BlockingIOError):
                while left > 0 and (data := os.read(pipe.fileno(), _CHUNK)):
                    output.take(data)
                    left -= len(data)
            output.finish()
        ended = run.process.bury()
        said = str(ended)
        violation = sandboxing.violation(ended.status, "\n".join(run.last))
        if violation:
            said += f": {violation}"
        if ended.status == NOT_CONFINED and not run.fault:
            run.fault, run.hopeless = f"cannot be started: {shown(' '.join(run.last)) or said}", True
        run.end.text = run.fault or said
        if self._lives.running is run.end:
            self._lives.running = None
        if run.channel is not None:
            self._connecting.close(run.channel)
        with self._change:
            run.over.set()
            wanted = self._wanted
            if self.run is not run:
                return
            self.run = None
            if not wanted:
                self._stopped()
        self._changed()
        if not wanted:
            self._say("stopped", "has stopped")
            return
        if run.hopeless:
            self._fail(run.end.text, tuple(run.last))
        else:
            self._say("died", run.end.text, tuple(run.last))
            self._after_crash(run)

    def _after_crash(self, run: Run) -> None:
        now = time.monotonic()
        if now - run.began > _SETTLED:
            self._crashes.clear()
        self._crashes.append(now)
        count = len(self._crashes)
        if count > self._settings.restarts:
            self._fail(f"died {count} times in a row and is not started again; the last time it {run.end.text}")
        else:
            pause = min(_LONGEST_PAUSE, self._settings.first_pause * 2 ** min(count - 1, 30))
            with self._change:
                if not self._wanted:
                    self._stopped()
                    return
                self.state = "waiting"
            self._say("restarting", f"is started again in {pause:g} s")
            self._watch.later(pause, self._again)
            self._settle()

    def _again(self) -> None:
        with self._change:
            if self.state == "waiting":
                if self._wanted:
                    self._begin()
                else:
                    self._stopped()

    def _fail(self, why: str, last: tuple[str, ...] = ()) -> None:
        with self._change:
            if not self._wanted:
                self._stopped()
                return
            self.state = "failed"
            self._wanted = False
        self._say("failed", why, last)
        self._settle()

    def _settle(self) -> None:
        """Lets those go on who wait for the outcome of a start, unless somebody who was told of it has begun another
        one.
        """
        with self._change:
            if self.state != "starting":
                self.settled.set()

    def _stopped(self) -> None:
        self.state = "stopped"
        self.settled.set()

    # Stopping.

    def stop(self) -> None:
        """Stops the plugin, and waits for its end. It is asked to stop, and killed if it has not ended within the
        host's ``grace``.
        """
        with self._change:
            self._wanted = False
            run = self.run
            if run is None:
                if self.state == "waiting":
                    self._stopped()
                return
            was, self.state = self.state, "stopping"
        self._changed()
        until = time.monotonic() + self._settings.grace
        if was == "running" and run.runtime is not None:
            with contextlib.suppress(RpcError, RuntimeError):
                self._connecting.do(run.runtime.stop.within(self._settings.grace), self._settings.grace)
            self._connecting.close(run.channel)
            run.over.wait(max(0.0, until - time.monotonic()))
        if not run.over.is_set():
            run.process.kill()
            run.over.wait(_KILLED)
        self.settled.wait(_KILLED)

    def restart(self) -> None:
        """Stops the plugin, reads its manifest again, and begins to start it.

        Raises:
            ManifestError: the manifest is wrong now; the plugin stays stopped.
        """
        self.stop()
        try:
            manifest = read_manifest(self.manifest.directory)
        except ManifestError as error:
            self._say("failed", str(error))
            raise
        if manifest.id != self.id:
            raise ValueError(f"{manifest.path}: the id of {self.id} is now {manifest.id}: make a new host")
        self.manifest = manifest
        self.start()

    # Permissions.

    def grant(self, name: str) -> None:
        """Grants a permission, now and at later starts.

        Raises:
            ValueError: the manifest does not ask for it, the host's policy denies it, or the permission concerns the
                system and the plugin runs.
        """
        if self.manifest.permission(name) is None:
            raise ValueError(f"{self.id} does not ask for '{name}' in its plugin.toml")
        if self._settings.policy.get(name, "deny") == "deny":
            raise ValueError(f"the policy of {self._settings.name} denies '{name}'")
        self.answers[name] = True
        run = self.run
        if run is None:
            return
        if name not in self._settings.makers:
            raise ValueError(f"'{name}' is granted from the next start on, as a sandbox stays; restart {self.id}")
        if name in run.gates:
            run.gates[name].closed = None
        else:
            seconds = self._settings.handshake_timeout
            hand_over(run, self.id, name, self._settings, lambda work: self._connecting.do(work, seconds))

    def revoke(self, name: str) -> None:
        """Revokes a permission: every call of it from now on raises :class:`~nearcall.PermissionDenied`.

        Raises:
            ValueError: the permission concerns the system, and the plugin runs.
        """
        self.answers[name] = False
        run = self.run
        if run is None:
            return
        if name in run.gates:
            run.gates[name].closed = "was revoked"
        elif name not in self._settings.makers:
            raise ValueError(f"'{name}' is revoked from the next start on; restart {self.id}")

    # Calls.

    def service(self, cls: type) -> Any:
        """A service that the plugin offers.

        Raises:
            Unavailable: the plugin does not run.
            FailedPrecondition: it offers no such service.
        """
        run, name = self.run, plan_of(cls).name
        if run is None or run.channel is None or self.state != "running":
            raise Unavailable(f"the plugin {self.id} does not run: it is {self.state}")
        if name not in run.offers:
            offers = f"it offers {', '.join(sorted(run.offers))}" if run.offers else "it offers none"
            raise FailedPrecondition(f"the plugin {self.id} does not offer {name} (nearcall.plugin.offer); {offers}")
        return run.channel.client(cls).service

    def _report(self, handler: Handler, error: BaseException | None) -> None:
        """Called when a handler has failed, or answers again."""
        run = self.run
        if run is None or run.circuit is not handler.circuit:
            return
        if error is None:
            self._say("answers", f"answers again: {handler.point.name}")
        elif isinstance(error, Late):
            pause = handler.circuit.late()
            if pause is not None:
                self._say("late", f"did not answer {handler.point.name} within {handler.budget:g} s, and is left out")
                self._watch.later(pause, lambda: self._probe_aside(run))
        else:
            said = f"failed in {handler.point.name}: {_message(error)}{self._permissions(error)}"
            if not isinstance(error, (Cancelled, Unavailable)):
                self._say_error(said)
            elif not self._doubts:
                # So are calls answered of a plugin that ends, which the host is told anyway. One that is there later
                # has said so itself.
                self._doubts = True
                self._watch.later(_ENDING, lambda: self._say_if_there(run, said))

    def _say_if_there(self, run: Run, said: str) -> None:
        self._doubts = False
        if self.run is run and self._wanted and not run.over.is_set():
            self._say_error(said)

    def _permissions(self, error: BaseException) -> str:
        """Where a plugin asks for what its sandbox may have refused."""
        if self._settings.sandbox == "off" or "PermissionError: " not in str(error):
            return ""
        return ": its sandbox allows what is granted of [permissions] in plugin.toml: files, network, programs"

    def _say_error(self, text: str) -> None:
        now = time.monotonic()
        with self._change:
            if now - self._last_error < _ERRORS_EVERY:
                self._errors_left_out += 1
                return
            left_out, self._errors_left_out = self._errors_left_out, 0
            self._last_error = now
        self._say("error", f"{text} (and {left_out} errors before it)" if left_out else text)

    def _probe_aside(self, run: Run) -> None:
        if not run.over.is_set():
            threading.Thread(target=self._probe, args=(run,), name=f"nearcall-probe-{self.id}", daemon=True).start()

    def _probe(self, run: Run) -> None:
        """Asks a late plugin whether its handlers have ended."""
        ready = False
        with contextlib.suppress(RpcError, RuntimeError):
            ready = self._connecting.do(run.runtime.running.within(_PROBE), _PROBE) == 0
        silent = time.monotonic() - run.circuit.silent_since
        if not ready and silent > self._settings.unresponsive:
            run.give_up(f"has not answered for {silent:.0f} s")
            return
        pause = run.circuit.probed(ready)
        if pause is not None:
            self._watch.later(min(pause, self._settings.unresponsive / 2), lambda: self._probe_aside(run))

    def _say(self, kind: Any, text: str, last: tuple[str, ...] = ()) -> None:
        self._tell(PluginEvent(self.id, kind, text, last))


def _message(error: BaseException) -> str:
    text = error.message if isinstance(error, RpcError) else str(error)
    return shown(f"{type(error).__name__}: {text}")
