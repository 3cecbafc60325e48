"""Options about the way to several servers: which of them are called, and through which proxy."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias, cast, get_args

from ..errors import InvalidArgument
from ..options.checked import with_option
from ..options.schemes import names_hosts, speaks_grpc

__all__ = ["Balancing", "Proxied", "check_balancing", "check_proxy"]

Balancing: TypeAlias = Literal["pick_first", "round_robin", "least_calls"]
"""Which of several servers are called."""

Proxied: TypeAlias = "tuple[str, int, str | None, list[str] | None]"
"""Host, port, credentials, and hosts that are reached directly, as :class:`nearcall._core.Connection` takes them."""


def check_balancing(url: str, balancing: object) -> Balancing:
    """The option ``balancing``.

    Raises:
        InvalidArgument: it is neither of these.
        ValueError: the URL can only mean one server.
    """
    if balancing not in get_args(Balancing):
        *names, last = (f'"{name}"' for name in get_args(Balancing))
        raise with_option(
            InvalidArgument(f"balancing must be {', '.join(names)} or {last}, not {balancing!r}"), "balancing"
        )
    if balancing != "pick_first" and not names_hosts(url):
        raise with_option(
            ValueError(
                f'balancing="{balancing}" is for URLs that name hosts, such as tcp://one:7000,two:7000: at {url} '
                "there is one server"
            ),
            "balancing",
        )
    return cast(Balancing, balancing)


def check_proxy(url: str, proxy: object) -> Proxied | None:
    """The option ``proxy``: the proxy to connect through, and for which hosts it is.

    Raises:
        InvalidArgument: the option, or the variable of the environment, is no URL of a proxy.
        ValueError: the URL names no host.
    """
    if proxy is None or (proxy == "environment" and not names_hosts(url)):
        return None
    if not isinstance(proxy, str):
        raise with_option(
            TypeError(f'proxy takes "environment", None or a URL such as http://proxy:3128, not {proxy!r}'), "proxy"
        )
    if proxy != "environment":
        if not names_hosts(url):
            raise with_option(ValueError(f"proxy is for URLs that name hosts, and {url} names none"), "proxy")
        return (*_read("proxy", proxy), None)
    name, found = _in_environment(url)
    if not found:
        return None
    listed = _variable("no_proxy") or _variable("NO_PROXY")
    if speaks_grpc(url):
        listed = _variable("no_grpc_proxy") or listed
    return (*_read(name, found), [entry.strip() for entry in listed.split(",") if entry.strip()])


def _in_environment(url: str) -> tuple[str, str]:
    # HTTP_PROXY in capitals is not read: in a CGI program it holds the header "Proxy" of the program's client.
    names = ["https_proxy", "HTTPS_PROXY", "http_proxy"]
    if speaks_grpc(url):
        names = ["grpc_proxy", "GRPC_PROXY", *names]
    for name in names:
        if value := _variable(name):
            return name, value
    return "", ""


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()


def _read(option: str, proxy: str) -> tuple[str, int, str | None]:
    """Host, port, and the value of ``Proxy-Authorization``, if the URL names a user."""
    import base64  # few have a proxy
    from urllib.parse import unquote, urlsplit

    text = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(text)
        host, port, scheme = parts.hostname, parts.port, parts.scheme
    except ValueError:
        raise _refused(option, "no URL of a proxy") from None
    if scheme != "http":
        raise _refused(option, f"a proxy of a kind that is not spoken here ({scheme}://)")
    if not host:
        raise _refused(option, "no URL of a proxy")
    if parts.username is None:
        return host, port or 80, None
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return host, port or 80, "Basic " + base64.b64encode(user.encode()).decode()


def _refused(option: str, what: str) -> Exception:
    # The message does not show the URL, which may contain a password.
    error = InvalidArgument(f"{option} names {what}: write http://host:port, or http://user:password@host:port")
    return with_option(error, "proxy")
