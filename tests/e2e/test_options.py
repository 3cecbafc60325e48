"""A malformed option is one clear line that names it, before anything is dialled or served."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import nearcall
import nearcall.plugin
import nearcall.sandbox
import nearcall.testing


@nearcall.service
class Quiet:
    def nothing(self) -> None: ...


CLIENT = [
    ("timeout", -1, "timeout must be a number of seconds from 0 to 1e9, or None, not -1"),
    ("timeout", "1", "timeout must be a number of seconds from 0 to 1e9, or None, not '1'"),
    ("timeout", math.nan, "timeout must be a number of seconds from 0 to 1e9, or None, not nan"),
    ("timeout", math.inf, "timeout must be a number of seconds from 0 to 1e9, or None, not inf"),
    ("timeout", True, "timeout must be a number of seconds from 0 to 1e9, or None, not True"),
    ("spin", -1, 'spin must be a number of seconds from 0 to 1e9, or "auto", not -1'),
    ("spin", "fast", "spin must be a number of seconds from 0 to 1e9, or \"auto\", not 'fast'"),
    ("handshake_timeout", -1, "handshake_timeout must be a number of seconds from 0 to 1e9, not -1"),
    ("handshake_timeout", 1e18, "handshake_timeout must be a number of seconds from 0 to 1e9, not 1e+18"),
    ("handshake_timeout", None, "handshake_timeout must be a number of seconds from 0 to 1e9, not None"),
    ("max_message_size", -1, "max_message_size must be a whole number of bytes from 1, not -1"),
    ("max_message_size", 0, "max_message_size must be a whole number of bytes from 1, not 0"),
    ("max_message_size", 1e6, "max_message_size must be a whole number of bytes from 1, not 1000000.0"),
    ("max_message_size", "1M", "max_message_size must be a whole number of bytes from 1, not '1M'"),
    ("max_message_size", None, "max_message_size must be a whole number of bytes from 1, not None"),
    ("max_message_size", True, "max_message_size must be a whole number of bytes from 1, not True"),
    ("max_message_size", 2**64, f"max_message_size must be a whole number of bytes from 1, not {2**64}"),
    ("max_references", 0, "max_references must be a whole number from 1, not 0"),
    ("ring_size", -1, "ring_size must be a power of two from 4096 to 16777216 (bytes), not -1"),
    ("ring_size", 5000, "ring_size must be a power of two from 4096 to 16777216 (bytes), not 5000"),
    ("ring_size", 65536.0, "ring_size must be a power of two from 4096 to 16777216 (bytes), not 65536.0"),
]
SERVER = [
    *(row for row in CLIENT if row[0] not in ("timeout", "ring_size")),
    ("max_concurrency", 0, "max_concurrency must be a whole number from 1, not 0"),
    ("max_concurrency", 2.5, "max_concurrency must be a whole number from 1, not 2.5"),
    ("max_connection_age_grace", -1, "max_connection_age_grace must be a number of seconds from 0 to 1e9, not -1"),
    ("max_streams", 0, "max_streams must be a whole number from 1, not 0"),
    ("max_pending", -1, "max_pending must be a whole number from 1, not -1"),
]


@pytest.mark.parametrize(("option", "value", "message"), CLIENT)
def test_options_of_a_client(option: str, value: Any, message: str) -> None:
    wrong: dict[str, Any] = {option: value}
    for connect in (nearcall.connect, nearcall.aio.connect):
        with pytest.raises(nearcall.InvalidArgument) as caught:
            connect("inproc://nobody", Quiet, **wrong)
        assert str(caught.value) == message
        assert caught.value.option == option


@pytest.mark.parametrize(("option", "value", "message"), SERVER)
def test_options_of_a_server(option: str, value: Any, message: str) -> None:
    wrong: dict[str, Any] = {option: value}
    with pytest.raises(nearcall.InvalidArgument) as caught:
        nearcall.Server(Quiet(), "inproc://nobody", **wrong)
    assert str(caught.value) == message
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"oneway": "later"}, "oneway"),
        ({"interceptors": [3]}, "interceptors"),
        ({"interceptors": 3}, "interceptors"),
        ({"allow_users": "root"}, "allow_users"),
        ({"allow_users": ["root"]}, "allow_users"),
        ({"allow_groups": [-1]}, "allow_groups"),
        ({"tls": "ca.pem"}, "tls"),
        ({"tls": nearcall.TLS(ca="ca.pem")}, "tls"),
    ],
)
def test_every_error_of_an_option_carries_its_name(wrong: dict[str, Any], option: str) -> None:
    url = "unix:///nobody" if wrong == {"allow_groups": [-1]} else "tcp://127.0.0.1:1"
    with pytest.raises((nearcall.InvalidArgument, TypeError, ValueError)) as caught:
        nearcall.connect(url, Quiet, **wrong)
    assert getattr(caught.value, "option", None) == option


@pytest.mark.parametrize(
    ("tls", "option"),
    [
        (nearcall.TLS(client_ca=b""), "tls.client_ca"),
        (nearcall.TLS(cert=b""), "tls.key"),
        (nearcall.TLS(key=b""), "tls.cert"),
        (nearcall.TLS(ca="/nobody/ca.pem"), "tls.ca"),
    ],
)
def test_an_error_of_an_option_of_tls_carries_its_name(tls: nearcall.TLS, option: str) -> None:
    with pytest.raises(nearcall.InvalidArgument) as caught:
        nearcall.connect("tls://127.0.0.1:1", Quiet, tls=tls)
    assert caught.value.option == option


def test_other_errors_carry_no_option() -> None:
    with pytest.raises(nearcall.Unavailable) as caught:
        nearcall.connect("inproc://nobody", Quiet)
    assert caught.value.option is None


UNKNOWN: list[tuple[Callable[..., Any], str, str]] = [
    (partial(nearcall.Server, Quiet()), "max_conurrency", "max_concurrency"),
    (partial(nearcall.Server, Quiet()), "max_worker", "max_concurrency"),
    (partial(nearcall.serve, Quiet()), "worker", "workers"),
    (partial(nearcall.serve, Quiet, workers=2), "max_message", "max_message_size"),
    (partial(nearcall.connect, "inproc://nobody", Quiet), "tiemout", "timeout"),
    (partial(nearcall.Channel, "inproc://nobody"), "tiemout", "timeout"),
    (partial(nearcall.aio.connect, "inproc://nobody", Quiet), "middleware", "interceptors"),
    (partial(nearcall.aio.Channel, "inproc://nobody"), "tiemout", "timeout"),
    (partial(nearcall.spawn, ["true"], Quiet), "tiemout", "timeout"),
    (partial(nearcall.aio.spawn, ["true"], Quiet), "tiemout", "timeout"),
    (nearcall.service, "nam", "name"),
    (nearcall.Topic, "keeps_last", "keep_last"),
    (nearcall.Retry, "atempts", "attempts"),
    (nearcall.TLS, "crt", "cert"),
    (nearcall.auth.token, "chek", "check"),
    (nearcall.observe.access_log, "levl", "level"),
    (partial(nearcall.plugin.PluginHost, Quiet), "sandbx", "sandbox"),
    (partial(nearcall.testing.serving, Quiet()), "servr", "server"),
    (partial(nearcall.testing.Fault, "reply"), "skp", "skip"),
    (nearcall.sandbox.Policy, "memroy", "memory"),
    (partial(dataclasses.replace, nearcall.sandbox.Policy()), "netwrok", "network"),
]


@pytest.mark.parametrize(("function", "given", "meant"), UNKNOWN)
def test_an_option_that_there_is_not_says_which_was_meant(function: Callable[..., Any], given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"^there is no option '{given}': did you mean '{meant}'\?$"):
        function(**{given: 1})


@pytest.mark.parametrize("given", ["grace", "on_ready", "workers"])
def test_an_option_of_serve_is_told_from_those_of_a_server(given: str) -> None:
    wrong: dict[str, Any] = {given: 1}
    with pytest.raises(TypeError, match=rf"^there is no option '{given}': {given} is one of nearcall.serve$"):
        nearcall.Server(Quiet(), "inproc://quiet", **wrong)


def test_an_option_like_no_other_shows_what_there_is() -> None:
    wrong: dict[str, Any] = {"colour": "red"}
    with pytest.raises(TypeError, match=r"^there is no option 'colour': there is only check$"):
        nearcall.auth.token("secret", **wrong)


def test_other_numbers_of_seconds() -> None:
    with nearcall.Server(Quiet(), "inproc://seconds") as server:
        client = nearcall.connect("inproc://seconds", Quiet)
        for wrong in (-1, "x", math.nan):
            number: Any = wrong
            with pytest.raises(nearcall.InvalidArgument, match="timeout must be a number of seconds"):
                client.ping(timeout=number)
            with pytest.raises(nearcall.InvalidArgument, match="timeout must be a number of seconds"):
                nearcall.timeout(number)
            with pytest.raises(nearcall.InvalidArgument, match="grace must be a number of seconds"):
                server.stop(grace=number)
        with nearcall.timeout(math.inf):
            client.service.nothing()
        client.close()


def test_numbers_that_are_not_of_pythons_own_types(new_url: str) -> None:
    np = pytest.importorskip("numpy")
    with (
        nearcall.Server(Quiet(), new_url, max_message_size=np.int64(1 << 20), max_pending=np.uint8(9)) as server,
        nearcall.connect(server.urls[0], Quiet, timeout=np.float64(9), ring_size=np.int32(4096)) as quiet,
    ):
        quiet.nothing()


def test_what_is_no_service_is_said_before_anything_is_dialled() -> None:
    anything: Any
    for anything, message in (
        (int, "int is not a service: decorate the class with @nearcall.service"),
        (Quiet(), r"connect with the service's class, not with <.*Quiet object"),
        ("Quiet", "connect with the service's class, not with 'Quiet'"),
    ):
        with pytest.raises(TypeError, match=message):
            nearcall.connect("inproc://nobody", anything)

        async def main(anything: Any = anything, message: str = message) -> None:
            with pytest.raises(TypeError, match=message):
                await nearcall.aio.connect("inproc://nobody", anything)

        asyncio.run(main())
