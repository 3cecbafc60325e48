"""What the clients of a channel keep of a server, and what becomes of it when the next one comes."""

from __future__ import annotations

import gc
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from nearcall import Cancelled, FailedPrecondition, RpcError, service
from nearcall.client import agreements
from nearcall.client.agreements import Agreement, Agreements
from nearcall.service.describing import describe
from nearcall.service.description import Description
from nearcall.service.plan import MethodPlan
from nearcall.service.service import plan_of


@service
class Red:
    def paint(self, wall: str) -> str: ...


@service
class Blue:
    def draw(self, line: str) -> str: ...


@service(name="Blue")
class LaterBlue:
    def draw(self, line: int) -> str: ...


class Method:
    """In place of the core's: it remembers its plan, its number and its successor."""

    def __init__(self, plan: MethodPlan, *, number: int, keeps: object, **_options: Any) -> None:
        self.plan = plan
        self.number = number
        self.keeps = keeps
        self.successor: Method | None = None

    def succeed(self, successor: Method) -> None:
        self.successor = successor

    @property
    def outcome(self) -> int | RpcError:
        """The number that a call would carry, or the error that it would end with."""
        now = self.successor or self
        if now.plan.always_named:
            try:
                now.plan.arguments.encode_named(("x",))
            except RpcError as error:
                return error
        return now.number


@pytest.fixture(autouse=True)
def _without_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreements, "_core", SimpleNamespace(Method=Method))


def described(*classes: type) -> str:
    return json.dumps(describe([plan_of(cls) for cls in classes]))


def method(agreement: Agreement) -> Method:
    (((service, (name,)),)) = agreement.names.items()
    _, only = agreement.method(service, name)
    return only  # type: ignore[return-value]


def refusal(agreement: Agreement) -> str:
    outcome = method(agreement).outcome
    assert isinstance(outcome, RpcError), outcome
    return f"{type(outcome).__name__}: {outcome.message}"


FIRST = described(Red, Blue)


def test_every_client_is_renewed() -> None:
    both = Agreements("tcp://far", 1000)
    red, blue = both.add(Red, FIRST), both.add(Blue, FIRST)
    assert (method(red).outcome, method(blue).outcome) == (0, 1)
    both.renew(described(Blue, Red))
    assert (method(red).outcome, method(blue).outcome) == (1, 0)


def test_a_class_that_no_longer_fits_is_refused_alone_until_it_fits_again() -> None:
    both = Agreements("tcp://far", 1000)
    red, blue = both.add(Red, FIRST), both.add(Blue, FIRST)
    both.renew(described(LaterBlue, Red))
    assert method(red).outcome == 1
    assert refusal(blue) == "FailedPrecondition: client's Blue.draw(line: str) but the server's has line: int"
    both.renew(FIRST)
    assert (method(red).outcome, method(blue).outcome) == (0, 1)


def test_a_description_that_is_malformed_for_one_class_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Agreements("tcp://far", 1000)
    red, blue = both.add(Red, FIRST), both.add(Blue, FIRST)
    agree = agreements.agree

    def stumble(plan: Any, description: Any) -> Any:
        if plan.name == "Blue":
            raise KeyError("what a peer may write")
        return agree(plan, description)

    monkeypatch.setattr(agreements, "agree", stumble)
    both.renew(described(Blue, Red))
    assert method(red).outcome == 1
    assert refusal(blue) == "FailedPrecondition: tcp://far: the server's description of itself is malformed"


def test_a_description_that_cannot_be_read_changes_nothing() -> None:
    both = Agreements("tcp://far", 1000)
    red = both.add(Red, FIRST)
    with pytest.raises(FailedPrecondition, match="tcp://far: the server's description of itself is malformed"):
        both.renew("{}")
    assert method(red).outcome == 0
    assert method(both.add(Blue, FIRST)).outcome == 1


def test_a_client_that_was_refused_is_not_kept() -> None:
    both = Agreements("tcp://far", 1000)
    with pytest.raises(FailedPrecondition, match=re.escape("tcp://far: client's Blue.draw(line: int) but")):
        both.add(LaterBlue, FIRST)
    assert not both._agreements


def test_a_new_client_sees_the_server_that_is_about_to_come() -> None:
    both = Agreements("tcp://far", 1000)
    both.renew(described(Blue, Red))
    assert method(both.add(Red, FIRST)).outcome == 1


def test_a_server_that_comes_while_a_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Agreements("tcp://far", 1000)
    begin = Agreement.begin

    def begin_and_meet_the_next(agreement: Agreement, description: Description) -> None:
        both.renew(described(Blue, Red))  # another thread has connected anew
        begin(agreement, description)

    monkeypatch.setattr(Agreement, "begin", begin_and_meet_the_next)
    assert method(both.add(Red, FIRST)).outcome == 1


def test_a_closed_client_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Agreements("tcp://far", 1000)
    red, blue = both.add(Red, FIRST), both.add(Blue, FIRST)
    both.end(red)
    both.end(red)
    both.renew(described(Blue, Red))
    assert refusal(red) == "Cancelled: this client of tcp://far was closed"
    assert method(blue).outcome == 0
    assert len(both._agreements) == 1
    # Closed at the very moment at which it is renewed.
    agree = agreements.agree

    def agree_and_close(plan: Any, description: Any) -> Any:
        both.end(blue)
        return agree(plan, description)

    monkeypatch.setattr(agreements, "agree", agree_and_close)
    both.renew(FIRST)
    assert isinstance(method(blue).outcome, Cancelled)


def test_an_agreement_lives_as_long_as_one_of_its_methods() -> None:
    both = Agreements("tcp://far", 1000)
    kept = method(both.add(Red, FIRST))
    both.add(Blue, FIRST)
    gc.collect()
    both.renew(described(Blue, Red))
    assert kept.outcome == 1
    assert len(both._agreements) == 1
    del kept
    gc.collect()
    assert not both._agreements
