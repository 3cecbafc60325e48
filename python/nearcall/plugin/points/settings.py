"""The options of a plugin host, checked in one place for threads and event loops, and the events that it reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, cast

from packaging.version import InvalidVersion, Version

from ...options.checked import check_flag, check_seconds, check_whole
from ...options.names import check_names
from .capabilities import Answer, Ask, GateMaker, check_policy
from .points import ExtensionPoint

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["HostOptions", "PluginEvent", "Settings", "State", "check_settings"]

State = Literal["stopped", "starting", "running", "waiting", "stopping", "failed"]
"""The state of a plugin. ``waiting``: it died, and will be started again. ``failed``: it will not."""


class PluginEvent(NamedTuple):
    """Something that happened to a plugin."""

    plugin: str
    """The plugin's id."""
    kind: Literal["started", "stopped", "died", "restarting", "failed", "late", "answers", "error", "downgraded"]
    """``late``: the plugin did not answer within its budget, and is left alone until it ``answers``. ``error``: a
    handler raised, or its answer does not fit. ``downgraded``: a layer of its sandbox is missing.
    """
    text: str
    """What happened, in a line for people."""
    last_lines: tuple[str, ...] = ()
    """The last lines that it printed, if it ``died``."""


class HostOptions(TypedDict, total=False):
    """The options of a plugin host by name, for type checkers; :class:`~nearcall.plugin.PluginHost` explains them."""

    name: str
    api: str
    services: Mapping[str, object]
    points: Iterable[ExtensionPoint[..., Any]]
    policy: Mapping[str, Answer]
    ask: Ask | None
    on_event: Callable[[PluginEvent], object] | None
    paths: Sequence[str | Path]
    sandbox: Literal["best", "required", "off"]
    memory: int | None
    cpu_share: float | None
    data: str | Path | None
    disk: int
    lazy: bool
    reload: bool
    budget: float
    call_timeout: float | None
    handshake_timeout: float
    grace: float
    unresponsive: float
    restarts: int
    first_pause: float
    max_calls: int
    max_message_size: int
    output_rate: int
    longest_line: int


class Settings(NamedTuple):
    """The checked options."""

    name: str
    api: str
    makers: dict[str, GateMaker]
    points: dict[str, ExtensionPoint[..., Any]]
    policy: dict[str, Answer]
    ask: Ask | None
    on_event: Callable[[PluginEvent], object] | None
    paths: tuple[str, ...]
    sandbox: Literal["best", "required", "off"]
    memory: int | None
    cpu_share: float | None
    data: Path | None
    disk: int
    lazy: bool
    reload: bool
    budget: float
    call_timeout: float | None
    handshake_timeout: float
    grace: float
    unresponsive: float
    restarts: int
    first_pause: float
    max_calls: int
    max_message_size: int
    output_rate: int
    longest_line: int


def check_settings(**options: Unpack[HostOptions]) -> Settings:
    """The options with their defaults.

    Raises:
        TypeError, ValueError: an option does not fit; the message says which and what to write.
    """
    check_names(options, HostOptions.__annotations__)
    api = options.get("api", "1.0")
    try:
        Version(api)
    except (InvalidVersion, TypeError):
        raise ValueError(f"api must be the version of the host's interface, such as '1.0', not {api!r}") from None
    services = options.get("services", {})
    if not isinstance(cast("object", services), Mapping):
        raise TypeError(f"services must be a dict from permissions to objects, not {services!r}")
    for name, service in services.items():
        if isinstance(service, type):
            raise TypeError(f"services: give an object as '{name}', not the class: write {service.__name__}()")
    points: dict[str, ExtensionPoint[..., Any]] = {}
    if isinstance(cast("object", options.get("points")), ExtensionPoint):
        raise TypeError("points must be a list of extension points: write [...] around it")
    for point in options.get("points", ()):
        if not isinstance(cast("object", point), ExtensionPoint):
            raise TypeError(f"points: {point!r} is no extension point, such as nearcall.plugin.action makes")
        if points.setdefault(point.name, point) is not point:
            raise ValueError(f"points: two extension points are called {point.name}: name one with name=...")
    sandbox = options.get("sandbox", "best")
    if sandbox not in ("best", "required", "off"):
        raise ValueError(f"sandbox must be 'best', 'required' or 'off', not {sandbox!r}")
    memory = options.get("memory", 1 << 30)
    data, call_timeout = options.get("data"), options.get("call_timeout", 5.0)
    if data is not None and not isinstance(cast("object", data), (str, Path)):
        raise TypeError(f"data must be a directory, or None, not {data!r}")
    paths = tuple(str(Path(path).resolve()) for path in options.get("paths", ()))
    if data is not None and (readable := [path for path in paths if Path(data).resolve().is_relative_to(path)]):
        raise ValueError(f"data: {data} is in {readable[0]}, which all plugins read (paths): choose another place")
    return Settings(
        name=options.get("name", Path(sys.argv[0] or "host").stem),
        api=api,
        makers={name: GateMaker(each) for name, each in services.items()},
        points=points,
        policy=check_policy(options.get("policy", {}), services),
        ask=options.get("ask"),
        on_event=options.get("on_event"),
        paths=paths,
        sandbox=sandbox,
        memory=None if memory is None else check_whole("memory", memory, "bytes"),
        cpu_share=_check_share(options.get("cpu_share")),
        data=None if data is None else Path(data).absolute(),
        disk=check_whole("disk", options.get("disk", 1 << 28), "bytes"),
        lazy=check_flag("lazy", options.get("lazy", False)),
        reload=check_flag("reload", options.get("reload", False)),
        budget=check_seconds("budget", options.get("budget", 0.25)),
        call_timeout=None if call_timeout is None else check_seconds("call_timeout", call_timeout, otherwise="None"),
        handshake_timeout=check_seconds("handshake_timeout", options.get("handshake_timeout", 10.0)),
        grace=check_seconds("grace", options.get("grace", 2.0)),
        unresponsive=check_seconds("unresponsive", options.get("unresponsive", 30.0), endless=True),
        restarts=check_whole("restarts", options.get("restarts", 5), least=0),
        first_pause=check_seconds("first_pause", options.get("first_pause", 0.5)),
        max_calls=check_whole("max_calls", options.get("max_calls", 32)),
        max_message_size=check_whole("max_message_size", options.get("max_message_size", 1 << 24), "bytes"),
        output_rate=check_whole("output_rate", options.get("output_rate", 1 << 16), "bytes"),
        longest_line=check_whole("longest_line", options.get("longest_line", 2000)),
    )


def _check_share(share: object) -> float | None:
    if share is None:
        return None
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0.01 <= share <= 1024:
        raise ValueError(f"cpu_share must be a number of processors from 0.01 to 1024, or None, not {share!r}")
    return float(share)
