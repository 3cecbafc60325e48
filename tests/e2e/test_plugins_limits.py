"""What limits a plugin whose host asked for no limit: how long its services may take, and what it may keep on disk."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

import pytest

import nearcall
from nearcall.plugin import AsyncPluginHost, PluginHost

from .plugin_hosts import Events, SpokenWords, make_host, options, write_plugin
from .plugin_interface.host_api import Synth, menu, spoken_text

HANGS = """
hung = threading.Event()
class Voice(Synth):
    def render(self, text):
        for char in text:
            if char == "!": hung.wait()
            time.sleep(0.2)
            yield char.encode()
    def pid(self): hung.wait()
    def buffer(self, size): return memoryview(bytes(size))
plugin.offer(Voice())
"""
PATIENCE = 1.5
"""Seconds: more than a slow machine needs for an item."""
LONG = "longer than that"[:9]


@pytest.fixture
def speech() -> SpokenWords:
    return SpokenWords()


@pytest.fixture
def events() -> Events:
    return Events()


def test_a_service_that_hangs_holds_no_thread_of_the_host(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "one", HANGS)
    with make_host(tmp_path, speech, events, call_timeout=PATIENCE) as host:
        synth = host.plugins["one"].service(Synth)
        with pytest.raises(nearcall.DeadlineExceeded):
            synth.pid()
        items = synth.render("ab!")
        assert [next(items), next(items)] == [b"a", b"b"]
        with pytest.raises(nearcall.DeadlineExceeded):
            next(items)
        # Of a stream the time counts until the next item: it may go on for as long as it likes.
        assert b"".join(synth.render(LONG)) == LONG.encode()
        assert len(synth.buffer(3)) == 3


def test_an_event_loop_waits_no_longer_either(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "one", HANGS)

    async def main() -> None:
        async with AsyncPluginHost(tmp_path, **options(speech, events, call_timeout=PATIENCE)) as host:
            synth = await host.plugins["one"].service(Synth)
            with pytest.raises(nearcall.DeadlineExceeded):
                await synth.pid()
            items = synth.render("a!")
            assert await anext(items) == b"a"
            with pytest.raises(nearcall.DeadlineExceeded):
                await anext(items)
            assert b"".join([item async for item in synth.render(LONG)]) == LONG.encode()

    asyncio.run(main())


def test_a_budget_may_be_longer_than_that(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    slow = "@spoken_text.handler\ndef slow(text): time.sleep(0.3); return text + '!'\ndef start(): time.sleep(0.3)\n"
    write_plugin(tmp_path, "one", slow, entry=":start")
    with make_host(tmp_path, speech, events, call_timeout=0.1) as host:
        assert host.extension(spoken_text)("a") == "a!"


KEEPS = """
@menu.handler
def look(limit): return sorted(path.name for path in plugin.storage().iterdir())
"""
MANY = "for at in range(5): (plugin.storage() / f'part{at}').write_bytes(bytes(1 << 20))"
EMPTY = "for at in range(1000): (plugin.storage() / f'{at}').touch()"
REMOVED = """
sys.kept = kept = []
for at in range(5):
    path = plugin.storage() / f'removed{at}'
    kept.append(path.open("wb", buffering=0))
    path.unlink()
    kept[-1].write(bytes(1 << 20))
"""


DEEP = """
import os
os.chdir(plugin.storage())
for _ in range(25):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
for at in range(5):
    with open(f"part{at}", "wb") as file: file.write(bytes(1 << 20))
"""
UNREADABLE = """
folder = plugin.storage() / "unreadable"
folder.mkdir(0o300)
for at in range(5): (folder / f"part{at}").write_bytes(bytes(1 << 20))
"""


def with_storage(directory: Path, name: str, code: str, *, entry: str = "") -> Path:
    return write_plugin(directory, name, KEEPS + code, permissions={"storage": "It keeps words."}, entry=entry)


def keeping(directory: Path, speech: SpokenWords, events: Events, **more: object) -> PluginHost:
    given: dict[str, object] = {"data": directory / "data", "disk": 2 << 20, "sandbox": "best"}
    return make_host(directory / "plugins", speech, events, **given | more)


@pytest.mark.parametrize("code", [MANY, EMPTY, REMOVED], ids=["many", "empty", "removed"])
def test_one_that_fills_the_disk_is_stopped(code: str, tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    with_storage(tmp_path / "plugins", "one", "def start():\n" + textwrap.indent(code, "  "), entry=":start")
    with_storage(tmp_path / "plugins", "honest", "plugin.storage().joinpath('word').touch()")
    with keeping(tmp_path, speech, events) as host:
        assert "keeps more than the 2,097,152 bytes that it may (disk=)" in events.wait_for("one", "failed").text
        assert host.plugins["one"].state == "failed"
        assert host.extension(menu)(1) == ["word"]
        assert events.of("one", "died") == []


@pytest.mark.parametrize("code", [DEEP, UNREADABLE], ids=["deep", "unreadable"])
def test_what_it_keeps_cannot_be_hidden(code: str, tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    with_storage(tmp_path / "plugins", "one", "def start():\n" + textwrap.indent(code, "  "), entry=":start")
    with_storage(tmp_path / "plugins", "honest", "plugin.storage().joinpath('word').touch()")
    with keeping(tmp_path, speech, events) as host:
        text = events.wait_for("one", "failed").text
        # The superuser looks into any directory.
        assert "cannot add up (disk=)" in text or "keeps more than" in text
        assert host.plugins["one"].state == "failed"
        assert host.extension(menu)(1) == ["word"]


def test_what_it_keeps_is_there_at_its_next_start_and_must_leave_room(
    tmp_path: Path, speech: SpokenWords, events: Events
) -> None:
    with_storage(tmp_path / "plugins", "one", "")
    kept = tmp_path / "data" / "one" / "large"
    with keeping(tmp_path, speech, events) as host:
        assert host.extension(menu)(1) == []
        host.plugins["one"].stop()
        kept.write_bytes(bytes(3 << 20))
        host.plugins["one"].start()
        failed = events.wait_for("one", "failed")
        assert failed.text.startswith("cannot be started: ")
        assert str(kept.parent) in failed.text
        kept.write_bytes(b"less")
        host.plugins["one"].start()
        assert host.extension(menu)(1) == ["large"]


def test_one_file_is_no_longer_than_all_may_be(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    code = """
@spoken_text.handler
def fill(text):
    try: (plugin.storage() / "large").write_bytes(bytes(3 << 20))
    except OSError as error: return type(error).__name__
    return text
"""
    with_storage(tmp_path / "plugins", "one", code)
    with keeping(tmp_path, speech, events) as host:
        limits = next(layer for layer in host.plugins["one"].layers if layer["name"] == "limits")
        if limits["state"] != "provided":
            pytest.skip(limits["detail"])
        assert host.extension(spoken_text)("a") == "OSError"


@pytest.mark.parametrize("data", [True, False])
def test_without_a_place_or_a_permission_there_is_no_storage(
    data: bool, tmp_path: Path, speech: SpokenWords, events: Events
) -> None:
    permissions = {} if data else {"storage": "It keeps words."}
    write_plugin(tmp_path / "plugins", "one", KEEPS, permissions=permissions)
    given = {"data": tmp_path / "data"} if data else {}
    with make_host(tmp_path / "plugins", speech, events, **given) as host:
        assert host.extension(menu)(1) == []
        why = "plugin.toml does not ask for it" if data else "has no place for files of plugins: give it one with data="
        assert why in events.wait_for("one", "error").text
    assert not (tmp_path / "data").exists()


def test_what_all_plugins_may_read_is_no_place_for_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="which all plugins read"):
        PluginHost(tmp_path / "plugins", paths=[tmp_path], data=tmp_path / "data")
    with pytest.raises(TypeError, match="data must be a directory"):
        PluginHost(tmp_path / "plugins", data=3)  # type: ignore[arg-type]
