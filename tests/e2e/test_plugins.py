"""Plugins that mean well: extension points, services both ways, permissions, starting and stopping."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import plugin
from nearcall.plugin import AsyncPluginHost, PluginHost

from ..survival.observing import eventually
from .plugin_hosts import Events, SpokenWords, gone, make_host, options, write_plugin
from .plugin_interface.host_api import Synth, is_command, key_pressed, may_speak, menu, spoken_text

FIRST = """
@spoken_text.handler(priority=10)
def louder(text): return text.upper()
@menu.handler
def items(limit):
    yield from ["a", "b", "c"][:limit]
@may_speak.handler
def may(text): return "secret" not in text.lower()
@is_command.handler
def command(text): return text == "stop"
"""
SECOND = """
speech = plugin.use("speech", Speech)
@spoken_text.handler
async def ends(text, language): return f"{text}! ({language})"
@menu.handler(priority=-1)
def items(): return ["z"]
@may_speak.handler(priority=-1)
def may(text):
    speech.speak("asked " + text)
    return True
@is_command.handler
def command(text): return False
@key_pressed.handler
def key(key): speech.speak("key " + key)
class Voice(Synth):
    def render(self, text):
        for char in text: yield char.encode()
    def pid(self): return os.getpid()
    def buffer(self, size): return memoryview(bytes(size))
plugin.offer(Voice())
def start():
    print("hello from", os.getpid())
    speech.speak(" ".join(speech.words(2)) + str(speech.spoken_by(iter(["ab", "c"]))))
"""


@pytest.fixture
def speech() -> SpokenWords:
    return SpokenWords()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def two(tmp_path: Path) -> Path:
    write_plugin(tmp_path, "first", FIRST)
    write_plugin(tmp_path, "second", SECOND, entry=":start")
    return tmp_path


def test_each_kind_of_extension_point_means_what_it_says(two: Path, speech: SpokenWords, events: Events) -> None:
    with make_host(two, speech, events) as host:
        assert {each.state for each in host} == {"running"}
        assert host.extension(spoken_text)("hi") == "HI! (en)"
        assert host.extension(spoken_text)(text="hi", language="de") == "HI! (de)"
        assert host.extension(menu)(2) == ["a", "b", "z"]
        assert host.extension(is_command)("stop") is True
        assert host.extension(is_command)("go") is False
        assert host.extension(may_speak)("hi") is True
        assert speech.heard.pop() == "asked hi"
        # After a veto nobody else is asked.
        assert host.extension(may_speak)("Secret") is False
        assert speech.heard == ["word 0 word 13"]
        host.extension(key_pressed)("x")
        assert speech.heard[-1] == "key x"
        with pytest.raises(nearcall.InvalidArgument):
            host.extension(spoken_text)(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert events.of("first", "error") == []
    assert events.of("first")[-1].kind == events.of("second")[-1].kind == "stopped"


def test_an_event_loop_has_the_same(two: Path, speech: SpokenWords, events: Events) -> None:
    async def main() -> None:
        home = threading.current_thread()
        threads: list[threading.Thread] = []

        def on_event(event: Any) -> None:
            threads.append(threading.current_thread())
            events(event)

        async with AsyncPluginHost(two, **options(speech, events, on_event=on_event)) as host:
            assert await host.extension(spoken_text)("hi") == "HI! (en)"
            assert await host.extension(menu)(2) == ["a", "b", "z"]
            assert await host.extension(is_command)("stop") is True
            assert await host.extension(may_speak)("secret") is False
            await host.extension(key_pressed)("x")
            assert speech.heard[-1] == "key x"
            second = host.plugins["second"]
            synth = await second.service(Synth)
            assert [part async for part in synth.render("abc")] == [b"a", b"b", b"c"]
            assert await synth.pid() == second.pid
            second.revoke("speech")
            await host.extension(key_pressed)("y")
            assert speech.heard[-1] == "key x"
            await second.grant("speech")
            await host.extension(key_pressed)("z")
            assert speech.heard[-1] == "key z"
            await second.restart()
            assert await host.extension(spoken_text)("hi") == "HI! (en)"
            await second.stop()
            assert await host.extension(spoken_text)("hi") == "HI"
        assert set(threads) == {home}

    asyncio.run(main())
    events.wait_for("second", "error")


def test_a_plugin_offers_services_and_streams(two: Path, speech: SpokenWords, events: Events) -> None:
    with make_host(two, speech, events) as host:
        second = host.plugins["second"]
        synth = second.service(Synth)
        assert b"".join(synth.render("abc")) == b"abc"
        assert synth.pid() == second.pid
        with pytest.raises(nearcall.FailedPrecondition):
            host.plugins["first"].service(Synth)
        second.stop()
        with pytest.raises(nearcall.RpcError):
            synth.pid()


def test_a_host_asks_who_offers_a_service(two: Path, speech: SpokenWords, events: Events) -> None:
    host = make_host(two, speech, events)
    assert not any(each.offers(Synth) for each in host)
    with host:
        assert [each.id for each in host if each.offers(Synth)] == ["second"]
        with pytest.raises(TypeError):
            host.plugins["second"].offers(int)
    assert not any(each.offers(Synth) for each in host)


def test_what_it_prints_is_in_the_hosts_log(
    two: Path, speech: SpokenWords, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "nearcall.plugin"), make_host(two, speech, events) as host:
        said = f"hello from {host.plugins['second'].pid}"
        eventually(
            lambda: ("nearcall.plugin.second", 20, said) in caplog.record_tuples,
            lambda: f"{said!r} is not in {caplog.record_tuples}",
        )


def test_a_permission_is_revoked_and_granted_while_it_runs(two: Path, speech: SpokenWords, events: Events) -> None:
    with make_host(two, speech, events) as host:
        second, key = host.plugins["second"], host.extension(key_pressed)
        second.revoke("speech")
        key("x")
        error = events.wait_for("second", "error")
        assert "PermissionDenied: the permission 'speech' was revoked" in error.text
        second.grant("speech")
        key("y")
        assert speech.heard[-1] == "key y"
        with pytest.raises(ValueError, match="does not ask for 'network'"):
            second.grant("network")


LATE = """
said = []
def attempt(declare):
    try: declare()
    except RuntimeError as error: said.append(str(error))
class Voice(Synth):
    def render(self, text): return iter(())
    def pid(self): return 0
    def buffer(self, size): return memoryview(b"")
@spoken_text.handler
def tell(text): return "; ".join(said)
def start():
    attempt(lambda: plugin.use("speech", Speech))
    attempt(lambda: plugin.offer(Voice()))
    attempt(lambda: key_pressed.handler(lambda key: None))
"""


def test_what_is_declared_too_late_is_an_error(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "late", LATE, entry=":start")
    with make_host(tmp_path, speech, events) as host:
        said = host.extension(spoken_text)("x")
        assert [each.partition(":")[0] for each in said.split("; ")] == [
            "plugin.use('speech', Speech) comes too late",
            "plugin.offer(Voice) comes too late",
            "a handler of key_pressed comes too late",
        ]
        assert said.count("while the plugin is imported") == 3


REPORTS = """
speech = plugin.use("speech", Speech)
@spoken_text.handler
def report(text):
    try: return str(speech.speak(text))
    except Exception as error: return f"{type(error).__name__} {error}"
"""


def yes(_manifest: object, _permission: object) -> bool:
    return True


def no(_manifest: object, _permission: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("more", "asks", "said"),
    [
        ({}, True, "1"),
        ({}, False, "plugin.toml does not ask for it"),
        ({"policy": {"speech": "deny"}}, True, "grants it to no plugin"),
        ({"policy": {"speech": "ask"}}, True, "did not ask its user"),
        ({"policy": {"speech": "ask"}, "ask": no}, True, "the user has denied it"),
        ({"policy": {"speech": "ask"}, "ask": yes}, True, "1"),
        ({"services": {}}, True, "has no such service"),
    ],
)
def test_it_has_what_manifest_policy_and_user_agree_on(
    more: dict[str, Any], asks: bool, said: str, tmp_path: Path, speech: SpokenWords, events: Events
) -> None:
    write_plugin(tmp_path, "one", REPORTS, permissions={"speech": "It speaks."} if asks else {})
    with make_host(tmp_path, speech, events, **more) as host:
        answer = host.extension(spoken_text)("hi")
        assert said in answer
        assert answer == "1" or answer.startswith("PermissionDenied the permission 'speech' is missing: ")


def test_a_permission_granted_later_is_handed_over(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "one", REPORTS)
    with make_host(tmp_path, speech, events, policy={"speech": "ask"}, ask=no) as host:
        assert "PermissionDenied" in host.extension(spoken_text)("hi")
        host.plugins["one"].grant("speech")
        assert host.extension(spoken_text)("hi") == "1"
        host.plugins["one"].restart()
        assert host.extension(spoken_text)("hi") == "2"


def test_one_that_is_lazy_starts_when_it_is_needed(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "first", FIRST, more='extends = ["spoken_text"]')
    write_plugin(tmp_path, "second", SECOND, entry=":start")
    with make_host(tmp_path, speech, events, lazy=True) as host:
        assert {each.state for each in host} == {"stopped"}
        assert host.extension(spoken_text)("hi") == "hi"
        events.wait_for("first", "started")
        assert host.extension(spoken_text)("hi") == "HI"
        assert host.plugins["second"].state == "stopped"
        assert host.plugins["second"].service(Synth).pid() == host.plugins["second"].pid


def test_one_that_changes_is_reloaded(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    folder = write_plugin(tmp_path, "first", FIRST)
    with make_host(tmp_path, speech, events, reload=True) as host:
        source = folder / "code_of_first.py"
        source.write_text(source.read_text().replace("text.upper()", "text.title() + '?'"))
        events.wait_for("first", "started", count=2)
        assert host.extension(spoken_text)("hi you") == "Hi You?"


def test_one_that_does_not_fit_is_not_started(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "later", FIRST, host='api = ">=2"')
    write_plugin(tmp_path, "python", FIRST, more='[runtime]\npython = ">=4"\n')
    other = FIRST.replace("@spoken_text.handler(priority=10)", "@other.handler")
    other = "@plugin.filter(name='spoken_text')\ndef other(text: int) -> int: ...\n" + other
    write_plugin(tmp_path, "different", other)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "plugin.toml").write_text("id = 1")
    with make_host(tmp_path, speech, events) as host:
        assert {each.state for each in host} == {"failed"}
        assert "is for " in events.wait_for("later", "failed").text
        assert "runtime.python = '>=4'" in events.wait_for("python", "failed").text
        assert "text" in events.wait_for("different", "failed").text
        assert list(host.mistakes) == ["broken"]
        assert host.extension(spoken_text)("hi") == "hi"


def test_an_interpreter_of_its_own_takes_a_permission(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    more = f'[runtime]\ninterpreter = "{sys.executable}"\n'
    write_plugin(tmp_path, "own", FIRST, more=more, permissions={"interpreter": "It is of another time."})
    with make_host(tmp_path, speech, events) as host:
        assert host.plugins["own"].state == "failed"
        assert "brings an interpreter" in events.wait_for("own", "failed").text
        host.plugins["own"].grant("interpreter")
        host.plugins["own"].start()
        assert host.extension(spoken_text)("hi") == "HI"


def test_its_process_sees_little_of_the_hosts(
    tmp_path: Path, speech: SpokenWords, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    code = "@menu.handler\ndef show(limit): return [*os.environ, *os.listdir('/proc/self/fd')]"
    write_plugin(tmp_path, "one", code)
    with make_host(tmp_path, speech, events) as host, open(os.devnull) as file:
        os.set_inheritable(file.fileno(), True)
        host.plugins["one"].restart()
        shown = host.extension(menu)(1)
        assert "SECRET_TOKEN" not in shown
        assert str(file.fileno() + 100) not in shown
        assert "PATH" in shown


def test_stopping_ends_every_process(two: Path, speech: SpokenWords, events: Events) -> None:
    def threads() -> set[str]:
        names = {thread.name for thread in threading.enumerate()}
        return {name for name in names if name.startswith(("nearcall-plugins", "nearcall-start"))}

    host = make_host(two, speech, events).start()
    pids = [each.pid for each in host]
    host.stop()
    host.stop()
    assert all(pid is not None and gone(pid) for pid in pids)
    assert all(each.pid is None and each.state == "stopped" for each in host)
    # Those that run callbacks stay, as they are the process's. One that has started a plugin may be about to end.
    eventually(lambda: not threads(), lambda: f"{threads()} are left")


def test_wrong_options_say_what_to_write(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"policy": {"speach": "ask"}}, "there is no permission 'speach'"),
        ({"policy": {"network": "maybe"}}, "'network' must be"),
        ({"points": [print]}, "is no extension point"),
        ({"api": "one"}, "api must be the version"),
        ({"sandbox": "yes"}, "sandbox must be"),
        ({"budget": -1}, "budget must be a number of seconds"),
        ({"points": menu}, r"points must be a list of extension points: write \[...\] around it"),
        ({"services": {"x": object()}}, "is not a service"),
        ({"services": {"x": SpokenWords}}, r"give an object as 'x', not the class: write SpokenWords\(\)"),
        ({"services": [SpokenWords()]}, "services must be a dict from permissions to objects, not"),
        ({"colour": 1}, "no option 'colour': there are name, "),
    ]
    for given, hint in wrong:
        with pytest.raises((TypeError, ValueError), match=hint):
            PluginHost(tmp_path, **given)
    wrong_point: Any = print
    with PluginHost(tmp_path) as host:
        with pytest.raises(ValueError, match="is no extension point of this host"):
            host.extension(spoken_text)
        with pytest.raises(TypeError, match=r"is no extension point, such as nearcall\.plugin\.action makes"):
            host.extension(wrong_point)


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:\n", "SyntaxError: invalid syntax"),
        ("@menu.handler\ndef items(limt): return []\n", "TypeError: a handler of menu cannot take 'limt'; "),
        (
            'plugin.use("speech", Speech).speak("hi")\n',
            "the permission 'speech' cannot be used yet, as the host has not connected: use it in the entry function",
        ),
    ],
)
def test_what_is_wrong_in_a_module_is_told_by_its_own_lines(
    code: str, last: str, tmp_path: Path, speech: SpokenWords, events: Events
) -> None:
    write_plugin(tmp_path, "one", code)
    with make_host(tmp_path, speech, events, restarts=0):
        lines = events.wait_for("one", "died").last_lines
    assert last in lines[-1]
    assert any("code_of_one.py" in line for line in lines)
    assert not any("importlib" in line or "/nearcall/" in line for line in lines)


def test_a_service_that_a_plugin_does_not_offer(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "one", "")
    with make_host(tmp_path, speech, events) as host, pytest.raises(nearcall.FailedPrecondition) as caught:
        host.plugins["one"].service(Synth)
    assert caught.value.message == "the plugin one does not offer Synth (nearcall.plugin.offer); it offers none"


def test_each_mistake_of_a_manifest_is_a_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_plugin(tmp_path, "one", "", host="")
    manifest = folder / "plugin.toml"
    manifest.write_text(manifest.read_text().replace('author = "a"\n', ""))
    with PluginHost(tmp_path) as host:
        wrong = [mistake.key for mistake in host.mistakes["one"].mistakes]
    lines = [record.getMessage() for record in caplog.records if str(manifest) in record.getMessage()]
    assert len(lines) == len(wrong) == 2
    assert not any("\\n" in line for line in lines)


def test_all_are_asked_before_the_first_answer_is_waited_for(
    tmp_path: Path, speech: SpokenWords, events: Events
) -> None:
    code = "speech = plugin.use('speech', Speech)\n@key_pressed.handler\ndef key(key): speech.back(key)\n"
    for name in ("one", "two", "three"):
        write_plugin(tmp_path, name, code)
    meeting = threading.Barrier(3, timeout=20)

    def meet(text: str) -> str:
        meeting.wait()
        return text

    with make_host(tmp_path, speech, events) as host:
        speech.call_back = meet
        for _ in range(3):
            host.extension(key_pressed)("all")

    async def main() -> None:
        async with AsyncPluginHost(tmp_path, **options(speech, events)) as host:
            for _ in range(3):
                await host.extension(key_pressed)("all")

    asyncio.run(main())
    assert events.of("one", "error", "late") == events.of("two", "error", "late") == []


def test_a_stream_is_nothing_to_ask_several_plugins() -> None:
    def listened(sound: Iterator[bytes]) -> None: ...

    with pytest.raises(TypeError, match=r"the action listened\(\) cannot have streams: .* pass a service"):
        plugin.action(listened)


def test_a_timeout_inside_a_handler_is_an_error_of_it(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    code = "import nearcall\n@key_pressed.handler\ndef key(key): raise nearcall.DeadlineExceeded('elsewhere')\n"
    write_plugin(tmp_path, "one", code)
    with make_host(tmp_path, speech, events) as host:
        host.extension(key_pressed)("x")
        assert "DeadlineExceeded: elsewhere" in events.wait_for("one", "error").text
        assert events.of("one", "late") == []


def test_a_stopped_host_stays_stopped(two: Path, speech: SpokenWords, events: Events) -> None:
    host = make_host(two, speech, events)
    host.stop()
    with pytest.raises(RuntimeError, match="make a new one"):
        host.start()
    host.plugins["first"].start()
    assert host.plugins["first"].state == "stopped"
    assert host.extension(spoken_text)("hi") == "hi"


def test_layers_of_its_sandbox_that_are_missing_are_told(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    write_plugin(tmp_path, "one", FIRST)
    with make_host(tmp_path, speech, events, sandbox="best") as host:
        layers = host.plugins["one"].layers
        assert layers
        missing = [layer for layer in layers if layer["state"] in ("not_available", "refused")]
        assert host.extension(spoken_text)("hi") == "HI"
    assert len(events.of("one", "downgraded")) == bool(missing)


CURIOUS = """
@menu.handler
def look(limit):
    found = []
    for path in ("/etc/passwd", __file__):
        try: found.append(open(path).read()[:6])
        except OSError as error: found.append(type(error).__name__)
    return found
"""


def test_a_confined_plugin_reads_its_own_files_and_no_others(
    tmp_path: Path, speech: SpokenWords, events: Events
) -> None:
    write_plugin(tmp_path, "one", CURIOUS)
    with make_host(tmp_path, speech, events, sandbox="best") as host:
        files = next(layer for layer in host.plugins["one"].layers if layer["name"] == "files")
        if files["state"] != "provided":
            pytest.skip(files["detail"])
        assert host.extension(menu)(1) == ["PermissionError", "import"]


def test_one_that_cannot_be_confined_is_not_tried_again(tmp_path: Path, speech: SpokenWords, events: Events) -> None:
    permission = '[permissions.files]\nwhy = "w"\nread = ["/no/such/path"]\n'
    folder = write_plugin(tmp_path, "one", FIRST, permissions={})
    manifest = folder / "plugin.toml"
    manifest.write_text(manifest.read_text() + permission)
    with make_host(tmp_path, speech, events, sandbox="required", policy={"files": "grant"}) as host:
        failed = events.wait_for("one", "failed")
        assert "it is not started without its sandbox" in failed.text
        assert "/no/such/path" in failed.text
        assert host.plugins["one"].state == "failed"
    assert events.of("one", "died") == []
