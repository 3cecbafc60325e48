"""What a directory answers, and what a channel makes of that."""

from __future__ import annotations

import pytest

import nearcall
from nearcall.directory import Entry, Found
from nearcall.directory.address import Address, read_address
from nearcall.directory.entries import answer
from nearcall.directory.reachable import reachable
from nearcall.directory.resolver import Resolver

NAME = "directory+tcp://127.0.0.1:1/clock"


class Says:
    """A directory that answers what it is told to."""

    def __init__(self, *urls: str, age: float = 1e9) -> None:
        self.say(*urls, age=age)

    def say(self, *urls: str, age: float = 1e9) -> None:
        self.answer: Found | nearcall.RpcError = Found([Entry("clock", url) for url in urls], "there is none", age)

    def lookup(self, name: str, metadata: dict[str, str]) -> Found:
        assert (name, metadata) == ("clock", {})
        if isinstance(self.answer, nearcall.RpcError):
            raise self.answer
        return self.answer

    def close(self) -> None:
        pass


def resolver(source: Says) -> Resolver:
    return Resolver(NAME, read_address(NAME), source)


def urls(count: int) -> list[str]:
    return [f"tcp://127.0.0.1:{port}" for port in range(1, count + 1)]


def test_urls_of_names_say_where_the_directory_is() -> None:
    assert read_address(f"{NAME}?zone=eu&kind=a%26b") == Address(
        "tcp://127.0.0.1:1", "clock", {"zone": "eu", "kind": "a&b"}
    )
    assert read_address("directory+shm://names/clock").place == "shm://names"
    assert read_address("directory+nats://host/names/clock").place == "nats://host/names"
    assert read_address("directory+file:///a%20b/c.toml/clock").place == "file:///a b/c.toml"
    assert read_address("directory+tcp://a:1,b:2/clock").places == ["tcp://a:1", "tcp://b:2"]


def test_each_client_has_an_order_of_its_own_and_keeps_it() -> None:
    source = Says(*urls(20))
    clients = [resolver(source) for _ in range(5)]
    orders = [tuple(client()) for client in clients]
    assert {frozenset(order) for order in orders} == {frozenset(urls(20))}
    assert len(set(orders)) > 1
    assert [tuple(client()) for client in clients] == orders


def test_one_client_uses_128_servers_of_a_name_and_others_others() -> None:
    source = Says(*urls(1000))
    found = [frozenset(resolver(source)()) for _ in range(5)]
    assert {len(each) for each in found} == {128}
    assert len(set(found)) > 1


def test_the_last_answer_counts_while_there_is_no_other() -> None:
    source = Says(*urls(2))
    client = resolver(source)
    assert set(client()) == set(urls(2))
    source.answer = nearcall.Unavailable("it is gone")
    assert set(client()) == set(urls(2))
    # A directory that has just begun does not know all of them again.
    source.say(age=1.0)
    assert set(client()) == set(urls(2))
    source.say(*urls(3)[2:], age=2.0)
    assert set(client()) == set(urls(3))
    source.say(*urls(3)[2:], age=11.0)
    assert client() == urls(3)[2:]
    source.say(age=12.0)
    with pytest.raises(nearcall.Unavailable, match=r"^cannot find directory\+tcp://127.0.0.1:1/clock: there is none$"):
        client()
    source.answer = nearcall.PermissionDenied("not you")
    with pytest.raises(nearcall.PermissionDenied, match=r"^cannot find .*: not you$"):
        client()


def test_servers_that_mean_nothing_here_are_left_out() -> None:
    assert resolver(Says("quic://h:1", "tcp://h:1", "directory+tcp://h:1/x", "grpc://h:1"))() == ["tcp://h:1"]
    with pytest.raises(nearcall.FailedPrecondition, match="grpc://h:1"):
        resolver(Says("grpc://h:1"))()


def test_what_is_not_there_is_said_with_what_is() -> None:
    known = [Entry("clock", "tcp://h:1", {"zone": "eu"}), Entry("printer", "tcp://h:2")]
    assert answer([], "clock", {}).why == "no server is registered at all"
    assert answer(known, "clok", {}).why == "no server is registered as 'clok': did you mean clock?"
    assert answer(known, "x", {}).why == "no server is registered as 'x'; there is clock, printer"
    assert answer(known, "clock", {"zone": "us"}).why == (
        "no server is registered as 'clock' with zone=us: there is metadata such as zone=eu"
    )
    assert answer([*known, known[0]], "", {}).entries == known


@pytest.mark.parametrize(
    ("url", "seen", "reached"),
    [
        ("tcp://0.0.0.0:7", "192.0.2.1:40000", "tcp://192.0.2.1:7"),
        ("tls://[::]:7", "[2001:db8::1]:40000", "tls://[2001:db8::1]:7"),
        ("tcp://0.0.0.0:7", "[::ffff:192.0.2.1]:40000", "tcp://192.0.2.1:7"),
        ("tcp://host.example:7", "192.0.2.1:40000", "tcp://host.example:7"),
        ("tcp://127.0.0.1:7", "127.0.0.1:40000", "tcp://127.0.0.1:7"),
        ("tcp://127.0.0.1:7", "", "tcp://127.0.0.1:7"),
        ("shm://clock", "", "shm://clock"),
    ],
)
def test_the_address_that_others_reach_is_entered(url: str, seen: str, reached: str) -> None:
    assert reachable(url, seen) == reached


@pytest.mark.parametrize(
    ("url", "seen", "text"),
    [
        ("tcp://0.0.0.0:7", "", "cannot tell which others reach"),
        ("tcp://127.0.0.1:7", "192.0.2.1:40000", "from its own machine only"),
        ("tcp://localhost:7", "192.0.2.1:40000", "from its own machine only"),
        ("tcp://a:1,b:2", "", "one host and a port"),
    ],
)
def test_an_address_that_nobody_else_reaches_is_refused(url: str, seen: str, text: str) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=text):
        reachable(url, seen)
