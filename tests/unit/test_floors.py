"""The order of the rooms of the package: the check of `make lint` passes, and a wrong import does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def check(root: Path) -> tuple[int, str]:
    tool = [sys.executable, str(ROOT / "tools" / "check_floors.py"), str(root)]
    done = subprocess.run(tool, check=False, capture_output=True, text=True)
    assert not done.stderr
    return done.returncode, done.stdout


def check_module(root: Path, name: str, code: str) -> tuple[int, str]:
    module = root / "python" / "nearcall" / name
    module.parent.mkdir(parents=True)
    module.write_text(code, encoding="utf-8")
    return check(root)


def test_the_repository_keeps_the_order() -> None:
    assert check(ROOT) == (0, "")


@pytest.mark.parametrize(
    ("name", "code", "other"),
    [
        ("errors.py", "from .codec.msgpack import decode_any", "codec"),
        ("codec/msgpack.py", "from ..service.plan import MethodPlan", "service"),
        ("service/plan.py", "from nearcall.call.context import Context", "call"),
        ("client/options.py", "import nearcall.server.listening", "server"),
        ("server/server.py", "from .. import __version__", "__init__"),
        ("call/context.py", "from .. import introspection", "introspection"),
        ("client/client.py", "def late():\n    from ..aio.client import AsyncClient", "aio"),
        ("observe/logs.py", "from ..auth import token", "auth"),
        ("aio/inner/deep.py", "from ...server import serve", "server"),
        ("types/hints.py", "import nearcall", "__init__"),
    ],
)
def test_an_import_that_looks_up_is_found(tmp_path: Path, name: str, code: str, other: str) -> None:
    status, said = check_module(tmp_path, name, code)
    assert status == 1
    assert f"imports {other}, which is not below {name.split('/', maxsplit=1)[0].removesuffix('.py')}" in said


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("client/channel.py", "from .client import Client\nfrom ..errors import Cancelled\nfrom .. import _core"),
        ("cli/ping.py", "import nearcall\nfrom . import UsageError"),
        ("aio/inner/deep.py", "from ..streams import Replies\nfrom ...client.channel import Channel"),
        ("types/hints.py", "import types\nfrom collections.abc import Mapping"),
    ],
)
def test_other_imports_are_not(tmp_path: Path, name: str, code: str) -> None:
    assert check_module(tmp_path, name, code) == (0, "")


def test_a_folder_that_is_no_room_is_found(tmp_path: Path) -> None:
    status, said = check_module(tmp_path, "helpers/things.py", "")
    assert status == 1
    assert "is in no room" in said
