"""Attempts to talk to others. The servers are real, and would answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .confined import give_to, run, run_free
from .conftest import Place

ABSTRACT = "\0nearcall-sandbox-test"


@pytest.fixture
def servers(place: Place) -> Iterator[dict[str, Any]]:
    """Their addresses, for the code of attempts."""
    with ExitStack() as stack:

        def listening(family: int, kind: int, address: Any) -> socket.socket:
            server = stack.enter_context(socket.socket(family, kind))
            server.bind(address)
            if kind == socket.SOCK_STREAM:
                server.listen(64)
            return server

        tcp = listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        other = listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        udp = listening(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        paths = {"unix": socket.SOCK_STREAM, "datagrams": socket.SOCK_DGRAM}
        for name, kind in paths.items():
            listening(socket.AF_UNIX, kind, str(place.outside / name))
            give_to(place.user, Path(place.outside / name))
        listening(socket.AF_UNIX, socket.SOCK_STREAM, f"{ABSTRACT}-{tcp.getsockname()[1]}")
        yield {
            **place.names,
            "tcp": tcp.getsockname()[1],
            "other": other.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": f"{ABSTRACT}-{tcp.getsockname()[1]}",
            **{name: str(place.outside / name) for name in paths},
        }


TCP = "import socket; result = socket.create_connection(('127.0.0.1', tcp), 5).fileno() > 0"
OTHER = "import socket; socket.create_connection(('127.0.0.1', other), 5)"
UDP = """
    import socket
    it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    result = it.sendto(b"x", ("127.0.0.1", udp))"""
UNIX = "import socket; it = socket.socket(socket.AF_UNIX); it.connect(unix); result = True"
ABSTRACTLY = "import socket; it = socket.socket(socket.AF_UNIX); it.connect(abstract); result = True"
FAST_OPEN = """
    import socket
    it = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    result = it.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", other))"""
LISTEN = "import socket; it = socket.socket(); it.bind(('127.0.0.1', 0)); it.listen(); result = True"
LISTEN_UNBOUND = "import socket; it = socket.socket(); it.listen(); result = True"
DATAGRAM_PAIR = """
    import socket
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    result = one.sendto(b"x", datagrams)"""
STREAM_PAIR = "import socket; one, other = socket.socketpair(); one.connect(unix)"

ORDINARY = {
    "TCP": (TCP, "socket"),
    "TCP with data": (FAST_OPEN, "socket"),
    "UDP": (UDP, "socket"),
    "Unix": (UNIX, "socket"),
    "abstract": (ABSTRACTLY, "socket"),
    "listening": (LISTEN, "socket"),
    "listening unbound": (LISTEN_UNBOUND, "socket"),
    "a pair of datagrams": (DATAGRAM_PAIR, "socketpair"),
    "netlink": ("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)", "socket"),
}
SPECIAL = {
    "a pair of streams": (STREAM_PAIR, "connect"),
    "raw": ("import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "socket"),
    "packets": ("import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)", "socket"),
    "vsock": ("import socket; socket.socket(40, socket.SOCK_STREAM).connect((2, 5001))", "socket"),
    "MPTCP": ("import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)", "socket"),
    "SMC": ("import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)", "socket"),
    "Bluetooth": ("import socket; socket.socket(31, socket.SOCK_RAW, 1)", "socket"),
    "cryptography": ("import socket; socket.socket(38, socket.SOCK_SEQPACKET)", "socket"),
}


@pytest.mark.parametrize("attempt", ORDINARY)
def test_nobody_is_reached(attempt: str, place: Place, servers: dict[str, Any]) -> None:
    code, name = ORDINARY[attempt]
    run(code, user=place.user, names=servers).refused(name)
    assert run_free(code, user=place.user, names=servers).error is None


@pytest.mark.parametrize("attempt", SPECIAL)
@pytest.mark.parametrize("network", ["none", "ports", "all"])
def test_other_kinds_of_sockets(attempt: str, network: str, place: Place, servers: dict[str, Any]) -> None:
    code, name = SPECIAL[attempt]
    policy = {"network": [servers["tcp"]] if network == "ports" else network}
    done = run(code, policy, user=place.user, names=servers)
    if name == "connect" and network != "none":
        done.refused(errors=("EISCONN", "EACCES"))
    else:
        done.refused(name)


def test_listed_ports_only(place: Place, servers: dict[str, Any]) -> None:
    policy = {"network": [servers["tcp"]]}
    assert run(TCP, policy, user=place.user, names=servers).result is True
    run(OTHER, policy, user=place.user, names=servers).refused()
    run(FAST_OPEN, policy, user=place.user, names=servers).refused("sendto")
    run(UDP, policy, user=place.user, names=servers).refused("socket")
    run(UNIX, policy, user=place.user, names=servers).refused("socket")
    run(LISTEN, policy, user=place.user, names=servers).refused("bind")
    run(LISTEN_UNBOUND, policy, user=place.user, names=servers).refused("listen")


def test_a_port_cannot_be_reached_by_hiding_flags(place: Place, servers: dict[str, Any]) -> None:
    """The kernel takes 32 bits of the flags: those above must not hide the ones below from the filter."""
    code = """
        import socket, struct
        it = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(other), bytes([127, 0, 0, 1]))
        flags = (1 << 32) | socket.MSG_FASTOPEN
        call(N["sendto"], it.fileno(), ctypes.c_char_p(b"x"), 1, flags, ctypes.c_char_p(address), 16)"""
    run(code, {"network": [servers["tcp"]]}, user=place.user, names=servers).refused("sendto")


def test_without_landlock_no_port_is_reached(place: Place, servers: dict[str, Any]) -> None:
    """What cannot be restricted to some ports is refused for all."""
    policy = {"network": [servers["tcp"]], "required": ["system_calls"]}
    done = run(TCP, policy, user=place.user, names=servers, lacking=["landlock_create_ruleset"])
    done.refused("socket")
    assert done.layers["tcp"][0] == "not_available"


def test_all_of_the_network(place: Place, servers: dict[str, Any]) -> None:
    for code in (TCP, OTHER, UDP, LISTEN):
        assert run(code, {"network": "all"}, user=place.user, names=servers).error is None
    run(UNIX, {"network": "all"}, user=place.user, names=servers).refused("socket")


def test_names_and_certificates(user: str) -> None:
    code = """
        import socket, ssl
        result = socket.gethostbyname("localhost"), ssl.create_default_context().verify_mode == ssl.CERT_REQUIRED"""
    assert run(code, {"network": "all"}, user=user).result == ["127.0.0.1", True]
    run("open('/etc/resolv.conf')", user=user).refused()


def test_unix_sockets(place: Place, servers: dict[str, Any]) -> None:
    policy = {"unix_sockets": True}
    assert run(UNIX, policy, user=place.user, names=servers).result is True
    # In a network of its own there is no such name.
    run(ABSTRACTLY, policy, user=place.user, names=servers).refused(errors=("EPERM", "ECONNREFUSED"))
    run(ABSTRACTLY, policy, user=place.user, names=servers, lacking=["unshare"]).refused(errors=("EPERM",))
    run(TCP, policy, user=place.user, names=servers).refused("socket")
    both = {"unix_sockets": True, "abstract_sockets": True}
    assert run(ABSTRACTLY, both, user=place.user, names=servers).result is True


def test_a_socket_is_made_where_the_policy_allows_it(place: Place) -> None:
    code = "import socket; it = socket.socket(socket.AF_UNIX); it.bind(own + '/socket'); it.listen(); result = True"
    policy = {"unix_sockets": True, "write": [str(place.own)]}
    assert run(code, policy, user=place.user, names=place.names).result is True
    run(code.replace("own", "outside"), policy, user=place.user, names=place.names).refused()


def test_programs_for_the_kernel(user: str) -> None:
    """Packet filters are programs that run in the kernel."""
    code = "import socket; one, other = socket.socketpair(); one.setsockopt(socket.SOL_SOCKET, 26, bytes(16))"
    run(code, user=user).refused("setsockopt")


@pytest.mark.parametrize(
    ("attempt", "name"),
    [
        ("it.getsockopt(socket.SOL_SOCKET, 77, 4)", "getsockopt"),
        ("it.setsockopt(socket.SOL_SOCKET, 76, 1)", "setsockopt"),
    ],
    ids=["asked for", "sent with each message"],
)
def test_the_host_as_a_descriptor(attempt: str, name: str, user: str) -> None:
    """The process at the other end of a socket: with its descriptor it could be signalled, and looked into."""
    run(f"import socket; it, other = socket.socketpair(); {attempt}", user=user).refused(name)
    plain = "import socket; it, other = socket.socketpair(); result = it.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)"
    assert run(plain, user=user).result == 1
