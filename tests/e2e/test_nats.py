"""What is special to ``nats://``: the NATS server, who may use it, and what becomes of connections without a side."""

from __future__ import annotations

import itertools
import resource
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import cli, route

from . import nats
from .ports import own_port
from .process import ServerProcess, run_program, start_program

pytestmark = pytest.mark.skipif(nats.PROGRAM is None, reason="there is no nats-server: make nats-server")

PATIENCE = 30.0


@nearcall.service
class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def who(self) -> str:
        return self.name

    @nearcall.oneway
    def note(self, number: int) -> None:
        NOTED.append(number)

    def echo(self, data: bytes) -> bytes:
        return data

    def sleep(self, seconds: float) -> None:
        ASLEEP.set()
        time.sleep(seconds)

    def peer(self) -> dict[str, Any]:
        return dict(nearcall.context().peer)


NOTED: list[int] = []
ASLEEP = threading.Event()
"""That a call waits at a server of this process."""


def services() -> list[Named]:
    return [Named("another")]


@pytest.fixture
def server() -> Iterator[nats.NatsServer]:
    with nats.NatsServer() as server:
        yield server


@pytest.fixture
def url(key: str) -> str:
    return f"nats://127.0.0.1:{nats.port()}/n{key}"


def test_nobody_serves_the_subject(url: str) -> None:
    with pytest.raises(nearcall.Unavailable, match="nobody serves this subject"):
        nearcall.connect(url, Named)


def test_there_is_no_nats_server(key: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{free.getsockname()[1]}/n{key}"
        with pytest.raises(nearcall.Unavailable, match="no NATS server listens there"):
            nearcall.connect(url, Named)
        with pytest.raises(OSError, match="no NATS server listens there"):
            nearcall.Server(Named("a"), url).start()


def test_servers_share_a_subject_by_connection(url: str) -> None:
    with nearcall.Server(Named("a"), url), nearcall.Server(Named("b"), url):
        seen: set[Any] = set()
        end = time.monotonic() + PATIENCE
        while len(seen) < 2:
            assert time.monotonic() < end, seen
            with nearcall.connect(url, Named) as client:
                first = client.who()
                assert {client.who() for _ in range(5)} == {first}
                seen.add(first)
                assert client.peer() == {"broker": f"nats://127.0.0.1:{nats.port()}"}


def test_small_payloads_and_long_messages(key: str, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("max_payload: 2000\n", encoding="utf-8")
    with nats.NatsServer("--config", str(config)) as server:
        url = f"nats://127.0.0.1:{server.port}/n{key}"
        with nearcall.Server(Named("a"), url), nearcall.connect(url, Named) as client:
            data = bytes(range(256)) * 20_000
            assert client.echo(data) == data


def test_the_nats_server_restarts(server: nats.NatsServer, key: str) -> None:
    url = f"nats://127.0.0.1:{server.port}/n{key}"
    with nearcall.Server(Named("a"), url), nearcall.connect(url, Named, wait_for_ready=True) as client:
        assert client.who() == "a"
        server.kill()
        server.start()
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with nearcall.timeout(PATIENCE):
                    assert client.who() == "a"
                return
            except nearcall.Unavailable:
                assert time.monotonic() < end


def test_a_call_ends_when_the_nats_server_does(server: nats.NatsServer, key: str) -> None:
    url = f"nats://127.0.0.1:{server.port}/n{key}"
    with ServerProcess(url, services="tests.e2e.test_nats:services"), nearcall.connect(url, Named) as client:
        ended: list[BaseException] = []
        waiting = threading.Thread(target=lambda: ended.append(failure_of(client)))
        waiting.start()
        server.kill()
        waiting.join(PATIENCE)
        assert isinstance(ended[0], nearcall.Unavailable)


def failure_of(client: Named) -> BaseException:
    try:
        client.sleep(PATIENCE)
    except BaseException as error:
        return error
    raise AssertionError("it came to its end")


def test_a_killed_server_is_noticed_by_a_call_that_waits(url: str) -> None:
    with ServerProcess(url, services="tests.e2e.test_nats:services") as process, nearcall.connect(url, Named) as client:
        ended: list[BaseException] = []
        waiting = threading.Thread(target=lambda: ended.append(failure_of(client)))
        waiting.start()
        process.kill()
        waiting.join(PATIENCE)
        assert isinstance(ended[0], nearcall.Unavailable)


ONE_WAY = """
import sys
from tests.e2e.test_nats import Named
import nearcall
client = nearcall.connect(sys.argv[1], Named)
for number in range(1000):
    client.note(number)
print("sent")
"""


def test_what_was_sent_arrives_though_the_program_ends(url: str) -> None:
    NOTED.clear()
    with nearcall.Server(Named("a"), url):
        said, complained, status = run_program(ONE_WAY, url, PYTHONDONTWRITEBYTECODE="1")
        assert (said, complained, status) == ("sent\n", "", 0)
        end = time.monotonic() + PATIENCE
        while len(NOTED) < 1000 and time.monotonic() < end:
            time.sleep(0.01)
    assert list(range(1000)) == NOTED


FORK = """
import os, sys
from tests.e2e.test_nats import Named
import nearcall
with nearcall.connect(sys.argv[1], Named) as client:
    print(client.who(), flush=True)
    child = os.fork()
    if child == 0:
        print(client.who(), flush=True)
        os._exit(0)
    print(os.waitpid(child, 0)[1], client.who(), flush=True)
"""


def test_a_forked_child_connects_anew(url: str) -> None:
    with nearcall.Server(Named("a"), url):
        said, _, status = run_program(FORK, url, PYTHONWARNINGS="ignore")
    assert (said, status) == ("a\na\n0 a\n", 0)


def test_who_may(key: str, tmp_path: Path) -> None:
    for options, good, bad in (
        (
            ("--user", "ada", "--pass", "se-cret"),
            nearcall.NATS(user="ada", password="se-cret"),
            nearcall.NATS(user="ada", password="no-secret"),
        ),
        (("--auth", "se-cret"), nearcall.NATS(token="se-cret"), nearcall.NATS(token="no-secret")),
    ):
        assert "secret" not in repr(good) + repr(bad)
        assert "se-cret" not in repr(good)
        with nats.NatsServer(*options) as server:
            url = f"nats://127.0.0.1:{server.port}/n{key}"
            with nearcall.Server(Named("a"), url, nats=good), nearcall.connect(url, Named, nats=good) as client:
                assert client.who() == "a"
                for wrong in (bad, None):
                    with pytest.raises(nearcall.PermissionDenied, match="does not take these credentials") as failed:
                        nearcall.connect(url, Named, nats=wrong)
                    assert "secret" not in str(failed.value)
            with pytest.raises(nearcall.InvalidArgument, match="does not take these credentials"):
                nearcall.Server(Named("a"), url, nats=bad).start()


def test_what_permissions_forbid_is_said(key: str, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(
        f"""
        authorization {{ users = [
            {{user: all, password: p}},
            {{user: deaf, password: p, permissions: {{subscribe: "_INBOX.>"}}}},
            {{user: mute, password: p, permissions: {{publish: "_INBOX.>"}}}},
            {{user: dumb, password: p, permissions: {{publish: "none", subscribe: ["n{key} nearcall", "_INBOX.>"]}}}},
        ] }}"""
    )
    with nats.NatsServer("--config", str(config)) as server:
        url = f"nats://127.0.0.1:{server.port}/n{key}"

        def user(name: str, inbox: str = "_INBOX") -> nearcall.NATS:
            return nearcall.NATS(user=name, password="p", inbox=inbox)

        cannot_listen = f"do not let this user subscribe to .n{key}"
        with pytest.raises(nearcall.InvalidArgument, match=cannot_listen):
            nearcall.Server(Named("a"), url, nats=user("deaf")).start()
        with nearcall.Server(Named("a"), url, nats=user("all")):
            with pytest.raises(nearcall.PermissionDenied, match=f"do not let this user publish at .n{key}"):
                nearcall.connect(url, Named, nats=user("mute"))
            with pytest.raises(nearcall.PermissionDenied, match=r"not let this user subscribe to ._INBOX_other"):
                nearcall.connect(url, Named, nats=user("deaf", "_INBOX_other"))
            with nearcall.connect(url, Named, nats=user("deaf")) as client:
                assert client.who() == "a"
        # It may publish where its clients are, of which the NATS server need not tell when it starts.
        nearcall.Server(Named("a"), url, nats=user("dumb")).start().stop()


def test_who_only_says_hello_takes_little_memory(url: str, key: str) -> None:
    """A thousand of them took a quarter of a gigabyte."""

    def memory() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    with nearcall.Server(Named("a"), url), nearcall.connect(url, Named) as client:
        client.who()
        raw = Raw()
        raw.say(b"SUB _INBOX.hello.* 1")
        before = memory()
        # What is allocated for the first time is not there until it is touched: so once more where others were.
        for _ in range(3):
            for number in range(400):
                raw.publish(f"n{key}", f"_INBOX.hello.{number}", b"nearcall/1")
            others = {raw.message()[0] for _ in range(400)}
            assert client.who() == "a"
            assert memory() - before < 400 * (64 << 10)
            for other in others:
                raw.publish(other, "_INBOX.hello.ended", b"malformed")
                # Or the server has hung up, since on a busy machine the first of them have said no more for too long.
                assert raw.ends() in (b"a message is malformed", b"")
        raw.socket.close()


def test_encrypted(key: str, certificates: Path, tmp_path: Path) -> None:
    options = ("--tls", "--tlscert", f"{certificates}/server.pem", "--tlskey", f"{certificates}/server.key")
    with nats.NatsServer(*options) as server:
        url = f"nats+tls://127.0.0.1:{server.port}/n{key}"
        with pytest.raises(nearcall.RpcError, match="the NATS server there does not speak TLS; write nats://"):
            nearcall.connect(f"nats+tls://127.0.0.1:{nats.port()}/n{key}", Named)
        trusting = nearcall.NATS(tls=nearcall.TLS(ca=certificates / "ca.pem"))
        with nearcall.Server(Named("a"), url, nats=trusting), nearcall.connect(url, Named, nats=trusting) as client:
            assert client.who() == "a"
            assert cli.main(["ping", url, "--nats-ca", str(certificates / "ca.pem"), "--count", "1"]) == 0
            assert cli.main(["ping", url, "--nats-credentials", str(tmp_path / "none.creds")]) == 2
            assert cli.main(["dev-certs", str(tmp_path), "127.0.0.1"]) == 0
            other = nearcall.NATS(tls=nearcall.TLS(ca=tmp_path / "ca.pem"))
            with pytest.raises(nearcall.RpcError, match="signed by nobody trusted here"):
                nearcall.connect(url, Named, nats=other)


def test_nothing_leaves_this_machine_unasked(key: str) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=r"192\.0\.2\.1 is not this machine"):
        nearcall.connect(f"nats://192.0.2.1:4222/n{key}", Named)
    with pytest.raises(nearcall.InvalidArgument, match="holds no password") as failed:
        nearcall.connect("nats://ada:secret@127.0.0.1/calc", Named)
    assert "secret" not in str(failed.value)


def test_options_say_what_is_wrong() -> None:
    for options, said in (
        ({"user": "ada"}, "belong together"),
        ({"token": "a", "nkey": "b"}, "takes one of"),
        ({"inbox": "answers"}, "begins with _INBOX"),
        ({"credentials": "/nowhere/x.creds"}, "cannot be read"),
        ({"credentials": b"nothing"}, "has no user's token and seed"),
    ):
        with pytest.raises(nearcall.InvalidArgument, match=said):
            nearcall.connect("nats://127.0.0.1:1/calc", Named, nats=nearcall.NATS(**options))
    with pytest.raises(ValueError, match="nats is for nats:// URLs"):
        nearcall.connect("shm://calc", Named, nats=nearcall.NATS(token="a"))
    with pytest.raises(ValueError, match=r"write nats=NATS\(tls=TLS"):
        nearcall.connect("nats+tls://127.0.0.1/calc", Named, tls=nearcall.TLS())


class Raw:
    """A client of NATS' own protocol, without nearcall."""

    def __init__(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", nats.port()), timeout=PATIENCE)
        self.file = self.socket.makefile("rb")
        self.file.readline()
        self.say(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}')

    def say(self, line: bytes) -> None:
        self.socket.sendall(line + b"\r\n")

    def publish(self, subject: str, reply: str, data: bytes) -> None:
        self.say(f"PUB {subject} {reply} {len(data)}".encode() + b"\r\n" + data)

    def message(self) -> tuple[str, bytes]:
        """Where the next message wants its answer, and its data; those of the NATS server itself have none."""
        while True:
            words = self.file.readline().split()
            if words[0] == b"PING":
                self.say(b"PONG")
            elif words[0] in (b"MSG", b"HMSG"):
                data = self.file.read(int(words[-1]) + 2)[:-2]
                return (words[3].decode(), data) if words[0] == b"MSG" and len(words) == 5 else ("", b"")

    def hello(self, subject: str, inbox: str = "_INBOX.raw") -> str:
        self.say(f"SUB {inbox} 1".encode())
        self.publish(subject, inbox, b"nearcall/1")
        self.other, answer = self.message()
        assert answer == bytes(17)
        return self.other

    def ends(self) -> bytes:
        """The text of the last message of the other side."""
        while True:
            _, data = self.message()
            if data[:1] == b"\x01":
                return data[17:]


def head(number: int, taken: int = 0, flags: int = 0) -> bytes:
    return bytes([flags]) + number.to_bytes(8, "little") + taken.to_bytes(8, "little")


def test_hostile_messages_end_their_own_connection_only(url: str, key: str) -> None:
    attacks = {
        "short": [b"x"],
        "flags": [head(0, flags=6)],
        "a gap": [head(0), head(2)],
        "twice": [head(0), head(0)],
        "more taken than sent": [head(0, taken=1)],
        "too much": [head(number) + bytes(200_000) for number in range(40)],
        "no handshake": [head(0) + b"GET / HTTP/1.1\r\n\r\n"],
    }
    with nearcall.Server(Named("a"), url), nearcall.connect(url, Named) as honest:
        for number, (name, messages) in enumerate(attacks.items()):
            raw = Raw()
            inbox = f"_INBOX.raw{key}-{number}"
            other = raw.hello(f"n{key}", inbox)
            for message in messages:
                raw.publish(other, inbox, message)
            raw.ends()
            assert honest.who() == "a", name
            raw.socket.close()
        # Nothing is published where a client likes, and what is no hello is not answered.
        raw = Raw()
        raw.say(f"SUB secret.{key} 1".encode())
        raw.publish(f"n{key}", f"secret.{key}", b"nearcall/1")
        raw.say(f"SUB _INBOX.{key} 2".encode())
        raw.publish(f"n{key}", f"_INBOX.{key}", b"something else")
        raw.publish(f"n{key}", f"_INBOX.{key}", b"nearcall/2")
        assert raw.message()[1] == head(0, flags=1) + b"this server speaks another version of nearcall over NATS"
        raw.socket.close()
        assert honest.who() == "a"


def test_a_client_that_vanishes_is_forgotten(url: str, key: str) -> None:
    gone = threading.Event()
    with (
        nearcall.Server(Named("a"), url, on_disconnect=lambda _: gone.set()),
        start_program(FORGOTTEN, url) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "a\n"
        process.kill()
        assert gone.wait(PATIENCE)


FORGOTTEN = """
import sys, time
from tests.e2e.test_nats import Named
import nearcall
client = nearcall.connect(sys.argv[1], Named)
print(client.who(), flush=True)
sys.stdin.read()
"""


def test_workers_share_a_subject(url: str) -> None:
    code = """
import sys, nearcall
from tests.e2e.test_nats import Pid
nearcall.serve(Pid, sys.argv[1], workers=2, on_ready=lambda urls: print("ready", flush=True))
"""
    with start_program(code, url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        seen: set[Any] = set()
        end = time.monotonic() + PATIENCE
        while len(seen) < 2:
            assert time.monotonic() < end, seen
            with ExitStack() as stack:
                clients = [stack.enter_context(nearcall.connect(url, Pid)) for _ in range(4)]
                seen |= {client.pid() for client in clients}
        process.terminate()


@nearcall.service
class Pid:
    def pid(self) -> int:
        import os

        return os.getpid()


def test_nodes_of_the_router_take_turns_at_a_subject(url: str) -> None:
    seen: list[bytes] = []
    names = itertools.count()
    with ExitStack() as stack:
        for _ in range(2):
            node = route.Node(url, name=f"n{next(names)}")
            node.on(1)(lambda message: seen.append(message.payload))
            stack.enter_context(node)
        sender = stack.enter_context(route.Node(f"{url}-sender"))
        sender.install(f"newrt | start | t\nrte | 1 | {url}\nnewrt | end | 1\n")
        sender.ready(PATIENCE)
        for number in range(100):
            sender.send(1, b"%d" % number)
        end = time.monotonic() + PATIENCE
        while len(seen) < 100 and time.monotonic() < end:
            time.sleep(0.01)
    assert seen == [b"%d" % number for number in range(100)]


def test_the_first_server_of_a_url_that_is_there_is_used(key: str) -> None:
    with nats.NatsServer() as first, nats.NatsServer() as second, ExitStack() as stack:
        for name, server in (("first", first), ("second", second)):
            stack.enter_context(nearcall.Server(Named(name), f"nats://127.0.0.1:{server.port}/n{key}"))
        both = f"nats://127.0.0.1:{first.port},127.0.0.1:{second.port}/n{key}"
        for _ in range(10):
            with nearcall.connect(both, Named) as client:
                assert client.who() == "first"
        first.kill()
        with nearcall.connect(both, Named) as client:
            assert client.who() == "second"


class Cluster:
    """Three nats-servers that are one cluster."""

    def __init__(self, stack: ExitStack) -> None:
        routes = [own_port() for _ in range(3)]
        listed = ",".join(f"nats://127.0.0.1:{port}" for port in routes)
        self.servers = [
            stack.enter_context(
                nats.NatsServer("--cluster_name", "three", "--cluster", f"nats://127.0.0.1:{port}", "--routes", listed)
            )
            for port in routes
        ]

    def hosts(self, first: int) -> str:
        """All three, as a URL lists them; the one that is used comes first."""
        order = self.servers[first:] + self.servers[:first]
        return ",".join(f"127.0.0.1:{server.port}" for server in order)


def test_one_of_a_cluster_is_killed(key: str) -> None:
    with ExitStack() as stack:
        cluster = Cluster(stack)
        # The calls' client and the nodes' sender are at the server that dies; who takes is at others.
        far, near = f"nats://{cluster.hosts(1)}/n{key}", f"nats://{cluster.hosts(0)}/n{key}"
        stack.enter_context(nearcall.Server(Named("a"), far))
        seen: list[bytes] = []
        node = route.Node(f"nats://127.0.0.1:{cluster.servers[2].port}/r{key}")
        node.on(1)(lambda message: seen.append(message.payload))
        stack.enter_context(node)
        other = stack.enter_context(route.Node(f"shm://{key}-sender"))
        end = time.monotonic() + PATIENCE
        until_met(f"nats://127.0.0.1:{cluster.servers[0].port}/n{key}", end)
        client = stack.enter_context(nearcall.connect(near, Named, wait_for_ready=True))
        assert client.who() == "a"
        # The same subject by way of each of the three: a group leaves out what is not there.
        ways = ", ".join(f"nats://127.0.0.1:{server.port}/r{key}" for server in cluster.servers)
        other.install(f"newrt | start | t\nrte | 1 | {ways}\nnewrt | end | 1\n")
        other.ready(PATIENCE)
        other.send(1, b"before")
        ended: list[BaseException] = []
        ASLEEP.clear()
        waiting = threading.Thread(target=lambda: ended.append(failure_of(client)))
        waiting.start()
        assert ASLEEP.wait(PATIENCE)
        cluster.servers[0].kill()
        waiting.join(PATIENCE)
        assert isinstance(ended[0], nearcall.Unavailable)
        with nearcall.timeout(PATIENCE):
            assert client.who() == "a"
        number = 0
        while b"after" not in b" ".join(seen):
            assert time.monotonic() < end, (seen, other.status())
            other.send(1, b"after %d" % (number := number + 1))
            time.sleep(0.01)
        # Once the killed one is left out, each message comes.
        until_left_out(other, end)
        first = number + 1
        for number in range(first, first + 20):
            other.send(1, b"after %d" % number)
        expected = {b"after %d" % number for number in range(first, first + 20)}
        while not expected <= set(seen):
            assert time.monotonic() < end, (seen, other.status())
            time.sleep(0.01)


def until_met(url: str, end: float) -> None:
    """Waits until the servers of a cluster have found each other. A client that knows all would go to the next."""
    while True:
        try:
            with nearcall.connect(url, Named, wait_for_ready=True):
                return
        except nearcall.Unavailable:
            assert time.monotonic() < end


def until_left_out(node: route.Node, end: float) -> None:
    while sum(endpoint.connected for endpoint in node.status().endpoints) != 2:
        assert time.monotonic() < end, node.status()
        time.sleep(0.01)


def served(url: str, login: nearcall.NATS) -> None:
    nearcall.Server(Named("a"), url, nats=login).start()


SECRETS = ("se-cret", "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y")


def test_credentials_are_in_no_error_and_no_log(key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    config = tmp_path / "nats.conf"
    public = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK"
    config.write_text(f"authorization {{ users = [ {{ nkey: {public} }} ] }}\n", encoding="utf-8")
    password, seed = SECRETS
    said: list[str] = []
    with nats.NatsServer("--config", str(config)) as server, nats.NatsServer("--auth", password) as tokens:
        url, other = (f"nats://127.0.0.1:{each.port}/n{key}" for each in (server, tokens))
        good = nearcall.NATS(nkey=seed)
        with nearcall.Server(Named("a"), url, nats=good), nearcall.connect(url, Named, nats=good) as client:
            assert client.who() == "a"
        # Each is right elsewhere, and malformed or refused here.
        for where, wrong in (
            (other, good),
            (url, nearcall.NATS(token=password)),
            (url, nearcall.NATS(user="ada", password=password)),
            (url, nearcall.NATS(nkey=seed[:-1] + "A")),
            (url, nearcall.NATS(credentials=f"-----BEGIN USER NKEY SEED-----\n{seed}\n".encode())),
        ):
            said.append(repr(wrong))
            for act in (partial(nearcall.connect, where, Named, nats=wrong), partial(served, where, wrong)):
                with pytest.raises((nearcall.RpcError, OSError)) as failed:
                    act()
                said.append("".join(traceback.format_exception(failed.value)))
            with route.Node(f"shm://{key}-node", nats=wrong) as node:
                node.install(f"newrt | start | t\nrte | 1 | {where}\nnewrt | end | 1\n")
                while (failure := node.status().endpoints[0].failure) is None:
                    time.sleep(0.005)
                said += [failure, repr(node.status())]
    everything = "\n".join([*said, caplog.text])
    # A traceback shows the lines of this file, but no values.
    assert not any(secret in everything for secret in (password, seed, seed[:-1]))
