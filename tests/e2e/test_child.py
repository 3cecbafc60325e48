"""``nearcall.spawn``, ``stdio:`` and ``fd://``: connections that a process is born with."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearcall

from ..survival.observing import eventually
from .children import Workshop
from .process import ROOT

PATIENCE = 30.0
PROGRAM = "tests.e2e.children"


def command(what: str, *more: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", PROGRAM, what, *more]


def children() -> set[str]:
    """The processes that this one has started and not buried."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(params=["socket", "pipes"])
def child(request: pytest.FixtureRequest) -> Iterator[nearcall.Child[Workshop]]:
    """One over the pair of sockets, and one that sits behind pipes, as at the other end of ssh."""
    pipes = request.param == "pipes"
    spawned = nearcall.spawn(command("relay" if pipes else "serve"), Workshop, cwd=ROOT, pipes=pipes)
    yield spawned
    spawned.close()
    assert spawned.process.returncode == 0


def test_it_is_called_as_any_other(child: nearcall.Child[Workshop], tmp_path: Path) -> None:
    workshop = child.service
    assert workshop.pid() not in (0, os.getpid())
    for size in (0, 15, 70_000, 5_000_000):
        data = os.urandom(size)
        assert workshop.echo(data) == data
    assert list(workshop.count(2000)) == list(range(2000))
    assert workshop.total(iter(range(2000))) == 1_999_000
    workshop.note(str(tmp_path / "note"))
    eventually((tmp_path / "note").exists, "the one-way call does not arrive")
    with nearcall.timeout(0.2), pytest.raises(nearcall.DeadlineExceeded):
        workshop.never()


def test_what_it_prints_and_reads_never_touches_the_protocol(child: nearcall.Child[Workshop]) -> None:
    for number in range(20):
        child.say(f"line {number}")
        assert child.echo(b"x") == b"x"
    assert child.ask() == ""


def test_output_goes_where_it_was_sent(tmp_path: Path) -> None:
    with (
        (tmp_path / "out").open("wb") as out,
        nearcall.spawn(command("serve"), Workshop, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT) as workshop,
    ):
        workshop.say("hello")
    assert (tmp_path / "out").read_text() == "hello\nraw\nover\n"


def test_long_messages_go_through_shared_memory() -> None:
    with nearcall.spawn(command("serve"), Workshop, cwd=ROOT) as workshop:
        assert workshop.echo(bytes(1_000_000)) == bytes(1_000_000)
        maps = Path(f"/proc/{workshop.pid()}/maps").read_text()
        assert "nearcall-message" in maps


def test_without_a_class_it_is_dynamic() -> None:
    with nearcall.spawn(command("serve"), cwd=ROOT) as workshop:
        assert workshop.echo(b"x") == b"x"


def test_closing_ends_it() -> None:
    before = open_files()
    for _ in range(3):
        child = nearcall.spawn(command("serve"), Workshop, cwd=ROOT)
        assert child.process.poll() is None
        child.close()
        child.close()
        assert child.process.returncode == 0
        with pytest.raises(nearcall.Cancelled):
            child.echo(b"x")
        del child
    assert open_files() == before


def test_one_that_does_not_end_is_ended() -> None:
    code = "import signal, nearcall\nfrom tests.e2e.children import Workshop\n"
    code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "server = nearcall.Server(Workshop(), 'stdio:').start()\nwhile True: signal.pause()"
    child = nearcall.spawn([sys.executable, "-c", code], Workshop, cwd=ROOT, grace=0.2)
    assert child.echo(b"x") == b"x"
    child.close()
    assert child.process.returncode == -signal.SIGKILL


def test_one_that_dies_is_told_and_not_started_again() -> None:
    with nearcall.spawn(command("serve"), Workshop, cwd=ROOT) as workshop:
        caught: list[BaseException] = []

        def call() -> None:
            try:
                workshop.never()
            except nearcall.RpcError as error:
                caught.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        os.kill(workshop.pid(), signal.SIGKILL)
        caller.join(PATIENCE)
        assert isinstance(caught[0], nearcall.Unavailable)
        with pytest.raises(nearcall.Unavailable, match="cannot be made again"):
            workshop.echo(b"x")


@pytest.mark.parametrize("how", ["idle", "stuck"])
def test_it_dies_with_whoever_started_it(how: str) -> None:
    with subprocess.Popen(command("parent", how), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.kill()
        parent.wait(PATIENCE)

        def gone() -> bool:
            with contextlib.suppress(OSError):
                return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            return True

        eventually(gone, "the child lives on")


def test_the_child_may_be_the_one_that_calls() -> None:
    ours, theirs = socket.socketpair()
    with nearcall.Server(Workshop(), f"fd://{ours.detach()}") as server:
        done = subprocess.run(command("calls"), cwd=ROOT, stdin=theirs, stdout=subprocess.PIPE, check=True)
        theirs.close()
        assert int(done.stdout) == os.getpid()
        # Nobody else can come.
        assert server.wait(PATIENCE)


def test_one_process_may_have_both_ends() -> None:
    ours, theirs = socket.socketpair()
    with (
        nearcall.Server(Workshop(), f"fd://{ours.detach()}") as server,
        nearcall.connect(f"fd://{theirs.detach()}", Workshop) as workshop,
    ):
        assert workshop.pid() == os.getpid()
        assert re.fullmatch(r"fd://\d+", server.urls[0])


def test_a_tcp_connection_may_be_inherited_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    # As asyncio leaves sockets.
    ours.setblocking(False)
    with (
        nearcall.Server(Workshop(), f"fd://{theirs.detach()}"),
        nearcall.connect(f"fd://{ours.detach()}", Workshop) as workshop,
    ):
        assert workshop.echo(bytes(1_000_000)) == bytes(1_000_000)
        assert list(workshop.count(100)) == list(range(100))


def test_a_program_that_does_not_serve_is_told_from_one_that_ends() -> None:
    with pytest.raises(nearcall.Unavailable, match=r"^false ended with status 1 before it served"):
        nearcall.spawn(["false"], Workshop)
    with pytest.raises(nearcall.DeadlineExceeded, match=r"^sleep 60 did not serve in time; .*'stdio:'"):
        nearcall.spawn(["sleep", "60"], Workshop, handshake_timeout=0.2)
    with pytest.raises(FileNotFoundError):
        nearcall.spawn(["/no/such/program"], Workshop)
    with pytest.raises(TypeError, match="spawn takes a list"):
        nearcall.spawn("sleep 60", Workshop)
    with pytest.raises(ValueError, match="carries the protocol"):
        nearcall.spawn(["sleep", "60"], Workshop, pipes=True, stdout=subprocess.DEVNULL)


def test_nothing_is_left_of_one_that_could_not_be_reached() -> None:
    before, alive = open_files(), children()

    @nearcall.service(name="Workshop")
    class Other:
        def pid(self) -> str: ...

    for options in ({"ring_size": 3}, {"no_such_option": 1}):
        with pytest.raises((nearcall.InvalidArgument, TypeError)):
            nearcall.spawn(command("serve"), Workshop, cwd=ROOT, **options)
    with pytest.raises(nearcall.FailedPrecondition, match=r"Workshop\.pid"):
        nearcall.spawn(command("serve"), Other, cwd=ROOT)
    assert open_files() == before
    assert children() <= alive


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("fd://3x", "write fd://3"),
        ("fd://1", "write stdio:"),
        ("fd://1000000", "descriptor 1000000 is not open"),
        ("stdio://x", "write only stdio:"),
    ],
)
def test_bad_urls_say_what_to_write(url: str, hint: str) -> None:
    for use in (lambda: nearcall.connect(url, Workshop), lambda: nearcall.Server(Workshop(), url).start()):
        with pytest.raises(nearcall.InvalidArgument, match=hint):
            use()


def test_what_is_no_connection_is_refused_and_left_alone(tmp_path: Path) -> None:
    with (
        (tmp_path / "file").open("w") as file,
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        for one, hint in (
            (file, "is no socket"),
            (listening, "no connected stream"),
            (datagrams, "no connected stream"),
        ):
            for _ in range(2):
                with pytest.raises(nearcall.InvalidArgument, match=hint):
                    nearcall.connect(f"fd://{one.fileno()}", Workshop)
            os.fstat(one.fileno())


def test_there_is_one_client_so_there_are_no_workers() -> None:
    with pytest.raises(ValueError, match="fd:// and stdio: have one client"):
        nearcall.serve(Workshop, "stdio:", workers=2)


def test_a_terminal_is_no_connection() -> None:
    code = "import nearcall\nfrom tests.e2e.children import Workshop\nnearcall.serve(Workshop(), 'stdio:')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "cannot serve stdio: standard input and output are no pipes or sockets" in done.stderr


def test_other_clients_of_the_same_server_are_served_on(runtime_dir: Path) -> None:
    ours, theirs = socket.socketpair()
    name = f"shm://beside-{os.getpid()}"
    with nearcall.Server(Workshop(), f"fd://{ours.detach()}", name) as server:
        with nearcall.connect(f"fd://{theirs.detach()}", Workshop) as first:
            assert first.echo(b"x") == b"x"
        with nearcall.connect(name, Workshop) as second:
            assert second.echo(b"y") == b"y"
            assert not server.wait(0)
