"""Makes a plugin's process ready: from its manifest to a connection on which its handlers can be called."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from packaging.specifiers import SpecifierSet

from ...client.channel import Explain
from ...errors import FailedPrecondition
from ...log import INFO, WARNING
from ...types.shown import shown
from ..inside.configuration import PROGRAM, Configuration
from ..inside.runtime import ABOUT_VERSION, About, Greeting, Runtime, taking_service
from ..manifests import sandboxing
from ..manifests.manifest import Manifest, Permission
from ..points.asking import Handler
from ..points.calls import Calls
from ..points.capabilities import Gate
from ..points.settings import Settings
from .circuit import Circuit
from .directories import Storage, make_directory
from .output import Output
from .process import PluginProcess

if TYPE_CHECKING:
    from threading import Event

__all__ = ["Connecting", "Decided", "HopelessError", "Lives", "Run", "command", "decide", "make_ready", "storage_of"]


_MOST_LAYERS = 50
"""Layers of a sandbox that are kept of a plugin's report."""
_MOST_OFFERS = 100
"""Services of a plugin's report that are kept."""
_LONGEST = 500
"""Characters of each text that are kept."""


class HopelessError(Exception):
    """The plugin cannot be started, and trying again would not help."""


class Connecting(Protocol):
    """Makes and uses a host's connections, in threads or in an event loop."""

    def open(self, url: str, shown: str, explain: Explain, **options: Any) -> Any:
        """Connects, and returns a channel."""
        ...

    def do(self, work: Callable[[], Any], seconds: float) -> Any:
        """Runs ``work``, which calls over a channel, for at most ``seconds``. Called from a thread that may wait."""
        ...

    def close(self, channel: Any) -> None:
        """Closes a channel. Called from a thread that must not wait."""
        ...


class Decided(NamedTuple):
    """Which of the permissions that a plugin asked for were granted."""

    granted: dict[str, Permission]
    refused: dict[str, str]
    """The refused permissions, and why."""


class Lives:
    """The processes that a plugin has had. Their connections refer to this object, so it must not refer to them,
    directly or not.
    """

    def __init__(self) -> None:
        self.running: End | None = None
        """That of the process that runs now."""


class End:
    """How a process ended. The connection refers to this object, too.

    Args:
        plugin: The plugin's id.
        lives: All processes of the plugin.
    """

    def __init__(self, plugin: str, lives: Lives) -> None:
        self.text = ""
        self._plugin = plugin
        self._lives = lives

    def explain(self, _reason: str, _closed: bool) -> str:
        """Why the process cannot be called any more, and what to call in its place."""
        again = f"host.plugins['{self._plugin}'].service(...)"
        if self._lives.running not in (None, self):
            return f"the plugin {self._plugin} was restarted, and this is of its process before: ask again with {again}"
        return f"the plugin {self._plugin} {self.text or 'has stopped'}: when it runs again, ask with {again}"


class Run:
    """One life of a plugin's process.

    Args:
        process: The process.
        settings: The host's settings.
        plugin: The plugin's id.
        over: Set when the process has ended.
        storage: Its directory for files, if it has one.
        lives: All processes of the plugin.
    """

    def __init__(
        self,
        process: PluginProcess,
        settings: Settings,
        plugin: str,
        over: Event,
        storage: Storage | None,
        lives: Lives,
    ) -> None:
        self.process = process
        self.storage = storage
        self.over = over
        self.began = time.monotonic()
        self.last: deque[str] = deque(maxlen=20)
        outputs = [
            Output(plugin, level, self.last, settings.output_rate, settings.longest_line) for level in (INFO, WARNING)
        ]
        self.outputs = tuple(zip(process.pipes, outputs, strict=True))
        self.channel: Any = None
        self.runtime: Any = None
        self.handlers: list[Handler] = []
        self.offers: frozenset[str] = frozenset()
        """The names of services that the host may call."""
        self.calls = Calls(plugin, settings.max_calls)
        self.gates: dict[str, Gate] = {}
        self.circuit = Circuit()
        self.layers: list[dict[str, str]] = []
        self.fault = ""
        """Why the host has killed it, if it has."""
        self.hopeless = False
        """Whether it would end in the same way if it was started again."""
        self.end = End(plugin, lives)

    def give_up(self, why: str, *, hopeless: bool = False) -> None:
        """Kills the process. The host learns of its end in the same way as of any other."""
        self.fault = self.fault or shown(why)
        self.hopeless = self.hopeless or hopeless
        self.process.kill()


def decide(manifest: Manifest, settings: Settings, answers: dict[str, bool]) -> Decided:
    """Which of the permissions in its manifest a plugin gets.

    Args:
        manifest: The manifest.
        settings: The host's settings.
        answers: Earlier answers of the user, or of the host at run time; new answers of the user are added.
    """
    granted: dict[str, Permission] = {}
    refused: dict[str, str] = {}
    for permission in manifest.permissions:
        name = permission.name
        if name not in settings.policy:
            refused[name] = f"{settings.name} has no such service"
        elif name == "storage" and settings.data is None:
            refused[name] = f"{settings.name} has no place for files of plugins: give it one with data=..."
        elif settings.policy[name] == "deny":
            refused[name] = f"{settings.name} grants it to no plugin"
        elif settings.policy[name] == "ask" and name not in answers and settings.ask is None:
            refused[name] = f"{settings.name} did not ask its user"
        elif answers.get(name, settings.policy[name] == "grant"):
            granted[name] = permission
        elif name not in answers and settings.ask is not None and settings.ask(manifest, permission):
            answers[name] = True
            granted[name] = permission
        else:
            answers[name] = False
            refused[name] = "the user has denied it"
    return Decided(granted, refused)


def command(manifest: Manifest, settings: Settings, decided: Decided, storage: str) -> list[str]:
    """The command that starts a plugin.

    Args:
        manifest: The plugin's manifest.
        settings: The host's settings.
        decided: The granted permissions.
        storage: From :func:`storage_of`.

    Raises:
        HopelessError: the plugin must not be started, or cannot be.
    """
    runtime = manifest.runtime
    python = sys.executable
    if runtime.venv or runtime.interpreter:
        if "interpreter" not in decided.granted:
            why = decided.refused.get("interpreter", "it is not asked for")
            raise HopelessError(f"it brings an interpreter, and the permission for that is missing: {why}")
        python = runtime.interpreter or str(manifest.directory / runtime.venv / "bin" / "python")
        if not os.access(python, os.X_OK):
            raise HopelessError(f"there is no program {python}: make the plugin's virtual environment")
    elif not python:
        raise HopelessError(f"{settings.name} does not know its own interpreter: set sys.executable")
    elif runtime.python:
        _check_python(runtime.python, sys.version.split()[0])
    if not manifest.works_with(settings.api):
        raise HopelessError(
            f"it is for {settings.name} {manifest.api}, and this is {settings.api}: it needs another version"
        )
    directory = str(manifest.directory.resolve())
    if storage and (said := Storage(storage, settings.disk).too_much()):
        raise HopelessError(f"it {said}")
    policy: dict[str, Any] | None = None
    if settings.sandbox != "off":
        granted, limits = decided.granted.values(), (settings.memory, settings.cpu_share)
        policy = sandboxing.policy_for(directory, settings.paths, granted, *limits)
        if storage:
            policy |= {"write": (*policy["write"], storage), "file_size": min(settings.disk, policy["file_size"])}
        policy = sandboxing.plain_policy(policy, required=settings.sandbox == "required")
    configuration = Configuration(
        id=manifest.id,
        directory=directory,
        entry=manifest.entry,
        paths=list(settings.paths),
        storage=storage,
        no_storage=decided.refused.get("storage", "plugin.toml does not ask for it"),
        parent=os.getpid(),
        sandbox=policy,
    )
    # -u: lines appear in the log as soon as they are printed. -I: environment variables do not change what it imports.
    return [python, "-u", "-I", "-c", PROGRAM, msgspec.json.encode(configuration).decode()]


def storage_of(manifest: Manifest, settings: Settings, decided: Decided) -> str:
    """The directory in which the plugin may keep files, which is made if need be; empty if it has none.

    Raises:
        HopelessError: the directory cannot be made.
    """
    if settings.data is None or "storage" not in decided.granted:
        return ""
    try:
        return make_directory(settings.data, manifest.id)
    except OSError as error:
        raise HopelessError(f"there can be no directory for its files in {settings.data}: {error}") from error


def make_ready(
    run: Run,
    manifest: Manifest,
    settings: Settings,
    decided: Decided,
    connecting: Connecting,
    report: Callable[[Handler, BaseException | None], None],
) -> None:
    """Connects to a process that was started, hands over the granted services, and calls the plugin's entry function.

    Args:
        run: The process; its channel, runtime, handlers, offers and gates are set.
        manifest: The manifest of the plugin.
        settings: The host's settings.
        decided: The granted permissions.
        connecting: How to connect and call.
        report: Called with failures of its handlers.

    Raises:
        HopelessError: the plugin does not fit this host.
        RpcError: the plugin did not answer in time, or raised.
    """
    until = time.monotonic() + settings.handshake_timeout

    def do(work: Callable[[], Any]) -> Any:
        return connecting.do(work, max(0.001, until - time.monotonic()))

    def client(service: type) -> Any:
        return do(lambda: run.channel.client(service).service)

    options = {
        "timeout": settings.call_timeout,
        "handshake_timeout": settings.handshake_timeout,
        "max_message_size": settings.max_message_size,
    }
    run.channel = do(lambda: connecting.open(run.process.url, f"the plugin {manifest.id}", run.end.explain, **options))
    run.process.connection.close()
    try:
        run.runtime = client(Runtime)
        # These calls may take as long as the start may, and not only `call_timeout`.
        about: About = do(run.runtime.about.within(settings.handshake_timeout))
        if about.version != ABOUT_VERSION:
            raise HopelessError(f"its nearcall is of another time: version {about.version}, not {ABOUT_VERSION}")
        if manifest.runtime.python:
            _check_python(manifest.runtime.python, about.python)
        run.layers = [
            {key: shown(layer.get(key, ""), _LONGEST) for key in ("name", "state", "detail")}
            for layer in about.layers[:_MOST_LAYERS]
        ]
        run.offers = frozenset(name for name in about.offers[:_MOST_OFFERS] if len(name) <= _LONGEST)
        for point in settings.points.values():
            if point.name in about.handlers:
                budget = settings.budget if point.budget is None else point.budget
                method = client(point.service).handle
                priority = about.handlers[point.name]
                run.handlers.append(Handler(point, manifest.id, priority, method, budget, run.circuit, report))
        for permission in decided.granted:
            if permission in settings.makers and permission in about.uses:
                hand_over(run, manifest.id, permission, settings, do)
        start = run.runtime.start.within(settings.handshake_timeout)
        do(lambda: start(Greeting(settings.name, settings.api, decided.refused)))
    except FailedPrecondition as error:
        raise HopelessError(f"it does not fit this host: {error.message}") from error


def hand_over(run: Run, plugin: str, name: str, settings: Settings, do: Callable[[Callable[[], Any]], Any]) -> None:
    """Gives a plugin the service of a permission, behind a gate.

    Raises:
        FailedPrecondition: the plugin takes no such service, or declares it differently.
    """
    maker = settings.makers[name]
    gate = Gate(plugin, name, run.calls)
    taking = do(lambda: run.channel.client(taking_service(name, maker.interface)).service)
    take = taking.take.within(settings.handshake_timeout)
    do(lambda: take(maker.make(gate)))
    run.gates[name] = gate


def _check_python(wanted: str, version: str) -> None:
    if not SpecifierSet(wanted).contains(version, prereleases=True):
        raise HopelessError(f"plugin.toml says runtime.python = '{wanted}', and its interpreter is Python {version}")
