"""What the documentation shows is executed and type-checked: the Python in its pages, the examples, the command line.

So are the lab's TOML files, as far as that needs no measuring; and what pages name (files, commands) must exist.

A page's Python blocks are joined under each second-level heading into one program, which runs in a process of its own:
a fork of the warm process of `e2e/warm.py`, or an interpreter where that makes a difference.
The word after ``python`` on the fence changes that:

- ``name.py``: the block is a file of that name, unique in all pages, which the section's other blocks may import;
- ``name.py serve``: so is this one, and it runs in the background until the section's other blocks are done;
- ``no-run``: the block is only type-checked;
- ``fault``: a handler of the block fails, so that the program's log, on stderr, has a traceback;
- ``wrong``: the block shows a mistake, and is neither run nor checked;
- ``examples/NAME``: the block is a part of that file, which has a test of its own.

A TOML block whose fence has the name of a file is that file. A name may have folders. Of a stub, a block of ``pyi``
with the name ``name.pyi``, the shim is made, as the page says by a command. A command that writes a file with
``nearcall stub`` is run before the section's programs, and one that checks such a file as well.

A ``print(...)  # text`` promises that the program prints that text; the promises of a program are kept in order.

Where a page or an example names a port of this machine, a free one takes its place.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

import nearcall
from nearcall.plugin.shims.reading import read_module
from nearcall.plugin.shims.writing import files as shim_files

from .e2e.warm import WarmProcess

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
GRPC = EXAMPLES / "grpc"
MIGRATION = EXAMPLES / "migration"
COMMAND_PAGES = [
    EXAMPLES / "command_line.md",
    EXAMPLES / "framework/README.md",
    MIGRATION / "README.md",
    EXAMPLES / "schema_first/README.md",
    GRPC / "README.md",
    *sorted(GRPC.glob("*/README.md")),
]
NEEDS = {"go": ("go",), "node": ("node", "npm"), "java": ("java", "mvn")}
"""What pages about other languages need; the name is their folder's."""
MOVED = sorted(MIGRATION.glob("*/*.py"))
ORIGINALS = {"pyro5": "Pyro5", "rpyc": "rpyc", "pyzmq": "zmq", "multiprocessing": "multiprocessing"}
"""The package that a program was written for; the name is its folder's."""
MADE = shutil.ignore_patterns("__pycache__", "*_pb2*", "calculator.proto", "bin", "pb", "target", "node_modules")
"""What the commands of pages make."""
LAB_PAGES = [ROOT / "lab/README.md", *sorted((ROOT / "lab/docs").glob("*.md"))]
DOCS = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/guide").glob("*.md"))]
PAGES = [ROOT / "README.md", *DOCS, *LAB_PAGES]
ALL_PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *COMMAND_PAGES,
    EXAMPLES / "screenreader/README.md",
    *PAGES,
    *sorted((ROOT / "docs/adr").glob("*.md")),
]
BIN = Path(sys.executable).parent

FENCE = re.compile(r"^```(\w*) ?(.*)$")
PROMISE = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
STUB = re.compile(r"^\$ (nearcall (?:stub|openapi) [^>#]*?)(?: > (\S+))?$", re.MULTILINE)
URL = re.compile(r"(?<!\+)\b(?:shm|unix|tcp)://[\w./:-]+")
PORT = re.compile(r"(?<=127\.0\.0\.1:)[1-9]\d+")
ADDRESS = re.compile(r"127\.0\.0\.1:[1-9]\d+")
OWN_INTERPRETER = re.compile(r"\b(?:gevent|trio|multiprocessing|fork|sandbox|confine)\b")
"""What a program names that must not be a fork: nothing may be imported before it."""


class Closable(Protocol):
    def close(self) -> None: ...


class Program(NamedTuple):
    """The Python under one heading of a page."""

    page: str
    line: int
    files: dict[str, str]
    """By name; the blocks without one make a file named after the program. Lines are numbered as in the page."""
    served: list[str]
    run: bool
    fault: bool
    stubs: list[tuple[str, str]]
    """Commands that write interfaces or documents, with the files that they write; nothing if they check one."""

    @property
    def name(self) -> str:
        return f"{self.page}_{self.line}"


def programs(path: Path) -> Iterator[Program]:
    """All programs of a page, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found: Program | None = None
    number = 0
    while number < len(lines):
        if lines[number].startswith("## ") and found is not None:
            yield found
            found = None
        fence = FENCE.match(lines[number])
        number += 1
        if fence is None:
            continue
        end = lines.index("```", number)
        words = fence[2].split()
        if fence[1] == "console" and found is not None:
            found.stubs.extend(STUB.findall("\n".join(lines[number:end])))
        is_file = fence[1] == "toml" and bool(words)
        is_elsewhere = words == ["wrong"] or "".join(words).startswith("examples/")
        if is_file or (fence[1] in ("python", "pyi") and not is_elsewhere):
            if found is None:
                page = re.sub(r"\W", "_", str(path.relative_to(ROOT).with_suffix("")).lower())
                found = Program(page, number, {}, [], run=words != ["no-run"], fault=words == ["fault"], stubs=[])
            name = words[0] if is_file or (words and words[0].endswith((".py", ".pyi"))) else f"{found.name}.py"
            before = found.files.get(name, "")
            blank = "\n" * (number - before.count("\n"))
            found.files[name] = before + blank + "\n".join(lines[number:end]) + "\n"
            if "serve" in words:
                found.served.append(name)
        number = end + 1
    if found is not None:
        yield found


PROGRAMS = [program for page in PAGES for program in programs(page)]
# An adapter speaks to a mechanism that has no types.
TYPED = [program for program in PROGRAMS if not program.name.startswith("lab_docs")]


def write(program: Program, folder: Path) -> None:
    """Writes a program's files into a folder of its own."""
    folder.mkdir(parents=True)
    for name, text in program.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        if name.endswith(".pyi"):
            for made, content in shim_files(read_module(Path(name).stem, folder / name)).items():
                (folder / made).parent.mkdir(parents=True, exist_ok=True)
                (folder / made).write_text(content, encoding="utf-8")
    for command, file in program.stubs:
        printed = output_of([sys.executable, "-m", *command.split()], folder)
        if file:
            (folder / file).write_text(printed, encoding="utf-8")


def use_free_ports(folder: Path) -> None:
    """Puts free ports into the files of a folder, so that tests do not meet."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.suffix in {".py", ".md", ".go", ".js", ".java"}
    }
    with contextlib.ExitStack() as held:
        free: dict[str, str] = {}
        for port in sorted(set(PORT.findall("".join(texts.values())))):
            listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            free[port] = str(listener.getsockname()[1])
    for path, text in texts.items():
        path.write_text(PORT.sub(lambda found: free[found[0]], text), encoding="utf-8")


@pytest.fixture(autouse=True)
def private_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names such as shm://calc are this test's own, whatever else runs on the machine."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONWARNINGS", "error")


@contextlib.contextmanager
def background(
    process: subprocess.Popen[Any],
    urls: set[str],
    reach: Callable[[str], Closable] = nearcall.connect,
    endings: tuple[int, ...] = (0, 128 + signal.SIGTERM),  # Java ends in good order, and then with the signal's status
) -> Generator[None, None, None]:
    """A server that was started, from when it answers until the block is left; it must end in good order."""
    try:
        for url in urls:
            deadline = time.monotonic() + 20
            while True:
                try:
                    reach(url).close()
                    break
                except (nearcall.Unavailable, ConnectionRefusedError):
                    assert process.poll() is None, f"the server at {url} has ended"
                    assert time.monotonic() < deadline, f"the server does not answer at {url}"
                    time.sleep(0.02)
        yield
        process.terminate()
        assert process.wait(10) in endings
    finally:
        process.kill()
        process.wait()


def start(file: str, folder: Path, *arguments: str, **standard: Any) -> subprocess.Popen[Any]:
    """``python FILE ...`` in its folder."""
    text = (folder / file).read_text(encoding="utf-8")
    standard = {"cwd": folder, "text": True, "stdin": subprocess.DEVNULL, "stdout": None} | standard
    if OWN_INTERPRETER.search(text):
        return subprocess.Popen([sys.executable, file, *arguments], **standard)
    return WarmProcess(text, *arguments, file=file, **standard)


def output_of_program(file: str, folder: Path, fault: bool = False) -> str:
    """What a program prints; it must succeed. With ``fault`` its log has one traceback."""
    with start(file, folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            said, complained = process.communicate(timeout=40)
        finally:
            process.kill()
    if fault:
        assert process.returncode == 0, complained
        assert re.fullmatch(r"\S+ raised .*\nTraceback \(most recent call last\):\n(  .*\n)+\S.*\n", complained)
    else:
        assert (process.returncode, complained) == (0, "")
    return str(said)


def output_of(command: list[str], cwd: Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def keep(promises: list[str], output: str) -> None:
    """Fails unless the output has the promised texts, in order."""
    rest = iter(output.splitlines())
    for promise in promises:
        assert any(line == promise for line in rest), f"{promise!r} is not where it should be in:\n{output}"


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.run], ids=lambda program: program.name)
def test_the_python_of_a_page_runs(program: Program, tmp_path: Path) -> None:
    if "nearcall_lab" in "".join(program.files.values()):
        pytest.importorskip("nearcall_lab")
    folder = tmp_path / "page"
    write(program, folder)
    use_free_ports(folder)
    with contextlib.ExitStack() as servers:
        for name in program.served:
            urls = set(URL.findall((folder / name).read_text(encoding="utf-8")))
            servers.enter_context(background(start(name, folder), urls))
        for name in program.files:
            imported = any(f"from {name[:-3]} import" in text for text in program.files.values())
            if name not in program.served and not imported and name.endswith(".py") and "/" not in name:
                output = output_of_program(name, folder, program.fault)
                keep(PROMISE.findall(program.files[name]), output)


def printed(source: Path) -> str:
    """What an example's docstring says that it prints."""
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    assert "It prints::\n\n" in (text or ""), f"{source} does not say what it prints"
    return "".join(line.removeprefix("    ") + "\n" for line in str(text).partition("It prints::\n\n")[2].splitlines())


def serve_and_run() -> Iterator[tuple[Path, list[str], Path]]:
    """Each example: what has the URL, the server's program and its arguments, the client."""
    for path in sorted(EXAMPLES.glob("*.py")):
        yield path, [path.name, "serve"], path
    for folder in sorted(EXAMPLES.glob("*/interface.py")):
        yield folder, ["server.py"], folder.with_name("client.py")


@pytest.mark.parametrize(
    ("source", "server", "client"),
    [pytest.param(*each, id=str(each[2].relative_to(EXAMPLES))) for each in serve_and_run()],
)
def test_an_example_prints_what_it_says(source: Path, server: list[str], client: Path) -> None:
    if "numpy" in client.read_text(encoding="utf-8"):
        pytest.importorskip("numpy")
    found = re.search(r'^URL = "(.*)"$', source.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{source} names no URL"
    file, *arguments = server
    with background(start(file, client.parent, *arguments), {found[1]}):
        assert output_of_program(client.name, client.parent) == printed(client)


def connect_to(address: str) -> socket.socket:
    """To a server that nearcall does not know."""
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)))


@pytest.mark.parametrize("program", MOVED, ids=lambda path: str(path.relative_to(MIGRATION)))
def test_a_program_prints_the_same_before_and_after_it_moves(program: Path, tmp_path: Path) -> None:
    before = program.name == "before.py"
    if before:
        pytest.importorskip(ORIGINALS[program.parent.name], reason="the original needs it")
    shutil.copytree(program.parent, tmp_path / "moved", ignore=MADE)
    use_free_ports(tmp_path / "moved")
    program = tmp_path / "moved" / program.name
    text = program.read_text(encoding="utf-8")
    with contextlib.ExitStack() as servers:
        if before and (addresses := set(ADDRESS.findall(text))):
            server = start(program.name, program.parent, "serve")
            servers.enter_context(background(server, addresses, connect_to, (-signal.SIGTERM,)))
        elif found := re.search(r'^URL = "([^"]*)"', text, re.MULTILINE):
            servers.enter_context(background(start(program.name, program.parent, "serve"), {found[1]}))
        assert output_of_program(program.name, program.parent) == printed(program)
    assert printed(program) == printed(program.with_name("before.py"))


def test_what_the_libraries_cost_is_measured(tmp_path: Path) -> None:
    lines = output_of([sys.executable, str(MIGRATION / "compare.py"), "1", "20"], tmp_path).splitlines()
    assert sum("nearcall" in line for line in lines) == 9
    for package, name in (("Pyro5", "Pyro5"), ("rpyc", "RPyC"), ("zmq", "pyzmq")):
        assert any(name in line for line in lines) == (importlib.util.find_spec(package) is not None)


@pytest.mark.parametrize("host", sorted(EXAMPLES.glob("*/host.py")), ids=lambda path: path.parent.name)
def test_a_host_of_plugins_prints_what_it_says(host: Path) -> None:
    assert output_of_program(host.name, host.parent) == printed(host)


@pytest.mark.parametrize("page", COMMAND_PAGES, ids=lambda page: str(page.relative_to(EXAMPLES)))
def test_commands_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    if "grpc_tools" in page.read_text(encoding="utf-8"):
        pytest.importorskip("grpc_tools")
    needs = NEEDS.get(page.parent.name, ())
    if needs and not os.environ.get("NEARCALL_INTEROP"):
        pytest.skip(f"it needs {' and '.join(needs)}: `make interop` runs it")
    missing = [program for program in needs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    folder = tmp_path / "commands"
    shutil.copytree(GRPC if needs else page.parent, folder, ignore=MADE)
    use_free_ports(folder)
    folder /= page.parent.name if needs else ""
    text = (folder / page.name).read_text(encoding="utf-8")
    same = doctest.OutputChecker().check_output
    with contextlib.ExitStack() as servers:
        for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            for command, expected in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE):
                if command.endswith(" &"):
                    server = subprocess.Popen(["bash", "-c", f"exec {command[:-2]} 2>/dev/null"], cwd=folder)
                    servers.enter_context(background(server, set(URL.findall(command))))
                    continue
                done = subprocess.run(
                    ["bash", "-c", f"{command} 2>&1"], cwd=folder, capture_output=True, text=True, check=False
                )
                # Go says what it fetches, but only where it has not been fetched before.
                printed = re.sub(r"^go: downloading .*\n", "", done.stdout, flags=re.MULTILINE)
                assert same(expected, printed, doctest.ELLIPSIS), f"{command}\n{done.stdout}"


@pytest.fixture(scope="module")
def all_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every program of every page, each in a folder of its own, and the examples."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(EXAMPLES, folder / "examples", ignore=MADE)
    (folder / "examples/grpc/client.py").unlink()  # it needs what protoc makes
    for old in (*folder.glob("examples/migration/*.py"), *folder.glob("examples/migration/*/before.py")):
        old.unlink()  # so does this, and what was written for other libraries says no types
    for old in ("digits", "chimes"):  # add-ons of another time say no types
        shutil.rmtree(folder / "examples/screenreader/addons" / old)
    for program in TYPED:
        write(program, folder / program.name)
    return folder


def places(all_code: Path) -> list[str]:
    """Where to import from: each folder, as when its programs run."""
    programs = [all_code / program.name for program in TYPED]
    examples = [
        all_code / "examples" / name
        for name in (
            "shared_interface",
            "schema_first",
            "plugins",
            "framework",
            "behind_nginx",
            "pipeline",
            "dashboard",
        )
    ]
    examples.append(all_code / "examples/screenreader")
    examples += [examples[-1] / name for name in ("api", "generated", "in_process", "both", "by_hand")]
    return [str(folder) for folder in (ROOT / "python", all_code, *examples, *programs)]


def test_what_a_page_shows_of_an_example_is_in_it() -> None:
    shown = [
        (page, *found)
        for page in ALL_PAGES
        for found in re.findall(
            r"^```\w+ (examples/\S+)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
    ]
    assert shown
    for page, example, part in shown:
        assert part in (ROOT / example).read_text(encoding="utf-8"), f"{page}: {example}"


def check_types(command: list[str]) -> None:
    """Runs a type checker at the root, for its settings are there."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=58, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_the_pages_and_the_examples(all_code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mypy")
    # With the settings of `make lint` and of unit/test_typing.py: what these have looked at is not looked at again.
    monkeypatch.setenv("MYPYPATH", os.pathsep.join(places(all_code)))
    check_types([sys.executable, "-m", "mypy", str(all_code)])


def test_pyright_accepts_the_pages_and_the_examples(all_code: Path) -> None:
    pytest.importorskip("pyright")
    settings = {
        "include": ["."],
        "extraPaths": places(all_code),
        "pythonVersion": "3.10",
        "typeCheckingMode": "strict",
    }
    config = all_code / "pyrightconfig.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    check_types([str(BIN / "pyright"), "--warnings", "--pythonpath", sys.executable, "--project", str(config)])


def anchors(page: Path) -> set[str]:
    """What a link into a page may name: its headings, written as GitHub does."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


every_page = pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@every_page
def test_what_a_page_names_exists(page: Path) -> None:
    """Files of the repository, a page of the lab's counted from the lab; and make's commands."""
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:crates|docs|fuzz|lab|python|src|tests|tools)/[\w./-]*)`", text):
        assert (ROOT / path).exists() or (page in LAB_PAGES and (ROOT / "lab" / path).exists()), path
    commands = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for command in re.findall(r"(?:`|^\$ |&& )make\s([a-z0-9-]+)", text, re.MULTILINE):
        assert command in commands, command


def test_every_decision_is_in_the_list_of_decisions() -> None:
    for folder in ("docs/adr", "docs/measurements"):
        text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
        listed = re.findall(r"^\| \[\d{4}\]\((.+?)\)", text, re.MULTILINE)
        assert sorted(listed) == sorted(page.name for page in (ROOT / folder).glob("0*.md"))


def test_the_architecture_names_what_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:crates|python)/[\w./-]+): (\w+)`", text)
    assert len(named) > 40
    for path, name in named:
        code = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"\b(?:fn|struct|enum|trait|type|const|class|def) {name}\b", code), f"{path}: {name}"


# The lab's pages.


def of_the_lab(*arguments: str, cwd: Path) -> str:
    return output_of([sys.executable, "-m", "nearcall_lab", *arguments], cwd)


def toml_of(page: str) -> str:
    """The first TOML file that a page of the lab shows."""
    found = re.search(r"^```toml\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, page
    return found[1]


def test_the_labs_commands_are_all_named_and_exist() -> None:
    cli = pytest.importorskip("nearcall_lab.cli.command")
    named = {
        command
        for page in ALL_PAGES
        for command in re.findall(r"nearcall-lab ([a-z]+(?:-[a-z]+)*)\b", page.read_text("utf-8"))
    }
    assert named == {command.NAME for command in cli.find_commands()}


def test_the_lab_takes_the_scenario_of_its_page(tmp_path: Path) -> None:
    pytest.importorskip("nearcall_lab")
    (tmp_path / "own.toml").write_text(toml_of("lab/docs/scenarios.md"), encoding="utf-8")
    plan = of_the_lab("run", "own.toml", "--plan", cwd=tmp_path)
    assert "10 launches each" in plan
    assert len(re.findall(r" nearcall-unix .* echo", plan)) == 4


def test_the_lab_takes_the_adapter_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nearcall_lab")
    (tmp_path / "adapter.toml").write_text(toml_of("lab/docs/adapters.md"), encoding="utf-8")
    monkeypatch.setenv("NEARCALL_LAB_ADAPTERS", str(tmp_path))
    (listed,) = re.findall(r"^ *my-rpc-c .*$", of_the_lab("list", "mechanisms", cwd=tmp_path), re.MULTILINE)
    assert "there is no program './bench'" in listed


def test_the_readme_takes_the_numbers_in(tmp_path: Path) -> None:
    pytest.importorskip("nearcall_lab")
    environment = {"cpu": "a processor", "cpus_usable": 2, "kernel": "Linux 6", "python": "CPython 3"}
    common = {"environment": environment, "red_flags": ["it is busy"], "placement": "pinned"}
    cell = {"p50_ns": 1234.0, "times_faster": {"value": 2.0, "low": None, "high": None, "pairs": 1}}
    cell |= {"cpu_us": 2.5, "n": 100, "problem": ""}
    busy = {**cell, "p50_ns": 5678.0, "cpu_us": None}
    row = {
        "name": "a",
        "label": "nearcall shm",
        "busy_polls": False,
        "problem": "",
        "cells": {"echo": cell, "busy": busy},
    }
    demo = {
        **common,
        "started": "2024-02-29T12:00:00+00:00",
        "baseline": "a",
        "launches": 5,
        "workloads": {"echo": "15 B"},
        "conditions": {"busy": "every CPU busy"},
        "rows": [row, {**row, "label": "B", "problem": "not installed"}],
    }
    lost = {"what": "echo", "target": "≤ 1 µs", "measured": "2 µs", "met": False}
    beside = {"what": "a peer", "target": "beside it", "measured": "3 µs", "met": None}
    runtime = {**common, "rounds": 5, "quick": False, "interrupted": False, "verdicts": [lost, beside]}
    readme = tmp_path / "README.md"
    readme.write_text((ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "demo.json").write_text(json.dumps(demo), encoding="utf-8")
    (tmp_path / "runtime.json").write_text(json.dumps(runtime), encoding="utf-8")
    tool = [sys.executable, str(ROOT / "tools/update_readme.py"), "--out", str(tmp_path), "--readme", str(readme)]
    output_of(tool, tmp_path)
    text = readme.read_text(encoding="utf-8")
    for expected in (
        "| nearcall shm | 1.23 µs | 2.50 µs | 2.00× |",
        "B: not installed",
        "2024-02-29",
        "| 2 µs | **no** |",
        "Of 1 targets 0 are met.",
    ):
        assert expected in text
    assert "| | one client, pinned | every CPU busy |" in text
    assert "| nearcall shm | 1.23 µs · 2.50 µs | 5.68 µs · – |" in text
    assert "![A bar for each mechanism: nearcall shm 1.23 µs.](docs/round-trip.svg)" in text
    assert ">1.23 µs</text>" in (tmp_path / "docs/round-trip.svg").read_text(encoding="utf-8")
    assert "a processor" in text
    output_of([*tool, "--check"], tmp_path)
    readme.write_text(text.replace("1.23 µs", "1.22 µs"), encoding="utf-8")
    assert subprocess.run([*tool, "--check"], cwd=tmp_path, check=False).returncode == 1
    (tmp_path / "demo.json").write_text(json.dumps({**demo, "environment": {"build": "without a profile: slower"}}))
    refused = subprocess.run(tool, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "make profiled demo" in refused.stderr


# The site.


@pytest.fixture(scope="module")
def site() -> Any:
    """The tool that builds it."""
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "tools/make_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_source_of_the_site_has_every_page_and_all_that_is_public(site: Any, tmp_path: Path) -> None:
    site.stage(tmp_path, rust=False)
    texts = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.md")}
    for page in ALL_PAGES:
        assert tmp_path / site.place(page.relative_to(ROOT)) in texts, page
    in_trees: list[Path] = [tmp_path / "index.md"]
    for path, text in texts.items():
        for inside in re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            entries = [line for line in inside.splitlines() if line and not line.startswith(":")]
            in_trees += [Path(os.path.normpath(path.parent / f"{entry.removesuffix('.md')}.md")) for entry in entries]
    assert sorted(in_trees) == sorted(path for path, text in texts.items() if "orphan: true" not in text)
    for module, names in site.public(nearcall):
        reference = texts[tmp_path / "reference" / f"{module.__name__}.md"]
        for name in names:
            assert re.search(rf"^\.\. (auto\w+|py:data):: {name}$", reference, re.MULTILINE), name


def test_the_site_is_searched_for_links_that_lead_nowhere(site: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.html").write_text('<a href="folder/b.html#here">', encoding="utf-8")
    (tmp_path / "folder/b.html").write_text(
        '<p id="here"><a href="../a.html"><a href="#there"><img src="c.png"><a href="https://example.org">',
        encoding="utf-8",
    )
    assert sorted(site.broken(tmp_path)) == ["folder/b.html: #there", "folder/b.html: c.png"]
