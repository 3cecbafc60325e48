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


def check_package(root: Path, files: dict[str, str]) -> tuple[int, str]:
    for name, code in files.items():
        module = root / "python" / "nearcall" / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(code, encoding="utf-8")
    return check(root)


TYPES = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from .{} import A\n"


@pytest.mark.parametrize(
    "files",
    [
        {"call/a.py": "from .b import B", "call/b.py": "from .a import A"},
        {"call/a.py": "from nearcall.call.b import B", "call/b.py": "def late():\n    from . import a"},
        {"call/a.py": "from .b import B", "call/b.py": "from .c import C", "call/c.py": "import nearcall.call.a"},
        {"call/a.py": "from . import B", "call/__init__.py": "from .b import B", "call/b.py": "from .a import A"},
        {"call/a.py": "from .b import B", "call/b.py": "from .c import C", "call/c.py": TYPES.format("a")},
    ],
)
def test_modules_that_import_each_other_are_found(tmp_path: Path, files: dict[str, str]) -> None:
    status, said = check_package(tmp_path, files)
    assert status == 1
    assert "these modules import each other" in said


@pytest.mark.parametrize(
    "files",
    [
        {"call/a.py": "from .b import B\nfrom .c import C", "call/b.py": "from .c import C", "call/c.py": ""},
        {"call/a.py": "from . import c", "call/__init__.py": "from .a import A", "call/c.py": ""},
        {"call/a.py": "from .b import B", "call/b.py": TYPES.format("a")},
    ],
)
def test_modules_may_import_those_below(tmp_path: Path, files: dict[str, str]) -> None:
    assert check_package(tmp_path, files) == (0, "")


def check_crate(root: Path, files: dict[str, str]) -> tuple[int, str]:
    crate = root / "crates" / "core"
    for name, code in files.items():
        file = crate / "src" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code, encoding="utf-8")
    manifest = '[package]\nname = "nearcall-core"\n[lints]\nworkspace = true\n'
    (crate / "Cargo.toml").write_text(manifest, encoding="utf-8")
    return check(root)


@pytest.mark.parametrize(
    "files",
    [
        {"a.rs": "use crate::b::B;", "b.rs": "use crate::a::A;"},
        {"a.rs": "use crate::b::{C, D as E};", "b.rs": "fn f(a: &super::a::A) {}"},
        {"a.rs": "use crate::b::B;", "b/mod.rs": "mod c;\npub use c::B;", "b/c.rs": "use super::super::a::A;"},
        {"a/mod.rs": "mod b;\npub use b::B;\nstruct A(B);", "a/b.rs": "use super::A;"},
        {"a/mod.rs": "mod b;\nuse b::B;", "a/b.rs": "use crate::{x, a::{A}};"},
        {"a.rs": "use crate::b::B;", "b.rs": "use crate::c::C;", "c.rs": "pub(crate) use crate::a::A;"},
        {"a/mod.rs": "mod b;\nfn f() -> u8 {\n    b::g()\n}", "a/b.rs": "use super::f;"},
    ],
)
def test_files_of_a_crate_that_know_each_other_are_found(tmp_path: Path, files: dict[str, str]) -> None:
    status, said = check_crate(tmp_path, {"lib.rs": "mod a;", **files})
    assert status == 1
    assert "these files know each other" in said


@pytest.mark.parametrize(
    "files",
    [
        {"a.rs": "use crate::b::B; // use crate::c::C", "b.rs": "use std::a::A;\nuse other::a::B;"},
        {"a/mod.rs": "//! [`b::B`]\nmod b;\npub use b::B;", "a/b.rs": "use super::c::C;\nuse crate::d;", "a/c.rs": ""},
        {"a/mod.rs": "mod b;\npub(crate) use b::B;\npub struct A;", "a/b.rs": "use crate::a::A;"},
        {
            "a/mod.rs": "#[cfg(test)]\nmod tests;\npub(in crate::a) use b::B;\nmod b;",
            "a/b.rs": 'const X: &str = "crate::a";',
        },
        {"a.rs": "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n", "b.rs": "use crate::a::A;"},
    ],
)
def test_files_of_a_crate_may_know_those_below(tmp_path: Path, files: dict[str, str]) -> None:
    assert check_crate(tmp_path, {"lib.rs": "mod a;\npub use a::A;", **files}) == (0, "")


def test_folders_of_a_crate_have_an_order(tmp_path: Path) -> None:
    """No two files know each other here, but the two folders do."""
    source = tmp_path / "crates/wire/src"
    files = {
        "lib.rs": "mod one;\nmod other;\n",
        "one/mod.rs": "pub mod a;\npub mod b;\n",
        "one/a.rs": "use crate::other::c::C;\n",
        "one/b.rs": "pub struct B;\n",
        "other/mod.rs": "pub mod c;\npub mod d;\n",
        "other/c.rs": "pub struct C;\n",
        "other/d.rs": "use crate::one::b::B;\n",
    }
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    manifest = '[package]\nname = "nearcall-wire"\n[lints]\nworkspace = true\n'
    (source.parent / "Cargo.toml").write_text(manifest, encoding="utf-8")
    (tmp_path / "python/nearcall").mkdir(parents=True)
    status, out = check(tmp_path)
    assert (status, out) == (1, "crates/wire/src: these folders know each other, and one must not: one, other\n")
    (source / "other/d.rs").write_text("pub struct D;\n", encoding="utf-8")
    assert check(tmp_path) == (0, "")
