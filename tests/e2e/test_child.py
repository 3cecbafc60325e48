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
from typing import Any

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


def last_words(workshop: Workshop) -> str:
    """What a call says when the child has ended: before that, for a moment, that it has hung up."""
    said = "has hung up, and runs on"
    while "has hung up, and runs on" in said:
        with pytest.raises(nearcall.Unavailable) as caught:
            workshop.echo(b"x")
        said = caught.value.message
    return said


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


def test_errors_name_the_program_and_its_process() -> None:
    """The number of a descriptor says nothing to users."""
    with nearcall.spawn(command("serve"), Workshop, cwd=ROOT) as workshop:
        pid = workshop.pid()
        name = rf"\S*python\S* -W error -m tests\.e2e\.children serve \(process {pid}\)"
        assert re.fullmatch(f"<Workshop at {name}>", repr(workshop))
        with (
            nearcall.timeout(0.05),
            pytest.raises(nearcall.DeadlineExceeded, match=f"never at {name} did not"),
        ):
            workshop.never()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(nearcall.Unavailable, match=f"{name} (was lost|has hung up)|serve ended by signal 9"):
            workshop.echo(b"x")
    with pytest.raises(nearcall.Cancelled, match=f"{name} was closed"):
        workshop.echo(b"x")


def test_a_long_command_is_cut_in_errors() -> None:
    code = "import sys\n" + "# and so on\n" * 50 + "sys.exit(3)"
    with pytest.raises(nearcall.Unavailable) as caught:
        nearcall.spawn([sys.executable, "-c", code], Workshop)
    assert len(caught.value.message) < 200
    assert "… ended with status 3 before it served" in caught.value.message


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
        assert last_words(workshop).endswith("children serve ended by signal 9: spawn another one")


def test_one_that_has_stopped_is_not_waited_for() -> None:
    """Another server may take over from one that has said goodbye, but not from this one."""
    with nearcall.spawn(command("serve"), Workshop, cwd=ROOT) as workshop:
        os.kill(workshop.pid(), signal.SIGTERM)

        def call_until_it_fails() -> None:
            while True:
                workshop.echo(b"x")

        with pytest.raises(nearcall.Unavailable):
            call_until_it_fails()
        assert last_words(workshop).endswith("serve ended with status 0: spawn another one")


def test_a_fork_cannot_call_it() -> None:
    with nearcall.spawn(command("serve"), Workshop, cwd=ROOT) as workshop:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                workshop.pid()
            except nearcall.Unavailable as error:
                os.write(writing, error.message.encode())
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(writing)
        with open(reading) as told:
            assert f"belongs to process {os.getpid()}" in told.read()
        assert workshop.echo(b"x") == b"x"


@pytest.mark.parametrize("how", ["idle", "stuck", "forked"])
def test_it_dies_with_whoever_started_it(how: str) -> None:
    with subprocess.Popen(command("parent", how), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        # A fork of the parent lives on, and must not hold the connection.
        fork = int(parent.stdout.readline()) if how == "forked" else None
        parent.kill()
        parent.wait(PATIENCE)

        def gone() -> bool:
            with contextlib.suppress(OSError):
                return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            return True

        eventually(gone, "the child lives on")
        if fork is not None:
            os.kill(fork, signal.SIGKILL)


def test_the_child_may_be_the_one_that_calls() -> None:
    ours, theirs = socket.socketpair()
    with ours, nearcall.Server(Workshop(), f"fd://{ours.fileno()}") as server:
        done = subprocess.run(command("calls"), cwd=ROOT, stdin=theirs, stdout=subprocess.PIPE, check=True)
        theirs.close()
        assert int(done.stdout) == os.getpid()
        # Nobody else can come.
        assert server.wait(PATIENCE)


def test_one_process_may_have_both_ends() -> None:
    ours, theirs = socket.socketpair()
    with (
        nearcall.Server(Workshop(), f"fd://{ours.fileno()}") as server,
        nearcall.connect(f"fd://{theirs.fileno()}", Workshop) as workshop,
    ):
        # They use copies.
        ours.close()
        theirs.close()
        assert workshop.pid() == os.getpid()
        assert re.fullmatch(r"fd://\d+", server.urls[0])


def test_who_has_a_descriptor_closes_it() -> None:
    """And nobody else: its number may be another one's by then."""
    ours, theirs = socket.socketpair()
    before = open_files()
    with (
        nearcall.Server(Workshop(), f"fd://{ours.fileno()}") as server,
        nearcall.connect(f"fd://{theirs.fileno()}", Workshop) as workshop,
    ):
        assert workshop.echo(b"x") == b"x"
    assert server.wait(PATIENCE)
    del server, workshop
    os.fstat(ours.fileno()), os.fstat(theirs.fileno())
    assert open_files() <= before + 1  # that of the client that was closed
    ours.close()
    theirs.close()


def test_a_connection_is_used_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, nearcall.Server(Workshop(), f"fd://{ours.fileno()}"):
        for twice in (f"fd://{ours.fileno()}", f"fd://{os.dup(ours.fileno())}"):
            with pytest.raises(nearcall.InvalidArgument, match="is in use, or was, by another client or server"):
                nearcall.Server(Workshop(), twice).start()
        with nearcall.connect(f"fd://{theirs.fileno()}", Workshop) as workshop:
            with pytest.raises(nearcall.InvalidArgument, match="is in use, or was"):
                nearcall.connect(f"fd://{theirs.fileno()}", Workshop)
            assert workshop.echo(b"x") == b"x"


def test_a_process_that_nobody_knows_has_no_number() -> None:
    """0 would be one: for a signal it stands for a whole group of processes."""
    with nearcall.spawn(command("serve"), Workshop, cwd=ROOT) as workshop:
        assert workshop.pid() > 0
    client = nearcall.spawn(command("serve"), Workshop, cwd=ROOT)
    assert client.peer == {"uid": os.getuid(), "gid": os.getgid()}
    client.close()


CLOSED = """
import os, sys, nearcall
from tests.e2e.children import Workshop
report = os.dup(1)
for number in map(int, sys.argv[1]):
    os.close(number)
command = [sys.executable, "-m", "tests.e2e.children", "serve"]
with nearcall.spawn(command, Workshop, pipes="pipes" in sys.argv) as workshop:
    workshop.say("hello")
    os.write(report, b"served" if workshop.echo(bytes(1_000_000)) == bytes(1_000_000) else b"")
"""


@pytest.mark.parametrize("pipes", ["socket", "pipes"])
@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
def test_a_daemon_may_spawn(closed: str, pipes: str) -> None:
    """One that has closed what it does not need: the next sockets get these numbers."""
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, closed, pipes],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert b"served" in done.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_child_may_have_closed_what_it_prints_to(closed: str) -> None:
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *command("serve")]
    with nearcall.spawn(shell, Workshop, cwd=ROOT) as workshop:
        workshop.say("hello")
        assert workshop.echo(b"x") == b"x"
        assert all(number in workshop.open() for number in (0, 1, 2))


def test_which_standard_descriptor_is_closed_is_said() -> None:
    code = "import nearcall\nfrom tests.e2e.children import Workshop\nnearcall.serve(Workshop(), 'stdio:')"
    shell = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", code]
    done = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "descriptor 0 (standard input) is closed" in done.stderr


def test_a_tcp_connection_may_be_inherited_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    # As asyncio leaves sockets.
    ours.setblocking(False)
    with (
        ours,
        theirs,
        nearcall.Server(Workshop(), f"fd://{theirs.fileno()}"),
        nearcall.connect(f"fd://{ours.fileno()}", Workshop) as workshop,
    ):
        assert workshop.echo(bytes(1_000_000)) == bytes(1_000_000)
        assert list(workshop.count(100)) == list(range(100))


def test_a_program_that_does_not_serve_is_told_from_one_that_ends() -> None:
    with pytest.raises(nearcall.Unavailable, match=r"^false ended with status 1 before it served"):
        nearcall.spawn(["false"], Workshop)
    with pytest.raises(
        nearcall.DeadlineExceeded, match=r"^sleep 60 did not serve within 0\.\d s; .*'stdio:'.*handshake_timeout"
    ):
        nearcall.spawn(["sleep", "60"], Workshop, handshake_timeout=0.2)
    with nearcall.timeout(0.2), pytest.raises(nearcall.DeadlineExceeded, match=r"^sleep 60 did not serve within"):
        nearcall.spawn(["sleep", "60"], Workshop)
    with pytest.raises(FileNotFoundError):
        nearcall.spawn(["/no/such/program"], Workshop)
    wrong: list[tuple[Any, type[Exception], str]] = [
        ("sleep '6 0'", TypeError, r"spawn takes a list, with each argument by itself: write \['sleep', '6 0'\]"),
        ([], ValueError, "this one is empty"),
        ([b"sleep", b"60"], TypeError, r"must be str or paths, not b'sleep'"),
    ]
    for what, error, hint in wrong:
        with pytest.raises(error, match=hint):
            nearcall.spawn(what, Workshop)
    output: Any = "x"
    with pytest.raises(TypeError, match="stdout must be an open file"):
        nearcall.spawn(["sleep", "60"], Workshop, stdout=output)
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
    with ours, theirs, nearcall.Server(Workshop(), f"fd://{ours.fileno()}", name) as server:
        with nearcall.connect(f"fd://{theirs.fileno()}", Workshop) as first:
            assert first.echo(b"x") == b"x"
        with nearcall.connect(name, Workshop) as second:
            assert second.echo(b"y") == b"y"
            assert not server.wait(0)
