"""Mistakes around a plugin host, and what is said then."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall.plugin import AsyncPluginHost, PluginHost
from nearcall.plugin.process.supervised import Supervised

from ..survival.observing import eventually
from .plugin_hosts import Events, SpokenWords, make_host, options, write_plugin
from .plugin_interface.host_api import Synth, spoken_text

OFFERS = """
class Voice(Synth):
    def render(self, text): yield text.encode()
    def pid(self): return os.getpid()
    def buffer(self, size): return memoryview(bytes(size))
plugin.offer(Voice())
"""
AGAIN = re.escape("host.plugins['one'].service(...)")


@pytest.fixture
def speech() -> SpokenWords:
    return SpokenWords()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.mark.parametrize("make", [PluginHost, AsyncPluginHost])
def test_a_directory_that_is_none(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    what = "a plugin host takes the directory in which each plugin has one of its own"
    for given in ("plugins", tmp_path / "plugins"):
        with pytest.raises(FileNotFoundError, match=f"^there is no directory {tmp_path}/plugins: {what}$"):
            make(given)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=f"^{tmp_path}/file is no directory: {what}$"):
        make("file")
    for wrong in (None, 3, [3]):
        with pytest.raises(TypeError, match=r"^the directory must be a path, or a list of paths, not "):
            make(wrong)


@pytest.mark.parametrize("make", [PluginHost, AsyncPluginHost])
def test_a_directory_without_plugins(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    make(".")
    told = f"there are no plugins in {tmp_path}: a plugin is a directory in it that has a plugin.toml"
    assert [record.getMessage() for record in caplog.records] == [told]
    caplog.clear()
    write_plugin(tmp_path, "one", "")
    make("one")
    (record,) = caplog.records
    assert record.getMessage().endswith("it is a plugin itself: write ['one'], or the directory around it")
    caplog.clear()
    make(".")
    assert caplog.records == []


def test_a_service_of_a_process_that_has_ended(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "one", OFFERS)
    with make_host(tmp_path, speech, events, first_pause=1000) as host:
        one = host.plugins["one"]
        for end in (one.restart, lambda: (one.stop(), one.start())):
            voice = one.service(Synth)
            assert voice.pid() == one.pid
            end()
            for call in (voice.pid, lambda voice=voice: list(voice.render("x"))):
                with pytest.raises(nearcall.Unavailable) as caught:
                    call()
                assert re.fullmatch(
                    f"the plugin one was restarted, and this is of its process before: ask again with {AGAIN}",
                    caught.value.message,
                )
        voice = one.service(Synth)
        one.stop()
        with pytest.raises(nearcall.Unavailable, match=f"^the plugin one ended with status 0: when .* with {AGAIN}$"):
            voice.pid()
        voice = one.service(Synth)
        os.kill(voice.pid(), signal.SIGKILL)
        events.wait_for("one", "restarting")
        eventually(lambda: one.state == "waiting", one.state)
        with pytest.raises(nearcall.Unavailable, match=f"^the plugin one was ended by .* runs again, .* {AGAIN}$"):
            voice.pid()


def test_a_service_of_a_process_that_has_ended_in_a_loop(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "one", OFFERS)

    async def main() -> None:
        async with AsyncPluginHost(tmp_path, **options(speech, events)) as host:
            one = host.plugins["one"]
            voice = await one.service(Synth)
            assert await voice.pid() == one.pid
            await one.restart()
            with pytest.raises(
                nearcall.Unavailable, match=f"^the plugin one was restarted, .*: ask again with {AGAIN}$"
            ):
                await voice.pid()
            await one.stop()
            with pytest.raises(nearcall.Unavailable, match=f"^the plugin one ended .*, ask with {AGAIN}$"):
                await voice.pid()

    asyncio.run(main())


DIES = """
class Voice(Synth):
    def render(self, text): os._exit(3); yield b""
    def pid(self): os._exit(3)
    def buffer(self, size): return memoryview(bytes(size))
plugin.offer(Voice())
"""
ENDED = "(was lost: the server stopped or died|the plugin one ended with status 3: when it runs again, ask with)"


def test_a_call_in_which_a_plugin_dies(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    """It is no ``Cancelled``, which says that this side has closed the connection."""
    write_plugin(tmp_path, "one", DIES)
    calls: list[Callable[[Any], object]] = [lambda voice: voice.pid(), lambda voice: list(voice.render("x"))]
    with make_host(tmp_path, speech, events, restarts=0) as host:
        for number in range(8):
            host.plugins["one"].start()
            with pytest.raises(nearcall.Unavailable, match=ENDED):
                calls[number % 2](host.plugins["one"].service(Synth))
            events.wait_for("one", "failed", count=number + 1)

    async def main() -> None:
        told = Events()
        async with AsyncPluginHost(tmp_path, **options(speech, told, restarts=0)) as host:
            for number in range(8):
                await host.plugins["one"].start()
                voice = await host.plugins["one"].service(Synth)
                with pytest.raises(nearcall.Unavailable, match=ENDED):
                    await voice.pid()
                await asyncio.to_thread(told.wait_for, "one", "failed", count=number + 1)

    asyncio.run(main())


def test_a_plugin_that_does_not_exist(tmp_path: Path) -> None:
    write_plugin(tmp_path, "one", "")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "plugin.toml").write_text("id = 5")
    host = PluginHost(tmp_path)
    with pytest.raises(KeyError, match=r"there is no plugin three: there are one, and manifests with mistakes in two"):
        host.plugins["three"]
    assert host.plugins.get("three") is None
    assert list(host.plugins) == ["one"]


def test_the_wrong_with(tmp_path: Path) -> None:
    write_plugin(tmp_path, "one", "")
    threads: Any = PluginHost(tmp_path)
    loop: Any = AsyncPluginHost(tmp_path)

    async def main() -> None:
        with pytest.raises(TypeError, match=r"^this plugin host is for threads: write 'with PluginHost\(\.\.\.\)'"):
            async with threads:
                pass

    asyncio.run(main())
    with pytest.raises(TypeError, match=r"^this plugin host is for an event loop: write 'async with Async"), loop:
        pass


def test_a_class_that_is_offered(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "one", OFFERS.replace("Voice())", "Voice)"))
    with make_host(tmp_path, speech, events, restarts=0):
        died = events.wait_for("one", "died")
    assert (
        died.last_lines[-1] == "TypeError: plugin.offer() takes an object, not the class: write plugin.offer(Voice())"
    )


def test_what_the_sandbox_refuses_leads_to_the_manifest(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "one", "@spoken_text.handler\ndef f(text): raise PermissionError(13, 'no')\n")
    for sandbox in ("best", "off"):
        told = Events()
        with make_host(tmp_path, speech, told, sandbox=sandbox) as host:
            assert host.extension(spoken_text)("hi") == "hi"
            text = told.wait_for("one", "error").text
        assert text.endswith("in plugin.toml: files, network, programs") == (sandbox == "best")


def test_who_starts_a_plugin_again_when_told_that_it_failed(
    tmp_path: Path, speech: SpokenWords, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``start`` waits for its own start, and does not take the end of the one before for it, however late the host's
    thread goes on that has told of the failure.
    """
    write_plugin(tmp_path, "one", DIES)
    say = Supervised._say
    late: list[str] = []

    def say_and_be_late(plugin: Supervised, kind: str, text: str, last: tuple[str, ...] = ()) -> None:
        say(plugin, kind, text, last)
        if kind == "failed" and not late:
            late.append(kind)
            eventually(lambda: plugin.state == "starting", "it is not started again")

    monkeypatch.setattr(Supervised, "_say", say_and_be_late)
    with make_host(tmp_path, speech, events, restarts=0) as host:
        one = host.plugins["one"]
        one.start()
        with pytest.raises(nearcall.Unavailable, match=ENDED):
            one.service(Synth).pid()
        events.wait_for("one", "failed")
        one.start()
        assert one.state == "running"
    assert late
