"""The options of a channel, which are those of ``nearcall.connect``: checked in one place for all who connect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, cast

from ..call.interceptors import ClientInterceptor, check_interceptors
from ..codec.protocol import Codec
from ..errors import InvalidArgument
from ..options.checked import check_flag, check_seconds, check_url, check_whole, with_option
from ..options.common import (
    DEFAULT_MAX_MESSAGE_SIZE,
    DEFAULT_MAX_REFERENCES,
    DEFAULT_MAX_VALUES,
    DEFAULT_RING_SIZE,
    Compression,
    check_compression,
    check_spin,
    check_users,
)
from ..options.names import check_names
from ..options.nats import NATS, login_of
from ..options.schemes import NAMED, is_encrypted, is_named, names_hosts, names_socket, speaks_http
from ..options.tls import TLS, client_side
from .balancing import Balancing, check_balancing, check_proxy
from .codecs import ClientCodec, check_codec
from .dropping import OnewayPolicy, check_oneway, drop_reporter
from .hedge import Hedge, check_hedge
from .policies import MethodPolicy, Policies
from .retry import Retry, check_retry
from .service_config import ServiceConfig, read_service_config

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "ChannelOptions",
    "Settings",
    "check_options",
]


_SHARE = 0.4
"""Of the time for connecting: how much connecting to a directory may take, and how much its answer."""


class ChannelOptions(TypedDict, total=False):
    """The options of a channel by name, for type checkers; :class:`~nearcall.Channel` says what each means.

    A function that passes options on can take ``**options: Unpack[nearcall.ChannelOptions]``.
    """

    timeout: float | None
    spin: float | Literal["auto"]
    max_message_size: int
    max_values: int
    max_references: int
    ring_size: int
    handshake_timeout: float
    wait_for_ready: bool
    balancing: Balancing
    retry: Retry | None
    hedge: Hedge | None
    service_config: str | Mapping[str, object] | None
    proxy: str | None
    oneway: OnewayPolicy
    interceptors: Sequence[ClientInterceptor]
    codec: ClientCodec | None
    use_get: bool
    compression: Compression | None
    allow_plaintext: bool
    tls: TLS | None
    nats: NATS | None
    allow_users: Sequence[str | int]
    allow_groups: Sequence[str | int]
    directory: ChannelOptions


def options_of_directory(url: str, alike: ChannelOptions, own: ChannelOptions | None) -> ChannelOptions:
    """The options of the connection to the directory that a URL names.

    Args:
        url: The channel's URL.
        alike: The channel's own options, as far as they say how connections are made. Those that the directory's URL
            cannot have are left out.
        own: The option ``directory``.

    Raises:
        TypeError: ``own`` is no dict.
        ValueError: the URL names no directory that is served.
    """
    if not is_named(url):
        if own is not None:
            raise with_option(ValueError(f"directory is for {NAMED} URLs, and {url} is none"), "directory")
        return {}
    from ..directory.address import FILE, read_address  # few have a directory

    place = read_address(url).place
    if own is None:
        own = {}
    elif not isinstance(cast(object, own), dict):
        raise with_option(TypeError(f"directory takes a dict of options, not {own!r}"), "directory")
    elif place.startswith(FILE):
        raise with_option(
            ValueError(f"directory is for directories that are served, and {place} is a file"), "directory"
        )
    fits = {
        "proxy": alike.get("proxy") == "environment" or names_hosts(place),
        "tls": is_encrypted(place),
        "nats": place.startswith("nats"),
        "allow_users": names_socket(place),
        "allow_groups": names_socket(place),
    }
    kept = {name: value for name, value in alike.items() if fits.get(name, True)}
    # One that does not answer leaves time to connect to the servers that are known.
    share = alike.get("handshake_timeout", 5.0) * _SHARE
    return cast("ChannelOptions", {**kept, "handshake_timeout": share, "timeout": share, **own})


class Settings(NamedTuple):
    """The checked options, sorted by where they are needed."""

    of_connection: dict[str, Any]
    """For :class:`nearcall._core.Connection`."""
    max_values: int
    """For each method: values that a received message may hold."""
    max_references: int
    """How many objects of this client the server may hold references to."""
    interceptors: tuple[ClientInterceptor, ...]
    """Functions around each call."""
    policies: Policies
    """What holds for the calls of each method."""
    codec: Codec | None
    """What writes messages; ``None``: msgpack."""
    of_directory: ChannelOptions
    """For the connection to the directory that the URL names, if it is one of a name."""


def check_options(url: str, sync: str | None, **options: Unpack[ChannelOptions]) -> Settings:
    """A channel's options.

    Args:
        url: Where the server is.
        sync: Why interceptors must not be ``async def``; ``None`` if they may.
        options: As the user gave them.

    Raises:
        InvalidArgument: an option is malformed; the message says which, and what it may be.
        TypeError: there is no such option, or an option has the wrong type.
        ValueError: an option does not fit the URL.
    """
    check_url(url, service=False)
    check_names(options, _checked.__kwdefaults__ or {})
    given = options.pop("service_config", None)
    config = None if given is None else read_service_config(given, url)
    if config is not None:
        for name in config.said & options.keys():
            raise with_option(ValueError(f"{name} is said by service_config, too: leave one of them out"), name)
        options = cast("ChannelOptions", {**options, **config.options})
    return _checked(url, sync, config, **options)


def _checked(  # noqa: PLR0913 - options have names
    url: str,
    sync: str | None,
    config: ServiceConfig | None,
    *,
    timeout: float | None = None,
    spin: float | Literal["auto"] = "auto",
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    max_values: int = DEFAULT_MAX_VALUES,
    max_references: int = DEFAULT_MAX_REFERENCES,
    ring_size: int = DEFAULT_RING_SIZE,
    handshake_timeout: float = 5.0,
    wait_for_ready: bool = False,
    balancing: Balancing = "pick_first",
    retry: Retry | None = None,
    hedge: Hedge | None = None,
    service_config: str | Mapping[str, object] | None = None,
    proxy: str | None = "environment",
    oneway: OnewayPolicy = "block",
    interceptors: Sequence[ClientInterceptor] = (),
    codec: ClientCodec | None = None,
    use_get: bool = False,
    compression: Compression | None = None,
    allow_plaintext: bool = False,
    tls: TLS | None = None,
    nats: NATS | None = None,
    allow_users: Sequence[str | int] = (),
    allow_groups: Sequence[str | int] = (),
    directory: ChannelOptions | None = None,
) -> Settings:
    chain = check_interceptors(interceptors, sync)
    values = check_whole("max_values", max_values)
    references = check_whole("max_references", max_references)
    of_connection: dict[str, Any] = {
        "timeout": None if timeout is None else check_seconds("timeout", timeout, otherwise="None"),
        "spin": check_spin(spin),
        "max_message_size": check_whole("max_message_size", max_message_size, "bytes"),
        "ring_size": _check_ring_size(ring_size),
        "handshake_timeout": check_seconds("handshake_timeout", handshake_timeout),
        "codec": "json" if codec == "json" else "proto",
        "use_get": _check_use_get(url, use_get),
        "compression": check_compression([url], compression),
        "wait_for_ready": check_flag("wait_for_ready", wait_for_ready) or (config is not None and config.waits),
        "balancing": check_balancing(url, balancing),
        "proxy": check_proxy(url, proxy),
    }
    users, groups = check_users([url], allow_users, allow_groups)
    of_connection |= {
        "allow_plaintext": check_flag("allow_plaintext", allow_plaintext),
        "tls": client_side(tls, url),
        "nats": login_of(nats, [url]),
        "allow_users": users,
        "allow_groups": groups,
        "oneway": check_oneway(oneway),
        "on_drop": drop_reporter(url),
    }
    usual = MethodPolicy(of_connection["timeout"], wait_for_ready, check_retry(retry), check_hedge(hedge, retry))
    alike: ChannelOptions = {
        "handshake_timeout": handshake_timeout,
        "proxy": proxy,
        "allow_plaintext": allow_plaintext,
        "tls": tls,
        "nats": nats,
        "allow_users": allow_users,
        "allow_groups": allow_groups,
    }
    of_directory = options_of_directory(url, alike, directory)
    codec_of_all = check_codec(url, codec)
    return Settings(of_connection, values, references, chain, Policies(url, usual, config), codec_of_all, of_directory)


def _check_use_get(url: str, use_get: bool) -> bool:
    if check_flag("use_get", use_get) and not speaks_http(url):
        raise with_option(ValueError(f"use_get is for http:// URLs: at {url} there is no GET"), "use_get")
    return use_get


def _check_ring_size(size: int) -> int:
    if not isinstance(cast(object, size), bool) and hasattr(size, "__index__"):
        number = size.__index__()
        if 4096 <= number <= 1 << 24 and number & (number - 1) == 0:
            return number
    raise with_option(
        InvalidArgument(f"ring_size must be a power of two from 4096 to 16777216 (bytes), not {size!r}"), "ring_size"
    )
