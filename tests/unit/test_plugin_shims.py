"""What generated shims are made of: turns, extension points with ``register``, mappings of the host."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

import nearcall
from nearcall import plugin
from nearcall.plugin import ExtensionPoint, shims
from nearcall.plugin.inside.registry import registry


@pytest.fixture(autouse=True)
def no_handlers_stay() -> Iterator[None]:
    before = dict(registry.handlers)
    yield
    registry.handlers.clear()
    registry.handlers.update(before)


@plugin.action
def told(text: str, language: str = "en") -> None: ...
@plugin.filter
def filtered(text: str, language: str = "en") -> str: ...
@plugin.decider
def decided(text: str) -> bool: ...
@plugin.accumulating_decider(default=False)
def accumulated(text: str) -> bool: ...
@plugin.chain
def chained(text: str) -> list[str]: ...


def ask(point: ExtensionPoint[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As the host's question arrives."""
    served: Any = registry.handlers[point.name].served
    return served.handle(*args, **kwargs)


def test_an_action_tells_all_in_order_with_what_they_name() -> None:
    heard: list[object] = []
    action = shims.Registered(told)
    ask(told, "nobody")
    action.register(lambda text: heard.append(("one", text)))
    action.register(lambda: heard.append("two"))
    action.register(lambda **all_of_it: heard.append(all_of_it))
    ask(told, "hi", "de")
    ask(told, text="ho")
    assert heard[:3] == [("one", "hi"), "two", {"text": "hi", "language": "de"}]
    assert heard[3:5] == [("one", "ho"), "two"]


def test_a_filter_is_chained_and_survives_one_that_raises(capsys: pytest.CaptureFixture[str]) -> None:
    chain = shims.Registered(filtered)
    assert ask(filtered, "hi") == "hi"

    def fails(text: str) -> str:
        raise ZeroDivisionError(text)

    upper = str.upper
    chain.register(lambda whatever_it_is_called: whatever_it_is_called + "!")
    chain.register(fails)
    chain.register(lambda value, language: f"{value} ({language})")
    chain.register(wrapped := lambda value: upper(value))  # noqa: PLW0108 - builtins have no signature
    assert ask(filtered, "hi", "de") == "HI! (DE)"
    assert "ZeroDivisionError: hi!" in capsys.readouterr().err
    assert chain.unregister(wrapped)
    assert not chain.unregister(wrapped)
    assert ask(filtered, text="hi", language="de") == "hi! (de)"


def test_deciders_and_chains_mean_what_they_say() -> None:
    one, many, items = shims.Registered(decided), shims.Registered(accumulated), shims.Registered(chained)
    assert (ask(decided, "x"), ask(accumulated, "x"), ask(chained, "x")) == (True, False, [])
    asked: list[str] = []
    for name, answer in (("a", True), ("b", False), ("c", True)):
        one.register(lambda text, name=name, answer=answer: (asked.append(name), answer)[1])
        many.register(lambda text, answer=answer: answer)
        items.register(lambda text, name=name: iter([name, text]))
    assert (ask(decided, "x"), asked) == (False, ["a", "b"])
    assert ask(accumulated, "x") is True
    assert ask(chained, "x") == ["a", "x", "b", "x", "c", "x"]


def test_deciders_take_what_is_no_bool_as_old_ones_do() -> None:
    one, many = shims.Registered(decided), shims.Registered(accumulated)
    many.register(lambda: None)
    assert ask(accumulated, "x") is False  # its default: nobody has said otherwise
    one.register(lambda: None)
    assert ask(decided, "x") is False


def test_a_function_that_cannot_be_called_is_refused_at_once() -> None:
    action, chain = shims.Registered(told), shims.Registered(filtered)
    with pytest.raises(TypeError, match="told has no 'pitch' for a function; there is text, language"):
        action.register(lambda pitch: None)
    with pytest.raises(TypeError, match="needs a parameter: the value"):
        chain.register(lambda: "")
    with pytest.raises(ValueError, match="there is a handler of told already"):
        shims.Registered(told)


def test_one_registered_twice_is_called_once() -> None:
    heard: list[str] = []
    action = shims.Registered(told)

    def hear(text: str) -> None:
        heard.append(text)

    action.register(hear)
    action.register(hear)
    ask(told, "hi")
    assert heard == ["hi"]


def test_a_point_may_be_declared_and_registered_in_one_step() -> None:
    @shims.filter(name="test.in_one_step", budget=2)
    def in_one_step(text: str) -> str: ...

    @shims.action
    def tell() -> None: ...

    point = in_one_step.point
    assert (point.kind, point.name, point.budget, tell.point.kind) == ("filter", "test.in_one_step", 2, "action")
    in_one_step.register(lambda text: text * 2)
    assert ask(point, "ab") == "abab"


def test_one_thread_at_a_time_but_not_while_it_waits_for_the_host() -> None:
    turn = shims.Turn()
    inside, waits, over = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def other() -> None:
        waits.set()
        with turn:
            order.append("other")
            inside.set()
        over.set()

    thread = threading.Thread(target=other)
    with turn, turn:  # a turn may be taken again by who has it
        thread.start()
        waits.wait()
        order.append("first")
        with turn.away():
            inside.wait()
        order.append("first again")
    thread.join()
    assert over.is_set()
    assert order == ["first", "other", "first again"]
    with turn.away():  # by a thread that does not have it: nothing to give away
        order.append("free")
    with turn:
        order.append("last")
    assert order[3:] == ["free", "last"]


def test_who_cannot_have_the_turn_in_time_is_told() -> None:
    turn = shims.Turn()
    failures: list[BaseException] = []

    def late() -> None:
        try:
            with nearcall.timeout(0.01), turn:
                failures.append(AssertionError("it had the turn"))
        except nearcall.DeadlineExceeded as error:
            failures.append(error)

    with turn:
        thread = threading.Thread(target=late)
        thread.start()
        thread.join()
    assert [type(each) for each in failures] == [nearcall.DeadlineExceeded]
    with turn:
        pass


def test_the_turn_comes_back_when_the_host_raises() -> None:
    turn = shims.Turn()

    def ask_the_host() -> None:
        with turn.away():
            raise KeyError("x")

    with turn, pytest.raises(KeyError):
        ask_the_host()
    with turn:
        pass


class Host:
    """The host's side of a mapping, without a process."""

    def __init__(self, mapping: dict[str, Any], depth: int) -> None:
        self.find_conf = lambda keys: shims.find(mapping, keys, depth)
        self.put_conf = lambda keys, value: shims.put(mapping, keys, value, depth)
        self.remove_conf = lambda keys: shims.remove(mapping, keys, depth)
        self.keys_of_conf = lambda keys: shims.keys_of(mapping, keys, depth)


def test_a_mapping_of_the_host_is_a_mapping() -> None:
    real: dict[str, Any] = {"a": 1}
    conf = shims.Shared(Host(real, 1), "conf")
    conf["b"] = 2
    assert (conf["a"], conf.get("c", 9), dict(conf), len(conf), "b" in conf) == (1, 9, real, 2, True)
    del conf["a"]
    assert conf.pop("b") == 2
    assert conf.setdefault("d", 4) == 4
    assert real == {"d": 4}
    for missing in (lambda: conf["x"], lambda: conf.__delitem__("x")):
        with pytest.raises(KeyError):
            missing()


def test_mappings_inside_each_other_are_shared_too() -> None:
    real: dict[str, Any] = {"speech": {"rate": 50}}
    conf = shims.Shared(Host(real, 2), "conf", 2)
    conf["speech"]["rate"] += 1
    conf["own"] = {"longest": 3}
    conf["own"].update(more=4)
    assert real == {"speech": {"rate": 51}, "own": {"longest": 3, "more": 4}}
    assert [*conf] == ["speech", "own"]
    assert {name: dict(inner) for name, inner in conf.items()} == real
    with pytest.raises(KeyError):
        conf["missing"]["x"]
    del conf["own"]["more"]
    del conf["speech"]
    assert real == {"own": {"longest": 3}}


@pytest.mark.parametrize("keys", [[], ["a"], ["a", "b", "c"], ["a", "b", "c", "d"]])
def test_a_plugin_reaches_no_deeper_than_the_values(keys: list[str]) -> None:
    real: dict[str, Any] = {"a": {"b": {"c": 1}}}
    for call in (lambda: shims.find(real, keys, 2), lambda: shims.put(real, keys, 1, 2)):
        with pytest.raises(ValueError, match="where it takes 2"):
            call()
    if len(keys) > 1:
        with pytest.raises(ValueError, match="where it takes 2"):
            shims.keys_of(real, keys, 2)
    assert real == {"a": {"b": {"c": 1}}}


def test_what_a_plugin_can_have_the_host_keep_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcall.plugin.shims.values.MOST", 3)
    real: dict[str, Any] = {"a": {"x": 1}}
    shims.put(real, ["b", "y"], "z" * 4000, 2)
    shims.put(real, ["b", "z"], 1, 2)
    with pytest.raises(ValueError, match="there are 3 values already"):
        shims.put(real, ["c", "x"], 1, 2)
    shims.put(real, ["a", "x"], 2, 2)  # another value for a key that is there
    for keys, value in ((["a", "x"], "z" * 4096), (["a", "k" * 4096], 1), (["a", "x"], [0] * 5000)):
        with pytest.raises(ValueError, match="4096 at most"):
            shims.put(real, keys, value, 2)
    assert shims.remove(real, ["b"], 2)
    assert real == {"a": {"x": 2}}


def test_a_variable_of_a_module_is_the_hosts() -> None:
    module = types.ModuleType("shim_of_a_test")
    sys.modules[module.__name__] = module
    kept = {"rate": 1}
    service = types.SimpleNamespace(
        get_rate=lambda: kept["rate"], set_rate=lambda value: kept.__setitem__("rate", value)
    )
    try:
        shims.variables(module.__name__, service, ["rate"])
        shim: Any = module
        shim.rate += 4
        shim.other = 2
        assert (shim.rate, kept, shim.other) == (5, {"rate": 5}, 2)
    finally:
        del sys.modules[module.__name__]
