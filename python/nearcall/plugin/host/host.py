"""``nearcall.plugin.PluginHost``: a program's plugins, each in a process of its own."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

from ...call.deadline import timeout
from ...call.wrong_with import for_threads, wrong_with
from ...client.channel import Channel, Explain
from ...log import INFO, WARNING, log
from ...service.service import plan_of
from ..manifests.manifest import MANIFEST, Manifest, ManifestError, read_manifest
from ..points.asking import Handler, begin, run
from ..points.points import ExtensionPoint
from ..points.settings import PluginEvent, Settings, State, check_settings
from ..process.supervised import Supervised
from ..process.watch import Watch
from .reloading import Reloader
from .telling import Teller

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ..points.settings import HostOptions

__all__ = ["Directory", "Extension", "Plugin", "PluginBase", "PluginHost", "PluginHostBase", "Plugins"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Directory: TypeAlias = "str | Path | Sequence[str | Path]"

_LEVELS = {"started": INFO, "stopped": INFO, "answers": INFO, "restarting": INFO}


class PluginBase:
    """What hosts for threads and for event loops show of a plugin."""

    def __init__(self, supervised: Supervised) -> None:
        self._supervised = supervised

    @property
    def id(self) -> str:
        """Its id."""
        return self._supervised.id

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self._supervised.manifest

    @property
    def state(self) -> State:
        """Its present state."""
        return self._supervised.state

    @property
    def pid(self) -> int | None:
        """The id of its process; ``None`` if there is none."""
        found = self._supervised.run
        return None if found is None else found.process.pid

    @property
    def layers(self) -> list[dict[str, str]]:
        """The layers of its sandbox, as the plugin's process reports them: ``name``, ``state`` and ``detail`` of
        each.
        """
        found = self._supervised.run
        return [] if found is None else found.layers

    def offers(self, service: type) -> bool:
        """Whether the plugin runs and offers a service, given by its class.

        Raises:
            TypeError: the class is no service.
        """
        name = plan_of(service).name
        found = self._supervised.run
        return found is not None and self.state == "running" and name in found.offers

    def revoke(self, permission: str) -> None:
        """Revokes a permission. From now on, also after a restart, every call of the plugin that needs it raises
        :class:`~nearcall.PermissionDenied`.

        Raises:
            ValueError: the permission concerns the system, and the plugin runs: restart the plugin.
        """
        self._supervised.revoke(permission)

    def __repr__(self) -> str:
        return f"<{self.state} plugin {self.id}>"


class Plugin(PluginBase):
    """A plugin of a :class:`PluginHost`."""

    def service(self, service: Callable[..., T]) -> T:
        """A service that the plugin offers, by its class. A plugin that is not started yet is started now.

        It belongs to the plugin's present process: after a restart ask again. Its calls take at most the host's
        ``call_timeout``, or the time left of a ``nearcall.timeout`` around them.

        Raises:
            Unavailable: the plugin does not run.
            FailedPrecondition: the plugin offers no such service, or declares it differently.
        """
        if self.state == "stopped":
            self.start()
        return cast("T", self._supervised.service(cast("type", service)))

    def start(self) -> None:
        """Starts the plugin, and waits until it runs or the start has failed: see :attr:`state`."""
        self._supervised.start()
        self._supervised.settled.wait()

    def stop(self) -> None:
        """Stops the plugin, and waits for its end."""
        self._supervised.stop()

    def restart(self) -> None:
        """Stops the plugin, reads its manifest again, and starts it.

        Raises:
            ManifestError: the manifest is wrong now.
        """
        self._supervised.restart()
        self._supervised.settled.wait()

    def grant(self, permission: str) -> None:
        """Grants a permission that was denied or revoked.

        Raises:
            ValueError: the manifest does not ask for it, the policy denies it, or it needs a restart.
        """
        self._supervised.grant(permission)


class Extension(Generic[P, R]):
    """An extension point that a host can call. In an event loop the call is awaited."""

    def __init__(self, point: ExtensionPoint[P, Any], call: Callable[P, R]) -> None:
        self.point = point
        self._call = call

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Asks the plugins."""
        return self._call(*args, **kwargs)


class Plugins(dict[str, T]):
    """The plugins of a host, by their ids."""

    def __init__(self, found: Mapping[str, T], mistakes: Mapping[str, ManifestError]) -> None:
        super().__init__(found)
        self._mistakes = mistakes

    def __missing__(self, name: str) -> T:
        known = f"there are {', '.join(self)}" if self else "there are none"
        wrong = f", and manifests with mistakes in {', '.join(self._mistakes)}" if self._mistakes else ""
        raise KeyError(f"there is no plugin {name}: {known}{wrong}")


HOW_HOSTS_ARE_USED = ("plugin host", "with PluginHost(...)", "async with AsyncPluginHost(...)")
"""What they are, and how in threads and in event loops, for messages."""


class PluginHostBase(ABC):
    """The base of plugin hosts for threads and for event loops."""

    def __init__(self, directory: Directory, settings: Settings) -> None:
        if isinstance(directory, (str, Path)):
            self._directories = _plugins_in(Path(directory))
        else:
            self._directories = _paths(directory)
        self._settings = settings
        self._watch = Watch()
        self._by_id: dict[str, Supervised] = {}
        self._handlers: dict[str, tuple[Handler, ...]] = {}
        """The handlers in order, by the names of extension points. The dict is replaced as a whole, so that calls need
        no lock.
        """
        self._asleep: dict[str, tuple[Supervised, ...]] = {}
        """The plugins to start when an extension point is first called, by its name."""
        self._sorting = threading.Lock()
        self._closed = False
        self.mistakes: dict[str, ManifestError] = {}
        """Directories whose manifests are wrong, each with its errors. They are no plugins of this host."""
        self._discover()
        self._reloader = Reloader(self._watch, self._by_id.values()) if settings.reload else None

    def _discover(self) -> None:
        for directory in self._directories:
            try:
                manifest = read_manifest(directory)
                if manifest.id in self._by_id:
                    from ..manifests.manifest import Mistake

                    other = self._by_id[manifest.id].manifest.directory.name
                    mistake = Mistake(
                        str(manifest.path), "id", f"'{manifest.id}' is that of {other}, too", "give it another"
                    )
                    raise ManifestError([mistake])
            except ManifestError as error:
                self.mistakes[directory.name] = error
                for mistake in error.mistakes:
                    log(WARNING, "%s", str(mistake))
                continue
            self._by_id[manifest.id] = Supervised(manifest, self._settings, self._watch, self, self._tell, self._sort)
        if self._settings.lazy:
            self._asleep = {
                name: found
                for name in self._settings.points
                if (found := tuple(each for each in self._by_id.values() if name in each.manifest.extends))
            }

    def _sort(self) -> None:
        """Puts the handlers of all plugins in order."""
        with self._sorting:
            found = [handler for each in self._by_id.values() for handler in each.handlers()]
            found.sort(key=lambda handler: (-handler.priority, handler.plugin))
            self._handlers = {
                name: tuple(handler for handler in found if handler.point.name == name)
                for name in self._settings.points
            }

    def _start_all(self) -> None:
        if self._closed:
            raise RuntimeError("this plugin host was stopped: make a new one")
        if not self._settings.lazy:
            for each in self._by_id.values():
                each.start()
            for each in self._by_id.values():
                each.settled.wait()

    def _stop_all(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._reloader is not None:
            self._reloader.end()
        stopping = [threading.Thread(target=each.stop, daemon=True) for each in self._by_id.values()]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        self._watch.end()

    def _known(self, point: ExtensionPoint[..., Any]) -> None:
        if not isinstance(cast("object", point), ExtensionPoint):
            raise TypeError(f"{point!r} is no extension point, such as nearcall.plugin.action makes")
        if self._settings.points.get(point.name) is not point:
            raise ValueError(f"{point!r} is no extension point of this host: give it in points=[...]")

    def _of(self, point: ExtensionPoint[..., Any]) -> tuple[Handler, ...]:
        """The handlers of an extension point in order. Starts the plugins that wait for its first call; they miss this
        call.
        """
        if self._asleep and point.name in self._asleep:
            for each in self._asleep[point.name]:
                each.start()
            self._asleep = {name: found for name, found in self._asleep.items() if name != point.name}
        return self._handlers.get(point.name, ())

    def _tell(self, event: PluginEvent) -> None:
        log(_LEVELS.get(event.kind, WARNING), "plugin %s %s", event.plugin, event.text)
        self._deliver(event)

    @abstractmethod
    def open(self, url: str, shown: str, explain: Explain, **options: Any) -> Any:
        """See :class:`~nearcall.plugin.starting.Connecting`."""

    @abstractmethod
    def do(self, work: Callable[[], Any], seconds: float) -> Any:
        """See :class:`~nearcall.plugin.starting.Connecting`."""

    @abstractmethod
    def close(self, channel: Any) -> None:
        """See :class:`~nearcall.plugin.starting.Connecting`."""

    @abstractmethod
    def _deliver(self, event: PluginEvent) -> None:
        """Has the host program's ``on_event`` called, if there is one."""

    def __repr__(self) -> str:
        return f"<{'closed ' if self._closed else ''}host of {len(self._by_id)} plugins>"


def _paths(directories: object) -> list[Path]:
    """The directories of plugins, as they were listed.

    Raises:
        TypeError: it is no such list.
    """
    if isinstance(directories, Sequence):
        listed = cast("Sequence[object]", directories)
        if all(isinstance(each, (str, os.PathLike)) for each in listed):
            return [Path(each) for each in cast("Sequence[str]", listed)]
    raise TypeError(f"the directory must be a path, or a list of paths, not {directories!r}")


def _plugins_in(directory: Path) -> list[Path]:
    """The directories of plugins in a directory. If there is none, the log says so.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such directory.
    """
    where = directory.absolute()
    if not directory.exists():
        raise FileNotFoundError(
            f"there is no directory {where}: a plugin host takes the directory in which each plugin has one of its own"
        )
    if not directory.is_dir():
        raise NotADirectoryError(
            f"{where} is no directory: a plugin host takes the directory in which each plugin has one of its own"
        )
    found = sorted(path.parent for path in directory.glob(f"*/{MANIFEST}"))
    if not found:
        is_one = (directory / MANIFEST).exists()
        todo = (
            f"it is a plugin itself: write [{str(directory)!r}], or the directory around it"
            if is_one
            else f"a plugin is a directory in it that has a {MANIFEST}"
        )
        log(WARNING, "there are no plugins in %s: %s", str(where), todo)
    return found


class _PluginChannel(Channel):
    """A channel to a plugin, which no other server can replace."""

    _by_item = True

    def __init__(self, url: str, shown: str, explain: Explain, **options: Any) -> None:
        self._shown = shown
        self._explain = explain
        super().__init__(url, **options)

    def _why_closed(self) -> str | None:
        return None if self._explain is None else self._explain("", True)


class PluginHost(PluginHostBase):
    """The plugins of a program, each in a process of its own, which can neither crash nor freeze it.

    Use it in a ``with`` statement, or call :meth:`start` and :meth:`stop`::

        with nearcall.plugin.PluginHost("plugins", services={"speech": speech}, points=[spoken_text]) as host:
            spoken = host.extension(spoken_text)
            speech.speak(spoken("hello"))

    Args:
        directory: Where the plugins are, each in a directory of its own that has a ``plugin.toml``; or a list of such
            directories. The directory must exist; the log warns if there is no plugin in it.
        options: The options below, by name.
        name: The host's name, for plugins and messages; the program's if not given.
        api: The version of the interface that it gives to plugins; ``"1.0"``.
        services: The services that plugins can be granted: objects of service classes, by the names of permissions.
        points: The extension points that it asks.
        policy: For each permission ``"grant"``, ``"deny"`` or ``"ask"``. Unless it says otherwise, services are granted
            to plugins that ask for them in the manifest, and the user is asked about ``files``, ``network``,
            ``programs`` and ``interpreter``.
        ask: Called with the manifest and the permission when the policy says ``"ask"``; ``True`` grants. Without this
            function such permissions are denied.
        on_event: Called with each :class:`PluginEvent`, one after the other, in a thread of its own.
        paths: Directories that plugins may import from besides their own, such as that of the host's interface.
        sandbox: ``"best"``: the layers that the system has, and an event for missing ones; ``"required"``: no plugin is
            started without its layers; ``"off"``.
        memory: Bytes that each plugin may take, enforced by the sandbox; 1 GiB.
        cpu_share: Processors that each plugin may take: 0.5 is half of one. A control group slows the plugin down to
            that, where the system has one. A plugin that takes more all the same, over ten seconds, is killed and
            started again. No limit if not given.
        data: A directory in which each plugin that asks for ``storage`` has one of its own, for files that it keeps. It
            is made if need be. Without it that permission is denied.
        disk: Bytes that each plugin may keep there, in all; 256 MiB. The host adds them up every second; a plugin that
            keeps more is stopped, and is not started again before there is room.
        lazy: Start a plugin only when it is needed: for an extension point that its manifest names in ``extends``, or
            for a service that it offers. A call of an extension point that starts it goes without it.
        reload: For developers: restart a plugin when one of its files changes.
        budget: Seconds that one plugin may take for a call of an extension point; 0.25.
        call_timeout: Seconds that a call of a service which a plugin offers may take, or of an object that it has
            passed; for a stream, the seconds until its next item; 5. ``None``: for ever, so that a plugin that hangs
            holds the calling thread, unless there is a ``nearcall.timeout`` around the call.
        handshake_timeout: Seconds until a plugin that was started must be ready, its import included; 10.
        grace: Seconds that a plugin has to end when it is stopped, before it is killed; 2.
        unresponsive: Seconds after which a plugin that was late, and still has not ended its late handlers, is killed
            and started again; 30.
        restarts: How often in a row a plugin that dies is started again; 5. After a minute of running the count begins
            anew.
        first_pause: Seconds before the first restart; 0.5. It doubles with each one, up to 30.
        max_calls: Calls of the host's services that a plugin may have under way at once, streams included; 32.
        max_message_size: Longest message of a plugin, bytes; 16 MiB.
        output_rate: Bytes that a plugin may print in a second; 64 KiB. A plugin that prints faster waits.
        longest_line: Characters of a printed line; the rest of it is dropped; 2000.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such directory.
        TypeError, ValueError: an option does not fit.
    """

    def __init__(self, directory: Directory, **options: Unpack[HostOptions]) -> None:
        settings = check_settings(**options)
        self._teller = None if settings.on_event is None else Teller(settings.on_event)
        super().__init__(directory, settings)
        self._plugins = Plugins({name: Plugin(each) for name, each in self._by_id.items()}, self.mistakes)

    @property
    def plugins(self) -> Mapping[str, Plugin]:
        """All plugins that were found, by their ids."""
        return self._plugins

    def start(self) -> Self:
        """Starts the plugins, unless they are started lazily, and waits until each runs or its start has failed."""
        self._start_all()
        return self

    def stop(self) -> None:
        """Stops all plugins and waits for their ends. Harmless when repeated. A stopped host stays stopped."""
        self._stop_all()
        if self._teller is not None:
            self._teller.end(self._settings.grace)

    def extension(self, point: ExtensionPoint[P, R]) -> Extension[P, R]:
        """Calls of an extension point: ``host.extension(spoken_text)("hello")``.

        A call takes at most each plugin's budget, and ends when the time of a surrounding ``nearcall.timeout`` is over.
        Failures of a plugin are reported to ``on_event``, and do not become errors here.

        Raises:
            ValueError: the host does not have this extension point.
        """
        self._known(point)

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return cast("R", run(begin(point, self._of(point), args, kwargs)))

        return Extension(point, call)

    def open(self, url: str, shown: str, explain: Explain, **options: Any) -> Channel:
        """See :class:`~nearcall.plugin.starting.Connecting`."""
        return _PluginChannel(url, shown, explain, **options)

    def do(self, work: Callable[[], Any], seconds: float) -> Any:
        """See :class:`~nearcall.plugin.starting.Connecting`."""
        with timeout(seconds):
            return work()

    def close(self, channel: Any) -> None:
        """See :class:`~nearcall.plugin.starting.Connecting`."""
        channel.close()

    def _deliver(self, event: PluginEvent) -> None:
        if self._teller is not None:
            self._teller.tell(event)

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._plugins.values())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    if not TYPE_CHECKING:  # a type checker refuses it by itself
        __aenter__ = __aexit__ = wrong_with(for_threads(*HOW_HOSTS_ARE_USED))
