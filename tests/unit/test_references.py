"""References in types, plans and messages: what is declared, what is sent in its place, and what is refused."""

from __future__ import annotations

import dataclasses
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Protocol

import msgspec
import pytest
from typing_extensions import TypedDict

import nearcall
from nearcall import _core
from nearcall.codec.references import REFERENCE, Passage, Received
from nearcall.references.given import check_given, end_of_given
from nearcall.references.reference import Handle, Reference
from nearcall.service.agreement import agree, agree_on_reference
from nearcall.service.describing import describe
from nearcall.service.description import Description
from nearcall.service.implementing import agree_to_implement
from nearcall.service.plan import MethodPlan, ServicePlan
from nearcall.service.reading import read_description
from nearcall.service.references import passed_with, services_passed
from nearcall.service.service import plan_of

from .loopback import carry_arguments, receive_value, send_value


@nearcall.service
class Listener:
    def said(self, who: str, text: str) -> None: ...


@nearcall.service
class Seat(Protocol):
    def say(self, text: str) -> None: ...
    def room(self) -> Room: ...


@dataclasses.dataclass
class Guest:
    name: str
    listener: Listener
    others: dict[str, Listener | None] = dataclasses.field(default_factory=dict)


class Place(TypedDict):
    seat: Seat


class Tagged(msgspec.Struct, tag=True, array_like=True):
    seat: Seat
    note: Any = None


@nearcall.service
class Room:
    def join(self, name: str, listener: Listener) -> Seat: ...
    def enter(self, guest: Guest, *, maybe: Listener | None = None) -> Place: ...
    def all(self, listeners: list[Listener]) -> list[Seat]: ...
    def seats(self, listeners: Iterator[Listener]) -> Iterator[Seat]: ...
    def anything(self, value: Any, seat: Tagged) -> Tagged: ...
    def plain(self, name: str) -> str: ...


class Ear(Listener):
    def said(self, who: str, text: str) -> None: ...


class Chair(Seat):
    def say(self, text: str) -> None: ...
    def room(self) -> Room:
        raise NotImplementedError


class Token(Received):
    def __init__(self, value: object) -> None:
        self.value = value

    def as_a(self, cls: type, *, for_loop: bool) -> object:
        return self.value


class Table(Passage):
    """Passes objects within this process, and counts."""

    def __init__(self) -> None:
        self.given: list[object] = []
        self.classes: list[type] = []
        self.taken = 0

    def check(self, value: object, cls: type) -> None:
        check_given(value, cls)

    def put(self, references: Any, value: object, cls: type) -> bytes:
        self.given.append(value)
        self.classes.append(cls)
        return bytes([len(self.given) - 1])

    def take(self, references: Any, data: memoryview) -> Received:
        self.taken += 1
        return Token(self.given[data[0]])


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    table = Table()

    class References:
        held = table

    monkeypatch.setattr(_core, "current_references", References)
    return table


def method(name: str, cls: type = Room) -> MethodPlan:
    return next(plan for plan in plan_of(cls).methods if plan.name == name)


def arrive(name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    plan = method(name)
    return carry_arguments(plan.arguments, plan.arguments, plan.arguments.bind(args, kwargs))


def description(*classes: type) -> Description:
    plans = [plan_of(cls) for cls in classes]
    return read_description(describe(plans, None, services_passed(plans)))


def test_what_a_plan_says() -> None:
    join, plain = method("join"), method("plain")
    assert join.takes == (Listener,)
    assert join.gives == (Seat,)
    assert join.arguments.coding.references
    assert join.reply.coding.references
    assert join.arguments.parameters[1].schema == {"reference": "Listener"}
    assert not plain.arguments.coding.references
    assert not plain.reply.coding.references
    assert method("enter").takes == (Listener,)
    assert method("seats").request_item is not None
    # A Seat is passed to the server as well, and would give it a Room, which it could join.
    assert passed_with(plan_of(Room)) == ((Seat, Room, Listener), (Listener, Seat, Room))


def test_objects_arrive_in_the_place_of_references(table: Table) -> None:
    ear, other, chair = Ear(), Ear(), Chair()
    assert arrive("join", "ada", ear) == ("ada", ear)
    guest, maybe = arrive("enter", Guest("ada", ear, {"b": other, "c": None}), maybe=None)
    assert guest == Guest("ada", ear, {"b": other, "c": None})
    assert maybe is None
    assert arrive("enter", Guest("ada", ear), maybe=other)[1] is other
    assert arrive("all", [ear, other, ear])[0] == [ear, other, ear]
    tagged = arrive("anything", {"a": (1, 2)}, Tagged(chair, note={3}))
    assert tagged == ({"a": (1, 2)}, Tagged(chair, note={3}))
    reply = method("enter").reply
    assert receive_value(reply, *send_value(reply, {"seat": chair})) == {"seat": chair}
    item = method("seats").reply
    assert receive_value(item, *send_value(item, chair)) is chair
    assert table.taken == len(table.given)
    assert set(table.classes) == {Listener, Seat}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (7, "Room.join(): argument 'listener' cannot be sent: expected an object of the service Listener, got int"),
        (None, "Room.join(): argument 'listener' cannot be sent: expected an object of the service Listener, got None"),
        (
            Ear,
            "Room.join(): argument 'listener' cannot be sent: expected an object of the service Listener, got a class",
        ),
        (
            Chair(),
            "Room.join(): argument 'listener' cannot be sent: expected an object of the service Listener, got one",
        ),
    ],
)
def test_other_values_are_refused(table: Table, value: Any, problem: str) -> None:
    with pytest.raises(nearcall.InvalidArgument) as caught:
        arrive("join", "ada", value)
    assert str(caught.value).startswith(problem)
    assert not table.given


def test_what_is_missing_is_named(table: Table) -> None:
    class Half:
        def say(self, text: str) -> None: ...

    plan = method("enter").reply
    with pytest.raises(nearcall.Internal, match=r"at \.seat: .*Half: it has no method 'room'"):
        send_value(plan, {"seat": Half()})

    class Whole:
        def said(self, who: str, text: str) -> None: ...

    with pytest.raises(nearcall.InvalidArgument, match="Whole: derive its class from Listener"):
        arrive("join", "ada", Whole())
    with pytest.raises(nearcall.InvalidArgument, match=r"at \[1\]: expected an object of the service Listener"):
        arrive("all", [Ear(), 3])


def test_another_argument_is_blamed_for_itself(table: Table) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=r"Room.join\(\): argument 'name'"):
        arrive("join", "\ud800", Ear())


def test_outside_of_a_connection_nothing_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "current_references", lambda: None)
    with pytest.raises(nearcall.FailedPrecondition, match="references"):
        arrive("join", "ada", Ear())


@pytest.mark.parametrize("place", ["any", "text"])
def test_a_reference_is_refused_where_none_is_declared(table: Table, place: str) -> None:
    table.given.append(Ear())
    stray = msgspec.msgpack.Ext(REFERENCE, b"\x00")
    if place == "any":
        body = msgspec.msgpack.encode([stray, ["Tagged", stray, stray]])
        plan = method("anything").arguments.coding
        table.given[0] = Chair()
    else:
        body = msgspec.msgpack.encode([stray, stray])
        plan = method("join").arguments.coding
    with pytest.raises(ValueError, match=r"reference is where|Expected `str`") as caught:
        plan.decode(body, [])
    assert isinstance(plan.decode_error(caught.value), nearcall.InvalidArgument)


def test_an_object_of_another_class_is_refused(table: Table) -> None:
    plan = method("join").arguments.coding
    table.given.append(Chair())
    body = msgspec.msgpack.encode(["ada", msgspec.msgpack.Ext(REFERENCE, b"\x00")])
    with pytest.raises(msgspec.ValidationError, match="Listener"):
        plan.decode(body)


def test_a_class_that_could_travel_as_either_is_refused() -> None:
    @nearcall.service
    @dataclasses.dataclass
    class Account:
        balance: int = 0

        def add(self, n: int) -> int: ...

    with pytest.raises(TypeError, match="Account is a service and has fields"):

        @nearcall.service
        class Bank:
            def account(self) -> Account: ...


def test_the_description_numbers_what_is_passed_after_what_is_served() -> None:
    read = description(Room)
    assert [service.name for service in read.passed] == ["Seat", "Room", "Listener"]
    served = [number for number, _, _ in read.numbered()]
    passed = [number for number, _, _ in read.numbered_references()]
    assert served + passed == list(range(len(served) + len(passed)))


def test_two_services_of_one_name_cannot_both_be_passed() -> None:
    def other() -> type:
        @nearcall.service(name="Listener")
        class Stranger:
            def hear(self) -> None: ...

        return Stranger

    Stranger = other()

    @nearcall.service
    class Both:
        def one(self, listener: Listener) -> None: ...
        def two(self, listener: Stranger) -> None: ...  # type: ignore[valid-type]

    with pytest.raises(TypeError, match="two services whose objects are passed are called 'Listener'"):
        services_passed([plan_of(Both)])


def test_an_implementation_may_name_its_own_classes() -> None:
    class RoomHere(Room):
        def join(self, name: str, listener: Listener) -> Chair: ...

    passed = services_passed([plan_of(RoomHere)])
    assert [service.name for service in passed] == ["Seat", "Room", "Listener"]
    assert all(agreed.problem is None for agreed in agree(plan_of(Room), description(RoomHere)).values())


def newer_listener() -> type:
    @nearcall.service(name="Listener")
    class Newer:
        def said(self, text: str, who: str, mood: str = "calm") -> None: ...
        def left(self) -> None: ...

    return Newer


def server_with(listener: Any) -> Description:
    @nearcall.service(name="Room")
    class Other:
        def join(self, name: str, listener: listener) -> None: ...  # type: ignore[valid-type]

    return description(Other)


def implemented(plan: ServicePlan, read: Description) -> Any:
    return {each.plan.name: each for each in agree_to_implement(plan, read)}


def test_a_server_calls_by_its_own_declaration() -> None:
    read = server_with(newer_listener())
    said = implemented(plan_of(Ear), read)["said"]
    assert said.problem is None
    caller = method("said", newer_listener())
    heard: list[tuple[object, str, str]] = []

    def handler(target: object, who: str, text: str) -> None:
        heard.append((target, who, text))

    run = said.arrange(handler)
    run("target", *carry_arguments(caller.arguments, said.plan.arguments, {"text": "hello", "who": "ada"}))
    assert heard == [("target", "ada", "hello")]
    given = carry_arguments(caller.arguments, said.plan.arguments, ("hello", "ada", "angry"))
    with pytest.raises(nearcall.InvalidArgument, match="'mood' was given"):
        run("target", *given)


def test_what_is_read_without_a_type_is_looked_at_for_keys_that_collide() -> None:
    """Where the server's class has more fields the client looks for them in the bytes: any table becomes a dict."""

    @dataclasses.dataclass
    class Line:
        text: str

    @nearcall.service(name="Wall")
    class Ours:
        def wrote(self, line: Line) -> None: ...

    older = Line

    @dataclasses.dataclass
    class Line:  # type: ignore[no-redef]
        text: str
        extra: str = ""

    newer = Line

    @nearcall.service(name="Wall")
    class Theirs:
        def wrote(self, line: newer) -> None: ...  # type: ignore[valid-type]

    @nearcall.service(name="Room")
    class Other:
        def join(self, wall: Theirs) -> None: ...

    assert older is not newer
    assert plan_of(Ours).methods[0].arguments.coding.hashed is None
    wrote = implemented(plan_of(Ours), description(Other))["wrote"]
    assert wrote.problem is None
    assert wrote.plan.arguments.coding.hashed is not None
    with pytest.raises(nearcall.FailedPrecondition, match="the field 'extra: str'"):
        wrote.plan.arguments.coding.decode(msgspec.msgpack.encode([{"text": "x", "extra": "y"}]))


def test_what_no_call_could_get_right_is_found_when_they_meet() -> None:
    @nearcall.service(name="Listener")
    class Strict:
        def said(self, who: int, text: str) -> None: ...

    said = implemented(plan_of(Ear), server_with(Strict))["said"]
    assert said.problem is not None
    assert "who: int" in said.problem
    with pytest.raises(nearcall.FailedPrecondition, match="takes no objects of the service Seat"):
        implemented(plan_of(Chair), description(Alone))
    problems = [agreed.problem for agreed in agree_on_reference(plan_of(Seat), description(Alone)).values()]
    assert all(problem is not None and "passes no objects" in problem for problem in problems)


@nearcall.service
class Alone:
    def hello(self) -> None: ...


class FakeReferences:
    """One connection's, as far as receiving goes."""

    def __init__(self) -> None:
        self.released: list[tuple[int, int]] = []
        self.url = "test:"
        self.alive = True

    def release(self, number: int, count: int) -> None:
        self.released.append((number, count))

    def take(self, number: int) -> None:
        """Whose the references of a message are is the core's to know."""

    def target(self, number: int, keeps: object) -> Any:
        return SimpleNamespace(unary=lambda method: lambda *args: (number, args, keeps))


def test_a_reference_is_let_go_of_as_often_as_it_came() -> None:
    from nearcall.references.passage import ConnectionPassage

    references: Any = FakeReferences()
    catalogue: Any = FakeCatalogue()
    passage = ConnectionPassage(catalogue)
    data = memoryview(b"\x00" + (7).to_bytes(8, "little"))
    first, second = (passage.take(references, data).as_a(Seat, for_loop=False) for _ in range(2))
    assert first is second
    assert isinstance(first, Seat)
    assert first.__class__ is Seat
    assert repr(first) == "<reference to a Seat at test:>"
    assert first != passage.take(references, data).as_a(Seat, for_loop=True)
    gc.collect()
    assert not references.released
    say = first.say
    del first, second
    gc.collect()
    assert not references.released  # the method keeps the object
    del say
    gc.collect()
    assert references.released == [(7, 3)]


class FakeCatalogue:
    def methods(self, cls: type, for_loop: bool) -> dict[str, Any]:
        return {plan.name: (plan, None) for plan in plan_of(cls).methods}

    def make_callable(self, target: Any, plan: MethodPlan, method: Any, for_loop: bool) -> Any:
        return target.unary(method)

    def where(self, references: Any) -> str:
        return str(references.url)


def receiving(references: Any, number: int) -> Callable[[], Any]:
    """Receives the other side's object of that number over one connection, as often as it is called."""
    from nearcall.references.passage import ConnectionPassage

    catalogue: Any = FakeCatalogue()
    passage = ConnectionPassage(catalogue)
    data = memoryview(b"\x00" + number.to_bytes(8, "little"))
    return lambda: passage.take(references, data).as_a(Seat, for_loop=False)


def test_release() -> None:
    references = FakeReferences()
    receive = receiving(references, 9)
    seat = receive()
    seat.say("x")
    nearcall.release(seat)
    nearcall.release(seat)
    assert references.released == [(9, 1)]
    assert repr(seat) == "<released reference to a Seat at test:>"
    with pytest.raises(nearcall.FailedPrecondition, match=r"Seat.say\(\): the reference was released"):
        seat.say("x")
    again = receive()
    assert again is not seat
    again.say("x")
    nearcall.release(Ear())  # one's own that came back
    with pytest.raises(TypeError, match="is no reference"):
        nearcall.release(7)
    with pytest.raises(AttributeError, match="Seat at test: has no method 'sya': did you mean 'say'"):
        again.sya  # noqa: B018
    with pytest.raises(TypeError, match="pickled"):
        __import__("pickle").dumps(again)
    assert type(again) is Reference
    assert isinstance(again._nearcall_handle, Handle)


@pytest.mark.parametrize("data", [b"", b"\x00" * 8, b"\x00" * 10, b"\x02" + b"\x00" * 8])
def test_malformed_references_are_refused(data: bytes) -> None:
    from nearcall.references.passage import ConnectionPassage

    catalogue: Any = FakeCatalogue()
    references: Any = FakeReferences()
    with pytest.raises(ValueError, match="malformed reference"):
        ConnectionPassage(catalogue).take(references, memoryview(data))


def test_what_ends_an_object() -> None:
    class Closing(Ear):
        def close(self) -> None: ...

    class Both(Closing):
        async def aclose(self) -> None: ...

    @nearcall.service
    class File:
        def close(self) -> None: ...

    closing, both = Closing(), Both()
    assert end_of_given(closing) == closing.close
    assert end_of_given(both) == both.aclose
    assert end_of_given(File()) is None
    assert end_of_given(Ear()) is None


class Meeting(FakeReferences):
    """Another thread receives the object once more at the moment at which its release is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.meet: Callable[[], None] | None = None

    def release(self, number: int, count: int) -> None:
        super().release(number, count)
        meet, self.meet = self.meet, None
        if meet is not None:
            thread = threading.Thread(target=meet)
            thread.start()
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.parametrize("explicitly", [False, True])
def test_a_reference_that_comes_while_an_earlier_one_is_let_go_of(explicitly: bool) -> None:
    """It is another one: it may be called, and is let go of by itself."""
    references = Meeting()
    receive = receiving(references, 7)
    met: list[Any] = []
    references.meet = lambda: met.append(receive())
    seat = receive()
    if explicitly:
        nearcall.release(seat)
    del seat
    assert references.released == [(7, 1)]
    assert len(met) == 1
    met[0].say("x")
    met.clear()
    gc.collect()
    assert references.released == [(7, 1), (7, 1)]


def test_threads_that_receive_one_object_and_let_go_of_it() -> None:
    class Counting(FakeReferences):
        """Counts how often the object is held, as its owner does."""

        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()
            self.held = 0

        def release(self, number: int, count: int) -> None:
            with self.lock:
                self.held -= count

    references = Counting()
    receive = receiving(references, 7)
    problems: list[int] = []

    def receive_often() -> None:
        for turn in range(10_000):
            with references.lock:
                references.held += 1
            seat = receive()
            if references.held < 1:
                problems.append(turn)
            del seat

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=receive_often) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    gc.collect()
    assert (references.held, problems) == (0, [])
