"""``plugin.toml``: every mistake is named, with its key and what to do; and archives, which are strangers'."""

from __future__ import annotations

import importlib
import io
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from nearcall.cli import main
from nearcall.plugin import ManifestError, read_manifest
from nearcall.plugin.manifests.explaining import explain
from nearcall.plugin.manifests.packing import ArchiveError, install, pack
from nearcall.sandbox import Layer, Report

GOOD = """
id = "org.example.shout"
name = "Shout"
version = "1.2.0"
summary = "Speaks louder."
author = "Ada"
entry = "shout.main:start"
extends = ["spoken_text"]
[host]
api = ">=1.0, <2"
tested = ">=1.0, <=1.3"
[runtime]
python = ">=3.10"
[permissions]
speech = "It speaks."
[permissions.files]
why = "It reads words."
read = ["/usr/share/dict"]
[permissions.network]
why = "It looks words up."
ports = [443]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plugin = tmp_path / "shout"
    plugin.mkdir()
    (plugin / "plugin.toml").write_text(GOOD)
    (plugin / "shout.py").write_text("print('never run')\n")
    return plugin


def test_what_it_says_is_read(folder: Path) -> None:
    manifest = read_manifest(str(folder))
    assert (manifest.id, manifest.entry, manifest.extends) == (
        "org.example.shout",
        "shout.main:start",
        ("spoken_text",),
    )
    assert [permission.name for permission in manifest.permissions] == ["speech", "files", "network"]
    assert manifest.permissions[1].read == ("/usr/share/dict",)
    assert manifest.permissions[2].ports == (443,)
    assert [manifest.works_with(api) for api in ("1.9", "2.0")] == [True, False]
    assert [manifest.tested_with(api) for api in ("1.3", "1.4")] == [True, False]


WRONG = [
    ('id = "org.example.shout"', "", "id: is missing: write a name of its own"),
    ('id = "org.example.shout"', 'id = "../up"', "id: '../up' does not fit: write small letters"),
    ('id = "org.example.shout"', "id = 5", "id: must be a text"),
    ('version = "1.2.0"', 'version = "new"', "version: 'new' does not fit"),
    ('version = "1.2.0"', 'versoin = "1"', "versoin: is not known: did you mean 'version'?"),
    ('name = "Shout"', 'name = ""', "name: is empty"),
    ('name = "Shout"', f'name = "{"x" * 600}"', "name: must be a text of at most 500"),
    ('entry = "shout.main:start"', 'entry = "os; x"', "entry: 'os; x' does not fit: write 'module'"),
    ('api = ">=1.0, <2"', 'api = "1.x"', "host.api: '1.x' does not fit: write a range"),
    ('api = ">=1.0, <2"', "", "host.api: is missing"),
    ("[host]", "[hots]", "hots: is not known: did you mean 'host'?"),
    ('python = ">=3.10"', 'venv = "../other"', "runtime.venv: '../other' does not fit"),
    ('python = ">=3.10"', 'venv = ".venv"', "runtime: an interpreter of its own runs before it is confined"),
    ('speech = "It speaks."', "speech = 1", "permissions.speech.why: must be a text"),
    ('speech = "It speaks."', 'Sp-eech = "x"', "permissions.Sp-eech: is no name of a permission"),
    ('speech = "It speaks."', 'interpreter = "x"', "runtime: an interpreter of its own"),
    ('read = ["/usr/share/dict"]', 'read = ["~/x", "/a/../b"]', "permissions.files.read: '~/x' does not fit"),
    ('read = ["/usr/share/dict"]', "", "permissions.files: names nothing"),
    ('read = ["/usr/share/dict"]', "raed = []", "permissions.files.raed: is not known"),
    ("ports = [443]", "ports = [0]", "permissions.network.ports: must be a list of TCP ports"),
    ("ports = [443]", "ports = true", "permissions.network.ports: must be a list of TCP ports"),
    ('extends = ["spoken_text"]', 'extends = "spoken_text"', "extends: must be a list"),
    ("[host]", "[host", "is no TOML"),
    ("[host]", "host = 1\n[x]", "host: is no table"),
]


@pytest.mark.parametrize(("old", "new", "said"), WRONG)
def test_each_mistake_is_named(old: str, new: str, said: str, folder: Path) -> None:
    path = folder / "plugin.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ManifestError) as caught:
        read_manifest(folder)
    lines = str(caught.value).splitlines()
    assert any(line.startswith(f"{path}: {said}") for line in lines), lines


def test_what_people_see_of_it_cannot_control_a_terminal(folder: Path) -> None:
    text = '"\\u001b[2J\\u009b31m\\u202e\\r\\nforged"'
    path = folder / "plugin.toml"
    path.write_text(
        f'id = "a"\nname = {text}\nversion = "1"\nsummary = {text}\nauthor = {text}\nentry = "shout"\n'
        f'[host]\napi = ">=1.0"\n[permissions]\nspeech = {text}\n'
    )
    manifest = read_manifest(folder)
    seen = [manifest.name, manifest.summary, manifest.author, manifest.permissions[0].why]
    assert seen == ["\\x1b[2J\\x9b31m\\u202e\\r\\nforged"] * 4
    for line in ('version = "1\\u0085"', 'version = "1\\n"'):
        path.write_text(GOOD.replace('version = "1.2.0"', line))
        with pytest.raises(ManifestError, match="without characters that cannot be seen"):
            read_manifest(folder)
    path.write_text(GOOD.replace("/usr/share/dict", "/\\u001b[2J"))
    with pytest.raises(ManifestError, match="without characters that cannot be seen"):
        read_manifest(folder)


def test_a_pipe_is_no_manifest_and_nobody_waits_for_it(folder: Path) -> None:
    (folder / "plugin.toml").unlink()
    os.mkfifo(folder / "plugin.toml")
    with pytest.raises(ManifestError, match="is no ordinary file"):
        read_manifest(folder)


def test_all_mistakes_are_named_at_once(folder: Path) -> None:
    (folder / "plugin.toml").write_text("id = 1\n[host]\n")
    with pytest.raises(ManifestError) as caught:
        read_manifest(folder)
    named = {mistake.key for mistake in caught.value.mistakes}
    assert named == {"id", "name", "version", "summary", "author", "entry", "host.api"}


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x = " + b"[" * 50_000, b"#" * 70_000, b'a."\\u001b[2J" = 1'])
def test_what_is_no_manifest_is_refused_in_words_fit_to_be_shown(content: bytes, folder: Path) -> None:
    (folder / "plugin.toml").write_bytes(content)
    with pytest.raises(ManifestError) as caught:
        read_manifest(folder)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 10_000


def test_an_archive_is_the_plugin_and_always_the_same(folder: Path, tmp_path: Path) -> None:
    (folder / ".venv").mkdir()
    (folder / ".venv" / "secret").write_text("x")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "shout.pyc").write_text("x")
    archive = pack(folder, tmp_path / "a.zip")
    assert archive.read_bytes() == pack(folder, tmp_path / "b.zip").read_bytes()
    assert sorted(zipfile.ZipFile(archive).namelist()) == ["plugin.toml", "shout.py"]
    installed = install(archive, tmp_path / "plugins")
    assert installed.directory == tmp_path / "plugins" / "org.example.shout"
    assert (installed.directory / "shout.py").read_text() == "print('never run')\n"
    with pytest.raises(FileExistsError, match="--replace"):
        install(archive, tmp_path / "plugins")
    install(archive, tmp_path / "plugins", replace=True)
    assert [path.name for path in (tmp_path / "plugins").iterdir()] == ["org.example.shout"]


def test_what_leads_out_of_a_plugin_is_not_packed(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveError, match="is no ordinary file"):
        pack(folder, tmp_path / "a.zip")


def archive_of(path: Path, *names: str, mode: int = stat.S_IFREG | 0o644, data: bytes = b"x") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("plugin.toml", GOOD)
        for name in names:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, data)
    return path


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a\\..\\out", "plugin.toml", "plugin.toml/x"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_nothing_is_unpacked_outside_or_twice(name: str, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.zip", name)
    with pytest.raises(ArchiveError):
        install(archive, tmp_path / "plugins")
    assert list((tmp_path / "plugins").iterdir()) == []
    assert not (tmp_path / "out").exists()


def test_links_bombs_and_noise_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArchiveError, match="is no file"):
        install(archive_of(tmp_path / "a.zip", "x", mode=stat.S_IFLNK | 0o777), tmp_path / "plugins")
    monkeypatch.setattr("nearcall.plugin.manifests.packing._MOST_BYTES", 1000)
    with pytest.raises(ArchiveError, match="more than 1000 bytes"):
        install(archive_of(tmp_path / "a.zip", "x", data=bytes(100_000)), tmp_path / "plugins")
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        install(tmp_path / "a.zip", tmp_path / "plugins")
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    (tmp_path / "a.zip").write_bytes(empty.getvalue())
    with pytest.raises(ArchiveError, match=r"has no plugin\.toml"):
        install(tmp_path / "a.zip", tmp_path / "plugins")
    assert list((tmp_path / "plugins").iterdir()) == []


def test_the_command_makes_checks_and_moves_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*words: str, status: int = 0) -> str:
        assert main(["plugin", *words]) == status
        return "".join(capfd.readouterr())

    assert "has a plugin.toml and shout_1.py" in said("new", "Shout-1")
    assert "is there and not empty" in said("new", "Shout-1", status=2)
    assert "shout-1 0.1.0 is well" in said("check", "Shout-1")
    assert "shout-1: started" in said("run", "Shout-1", "--once")
    assert said("pack", "Shout-1") == "shout-1-0.1.0.plugin.zip\n"
    assert "shout-1 0.1.0 is in plugins/shout-1" in said("install", "shout-1-0.1.0.plugin.zip", "plugins")
    assert "write --replace" in said("install", "shout-1-0.1.0.plugin.zip", "plugins", status=1)
    assert "shout-1  0.1.0" in said("list", "plugins")
    assert "It asks for nothing" in said("explain", "Shout-1")
    manifest = tmp_path / "Shout-1" / "plugin.toml"
    manifest.write_text(manifest.read_text().replace('entry = "', 'entry = "no_'))
    assert "there is no module 'no_shout_1'" in said("check", "Shout-1", status=1)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/no_shout_1.py").write_text("print('never run')\n")
    assert "name the host's directory with --path" in said("check", "Shout-1", status=1)
    assert "no_shout_1.py has no function 'start'\n" in said("check", "Shout-1", "--path", "shared", status=1)
    for text, status, word in (
        ("def stort() -> None: ...", 1, "did you mean stort?"),
        ("def f():\n    start = 1\n", 1, "has no function 'start'"),
        ("def (", 1, "is no Python"),
        ("try:\n    from there import start\nexcept ImportError:\n    start = None\n", 0, "is well"),
        ("if 1:\n    async def start() -> None: ...\n", 0, "is well"),
        ("from there import *", 0, "is well"),
        ("globals()['sta' + 'rt'] = print", 0, "is well"),
        ("print('never run')\ndef start() -> None: ...", 0, "is well"),
    ):
        (tmp_path / "shared/no_shout_1.py").write_text(text)
        assert word in said("check", "Shout-1", "--path", "shared", status=status)
    manifest.write_text(GOOD)
    explained = said("explain", "Shout-1")
    assert "TCP connections to ports 443" in explained
    assert "This system gives these layers:" in explained
    assert "cannot be read" in said("check", "nowhere", status=1)
    assert "there is no plugin in nowhere" in said("list", "nowhere", status=2)


def test_explain_says_what_really_becomes_of_a_missing_layer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explaining: Any = importlib.import_module("nearcall.sandbox.explaining")
    manifest = read_manifest(folder)
    layers = [
        Layer(each.name, "not_available", "this kernel has no seccomp") if each.name == "system_calls" else each
        for each in explaining.available().layers
    ]
    monkeypatch.setattr(explaining, "available", lambda: Report(tuple(layers)))
    text = explain(manifest)
    assert "  - system_calls: this kernel has no seccomp; and it is started without" in text
    assert "and so it is not started" not in text
    assert "sandbox='required':\nthen it is not started without no_new_privs, files, system_calls" in text
