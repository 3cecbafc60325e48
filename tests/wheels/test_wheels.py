"""What `make dist` made works for a user who has no compiler, and says what it consists of.

The variable ``NEARCALL_DIST`` names its folder; without it there is nothing to test.
"""

from __future__ import annotations

import email.message
import email.policy
import importlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = os.environ.get("NEARCALL_DIST", "")
DIST = Path(FOLDER).absolute()
WHEELS = sorted(DIST.glob("nearcall-*.whl")) if FOLDER else []
LAB = sorted(DIST.glob("nearcall_lab-*.whl")) if FOLDER else []
URLS = ("shm://wheel", "grpc+unix:///{}/grpc.sock", "tcp://127.0.0.1:0")

pytestmark = pytest.mark.skipif(not FOLDER, reason="NEARCALL_DIST names no folder: `make dist` makes one and tests it")


def python_of(wheel: Path) -> Path | None:
    """A Python that the wheel is for."""
    tag = wheel.name.split("-")[2].removeprefix("cp3")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        found: Path | None = importlib.import_module("try_versions").find(f"3.{tag}")
    return found


class Fresh:
    """An environment with nothing but what is installed into it, whose programs find no others."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.bin = folder / "environment" / "bin"
        subprocess.run([python, "-m", "venv", self.bin.parent], check=True, timeout=120)
        self.folder = folder
        self.environment = {
            "PATH": str(self.bin),  # no cargo, no cc
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
            **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))},
        }

    def run(self, *command: str | Path) -> str:
        """What a program of the environment prints."""
        done = subprocess.run(
            [self.bin / command[0], *command[1:]],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def install(self, *what: str | Path) -> None:
        self.run("python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:", *what)


@pytest.fixture(params=WHEELS, ids=lambda wheel: wheel.name)
def wheel(request: pytest.FixtureRequest) -> Path:
    made: Path = request.param
    return made


@pytest.fixture
def fresh(wheel: Path, runtime_dir: Path) -> Iterator[Fresh]:
    """An environment with the wheel."""
    python = python_of(wheel)
    if python is None:
        pytest.skip(f"there is no Python here for {wheel.name}")
    folder = runtime_dir / wheel.name.split("-")[2]  # short: sockets are in it
    folder.mkdir()
    environment = Fresh(folder, python)
    environment.install(wheel)
    yield environment
    shutil.rmtree(folder)


def test_there_are_wheels_and_both_sources() -> None:
    assert WHEELS
    assert LAB
    assert len(list(DIST.glob("*.tar.gz"))) == 2


def test_it_serves_and_calls_without_a_compiler(fresh: Fresh) -> None:
    program = Path(__file__).with_name("hello.py")
    urls = [url.format(fresh.folder) for url in URLS]
    server = subprocess.Popen(
        [fresh.bin / "nearcall", "serve", f"{program}:Hello", *urls],
        env=fresh.environment,
        cwd=fresh.folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        serving = [next(server.stderr).split(" at ")[1].strip() for _ in urls]
        assert fresh.run("python", program, *serving).split() == [word for url in serving for word in ("called", url)]
        assert fresh.run("nearcall", "call", serving[0], "hello", '{"name": "you"}') == '"Hello, you!"\n'
    finally:
        server.send_signal(signal.SIGTERM)
        left = server.communicate(timeout=60)[1]
    assert server.returncode == 0, left


def test_it_says_which_version_it_is_and_that_it_knows_usual_work(fresh: Fresh, wheel: Path) -> None:
    assert fresh.run("nearcall", "--version") == f"nearcall {wheel.name.split('-')[1]}\n"
    assert fresh.run("python", "-c", "import nearcall._core as core; print(core.PROFILED)") == "True\n"


def test_the_lab_is_installed_beside_it(fresh: Fresh) -> None:
    fresh.install(*LAB)
    assert "nearcall" in fresh.run("nearcall-lab", "list")


def metadata(wheel: Path) -> email.message.EmailMessage:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        made = email.message_from_bytes(archive.read(name), policy=email.policy.default)
        assert isinstance(made, email.message.EmailMessage)
        return made


@pytest.mark.parametrize("made", [*WHEELS, *LAB], ids=lambda made: made.name)
def test_a_wheel_brings_its_licences(made: Path) -> None:
    head = metadata(made)
    assert head["License-Expression"] == "Apache-2.0 OR MIT"
    with zipfile.ZipFile(made) as archive:
        for name in ("LICENSE-APACHE", "LICENSE-MIT"):
            (path,) = (path for path in archive.namelist() if path.endswith(f".dist-info/licenses/{name}"))
            assert archive.read(path) == (ROOT / name).read_bytes()


def test_a_wheel_lists_the_rust_code_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if ".dist-info/sboms/" in name)
        listed = json.loads(archive.read(path))
    assert listed["bomFormat"] == "CycloneDX"
    assert {"pyo3", "rustls", "nearcall-core"} <= {each["name"] for each in listed["components"]}


def test_no_code_names_folders_of_the_machine_that_made_it(wheel: Path) -> None:
    """The list of the Rust code does: maturin names crates of the same source by their place."""
    home = {str(ROOT).encode(), str(Path.home()).encode() + b"/"}
    with zipfile.ZipFile(wheel) as archive:
        code = [name for name in archive.namelist() if "/sboms/" not in name]
        found = {name for name in code for path in home if path in archive.read(name)}
    assert found == set()


def test_a_wheel_has_no_names_for_debuggers(wheel: Path) -> None:
    sections = pytest.importorskip("elftools.elf.elffile").ELFFile
    with zipfile.ZipFile(wheel) as archive:
        (core,) = (name for name in archive.namelist() if name.endswith(".so"))
        with archive.open(core) as file:
            names = {section.name for section in sections(file).iter_sections()}
    assert ".dynsym" in names
    assert not names & {".symtab", ".debug_info", ".debug_line"}


@pytest.mark.parametrize("package", ["nearcall", "nearcall_lab"])
def test_what_it_needs_is_listed(package: str) -> None:
    (path,) = DIST.glob(f"{package}-[0-9]*.cdx.json")
    text = path.read_text(encoding="utf-8")
    assert {package.replace("_", "-"), "msgspec"} <= {each["name"] for each in json.loads(text)["components"]}
    assert "file:" not in text, "it names folders of the machine that made it"


@pytest.mark.parametrize("package", ["nearcall", "nearcall_lab"])
def test_the_sources_are_whole(package: str) -> None:
    (path,) = DIST.glob(f"{package}-[0-9]*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE-APACHE", "LICENSE-MIT", "README.md", "pyproject.toml"} <= names
    assert not {name for name in names if name.endswith((".so", ".pyc"))}
    # Crates that only tests need are left out.
    crates = sorted({"/".join(name.split("/")[:2]) for name in names if name.startswith("crates/")})
    folders = [*crates, "python"] if package == "nearcall" else ["src"]
    within = ROOT if package == "nearcall" else ROOT / "lab"
    tracked = subprocess.run(["git", "ls-files", *folders], cwd=within, capture_output=True, text=True, check=True)
    assert set(tracked.stdout.splitlines()) - names == set()
    if package == "nearcall":
        assert {"Cargo.lock", "crates/python/Cargo.toml"} <= names


def test_the_sources_build_the_crates_of_their_lock_file(tmp_path: Path) -> None:
    if (cargo := shutil.which("cargo")) is None:
        pytest.skip("it needs cargo")
    (path,) = DIST.glob("nearcall-[0-9]*.tar.gz")
    subprocess.run(["tar", "-xzf", path, "-C", tmp_path], check=True)
    (folder,) = tmp_path.iterdir()
    command = [cargo, "metadata", "--locked", "--no-deps", "--format-version", "1"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stderr
    assert "nearcall-python" in {each["name"] for each in json.loads(found.stdout)["packages"]}
