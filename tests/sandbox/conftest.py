"""A directory of the confined process, one that is not its own, and who it runs as."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .confined import USERS, give_to, interpreter

if not sys.platform.startswith("linux"):
    pytest.skip("the sandbox is written for Linux", allow_module_level=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the short form each attempt is made by one of the users; in `make sandbox` by all."""
    if len(USERS) == 1 or os.environ.get("NEARCALL_SANDBOX") == "all":
        return
    left_out = []
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if "user" in params and Path(__file__).parent in item.path.parents:
            others = ",".join(f"{name}={value}" for name, value in sorted(params.items()) if name != "user")
            number = zlib.crc32(f"{getattr(item, 'originalname', item.name)} {others}".encode())
            if USERS[number % len(USERS)] != params["user"]:
                left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    kept = set(items) - set(left_out)
    items[:] = [item for item in items if item in kept]


@dataclass
class Place:
    """Directories of a test, both of the same user."""

    user: str
    own: Path
    """What the policy lets the process write to."""
    outside: Path
    """What it does not name; with a file ``secret``."""

    @property
    def names(self) -> dict[str, str]:
        """For the code of an attempt."""
        return {"own": str(self.own), "outside": str(self.outside), "secret": str(self.outside / "secret")}


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    """Who the confined process runs as."""
    name: str = request.param
    if not interpreter(name):
        pytest.skip(f"{name} may not run this interpreter, and there is no other of its version")
    return name


@pytest.fixture
def place(user: str) -> Iterator[Place]:
    # Not pytest's own directory for temporary files, which only its user may enter.
    directory = Path(tempfile.mkdtemp(prefix="nc-"))
    directory.chmod(0o755)
    place = Place(user, directory / "own", directory / "outside")
    for path in (place.own, place.outside):
        path.mkdir()
        give_to(user, path)
    secret = place.outside / "secret"
    secret.write_text("secret")
    give_to(user, secret)
    yield place
    shutil.rmtree(directory)
