"""Which users may connect to unix://."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .process import run_program, start_program
from .services import Basics

OTHER = 65534
GROUP = 54321
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")

CODE = """
import os, sys
import nearcall
from tests.e2e.test_admission import Adder
uid, gid, extra = map(int, sys.argv[2:])
os.setgroups([extra])
os.setgid(gid)
os.setuid(uid)
try:
    with nearcall.connect(sys.argv[1], Adder) as adder:
        print(adder.add(1))
except nearcall.RpcError as error:
    print(type(error).__name__, error.message)
"""


@nearcall.service
class Adder:
    def add(self, a: int, b: int = 5) -> int:
        return a + b


over_sockets = pytest.mark.parametrize("scheme", ["unix", "grpc+unix"])


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter."""
    directory = Path(tempfile.mkdtemp(prefix="nc-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def as_other(url: str, uid: int = OTHER, gid: int = OTHER, extra: int = OTHER) -> str:
    """What a client of another user prints."""
    said, complained, status = run_program(CODE, url, str(uid), str(gid), str(extra))
    assert (complained, status) == ("", 0)
    return said


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@needs_root
@pytest.mark.parametrize(
    "options",
    [
        {"allow_users": [OTHER]},
        {"allow_users": [pwd.getpwuid(OTHER).pw_name]},
        {"allow_groups": [OTHER]},
        {"allow_groups": [GROUP]},
        {"allow_users": [1], "allow_groups": [grp.getgrgid(OTHER).gr_name]},
    ],
    ids=str,
)
@over_sockets
def test_a_user_that_is_named_may_call(place: Path, scheme: str, options: dict[str, Any]) -> None:
    with nearcall.Server(Adder(), f"{scheme}://{place}/s", **options) as server:
        assert mode(place / "s") == 0o666
        assert as_other(server.urls[0], extra=GROUP) == "6\n"
        with nearcall.connect(server.urls[0], Adder) as adder:  # the own user always may
            assert adder.add(1) == 6


@needs_root
@pytest.mark.parametrize("scheme", ["unix", "grpc+unix"])
def test_a_user_that_is_not_named_may_not(place: Path, scheme: str) -> None:
    with nearcall.Server(Adder(), f"{scheme}://{place}/s", allow_users=[1], allow_groups=[1]) as server:
        said = as_other(server.urls[0])
        assert said.startswith("PermissionDenied")
        assert f"you are user {OTHER}, whom neither allow_users nor allow_groups of this server name" in said
    with nearcall.Server(Adder(), f"{scheme}://{place}/s") as server:
        assert mode(place / "s") == 0o600
        assert as_other(server.urls[0]).startswith("PermissionDenied")
        # The kernel's word counts, not the file's mode.
        (place / "s").chmod(0o666)
        assert f"this server serves user 0 only, you are user {OTHER}" in as_other(server.urls[0])


@needs_root
def test_a_server_of_another_name_space_stays_closed(place: Path, key: str) -> None:
    with nearcall.Server(Adder(), f"unix://{place}/s", f"shm://{key}", allow_users=[OTHER]) as server:
        assert as_other(server.urls[0]) == "6\n"
        runtime = Path(os.environ["XDG_RUNTIME_DIR"]) / "nearcall"
        assert mode(runtime) == 0o700
        assert mode(runtime / f"{key}.sock") == 0o600


def test_names_and_uses_are_checked(place: Path) -> None:
    url = f"unix://{place}/s"
    with pytest.raises(nearcall.InvalidArgument, match="there is no user 'no such user'"):
        nearcall.Server(Basics(), url, allow_users=["no such user"])
    with pytest.raises(nearcall.InvalidArgument, match="there is no group 'no such group'"):
        nearcall.Server(Basics(), url, allow_groups=["no such group"])
    with pytest.raises(TypeError, match=r"write allow_users=\['root'\]"):
        nearcall.Server(Basics(), url, allow_users="root")
    with pytest.raises(ValueError, match="for unix:// URLs, and there is none"):
        nearcall.Server(Basics(), "shm://x", allow_users=["root"])
    with nearcall.Server(Basics(), url, allow_users=[pwd.getpwuid(os.getuid()).pw_name]) as server:
        nearcall.connect(server.urls[0], Basics).close()


SERVER = """
import os, sys
import nearcall
os.environ.pop("NEARCALL_TEST_CERTIFICATES", None)  # whose key that user may not read
from tests.e2e.services import Basics
uid, gid = map(int, sys.argv[2:])
os.setgroups([])
os.setgid(gid)
os.setuid(uid)
with nearcall.Server(Basics(), sys.argv[1], allow_users=[0, 1]) as server:
    print("serving", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def served_by_other(url: str) -> Iterator[None]:
    """A server of another user."""
    with start_program(SERVER, url, str(OTHER), str(GROUP)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        yield
        process.communicate("", timeout=20)


@needs_root
def test_a_client_checks_whose_server_it_is(place: Path) -> None:
    place.chmod(0o777)
    url = f"unix://{place}/s"
    refusal = (
        f"its server is user {OTHER}, not you \\(user 0\\) or root; if you trust it, say allow_users=\\[{OTHER}\\]"
    )
    with served_by_other(url):
        with pytest.raises(nearcall.PermissionDenied, match=refusal):
            nearcall.connect(url, Basics)
        with pytest.raises(nearcall.PermissionDenied, match="nor of those that you name"):
            nearcall.connect(url, Basics, allow_users=[1], allow_groups=[1])
        for options in (
            {"allow_users": [OTHER]},
            {"allow_users": [pwd.getpwuid(OTHER).pw_name]},
            {"allow_groups": [GROUP]},
        ):
            with nearcall.connect(url, Basics, **options) as basics:  # type: ignore[arg-type]
                assert basics.add(1) == 6

        async def main() -> None:
            with pytest.raises(nearcall.PermissionDenied, match=refusal):
                await nearcall.aio.connect(url, Basics)
            async with nearcall.aio.connect(url, Basics, allow_users=[OTHER]) as basics:
                assert await basics.add(1) == 6

        asyncio.run(main())
        # A third user is no better off, and root's servers are for everybody whom they let in.
        assert "PermissionDenied" in as_other(url, uid=1)


@needs_root
def test_a_client_of_a_lost_server_is_not_taken_over_by_another_users(place: Path) -> None:
    place.chmod(0o777)
    url = f"unix://{place}/s"
    with nearcall.Server(Basics(), url):
        client = nearcall.connect(url, Basics)
    with served_by_other(url), client as basics, pytest.raises(nearcall.PermissionDenied, match=f"user {OTHER}"):
        basics.add(1)


def test_clients_options_are_checked(place: Path) -> None:
    url = f"unix://{place}/s"
    with pytest.raises(nearcall.InvalidArgument, match="there is no user 'no such user'"):
        nearcall.connect(url, Basics, allow_users=["no such user"])
    with pytest.raises(TypeError, match=r"write allow_users=\[0\]"):
        nearcall.connect(url, Basics, allow_users=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="for unix:// URLs"):
        nearcall.connect("shm://x", Basics, allow_groups=["root"])
    with pytest.raises(nearcall.InvalidArgument, match="an id is a whole number"):
        nearcall.connect(url, Basics, allow_users=[-1])
