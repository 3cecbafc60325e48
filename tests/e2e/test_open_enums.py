"""Numbers that an enum has not: refused with the field's name, unless its class makes members of them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

import pytest

import nearcall


class Rain(IntEnum):
    NONE = 0
    LIGHT = 1


class Wind(IntEnum):
    CALM = 0
    STORM = 9

    @classmethod
    def _missing_(cls, value: object) -> Wind | None:
        if not isinstance(value, int) or value < 0:
            return None
        made = int.__new__(cls, value)
        made._name_, made._value_ = f"WIND_{value}", value
        return made


class Turning(Enum):
    """It answers with a member of another number."""

    STILL = 0
    LEFT = 1

    @classmethod
    def _missing_(cls, value: object) -> Turning:
        return cls.LEFT


@dataclass
class Report:
    rain: Rain = Rain.NONE
    wind: Wind = Wind.CALM
    winds: list[Wind] = field(default_factory=list)
    turning: Turning = Turning.STILL


@nearcall.service(name="test.Weather")
class Weather:
    def tell(self, report: Report) -> Report:
        return report


class Later(IntEnum):
    """The enums as a later version of the service has them."""

    NONE = 0
    HEAVY = 7


@dataclass
class LaterReport:
    rain: Later = Later.NONE
    wind: Later = Later.NONE
    winds: list[Later] = field(default_factory=list)
    turning: Later = Later.NONE


@nearcall.service(name="test.Weather")
class LaterWeather:
    def tell(self, report: LaterReport) -> LaterReport: ...


@pytest.fixture(scope="module")
def server() -> Iterator[nearcall.Server]:
    with nearcall.Server(Weather(), "grpc://127.0.0.1:0", "http://127.0.0.1:0", "inproc://open-enums") as server:
        yield server


@pytest.mark.parametrize("place", [0, 1])
def test_a_class_that_makes_members_gets_every_number(server: nearcall.Server, place: int) -> None:
    with nearcall.connect(server.urls[place], LaterWeather) as later:
        sent = LaterReport(wind=Later.HEAVY, winds=[Later.HEAVY, Later.NONE, Later.HEAVY])
        assert later.tell(sent) == sent, "it went there and back"


def test_the_same_class_sends_what_it_has_made(server: nearcall.Server) -> None:
    for url in server.urls:
        with nearcall.connect(url, Weather) as weather:
            report = weather.tell(Report(wind=Wind(12), winds=[Wind(3), Wind.STORM]))
            assert (report.wind.name, report.wind.value, report.winds) == ("WIND_12", 12, [3, Wind.STORM])
            assert report.winds[1] is Wind.STORM


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (LaterReport(rain=Later.HEAVY), r"rain.*Rain has no member 7"),
        (LaterReport(turning=Later.HEAVY), r"turning.*Turning has no member 7"),
    ],
)
def test_other_numbers_are_refused_by_field_and_number(server: nearcall.Server, report: LaterReport, why: str) -> None:
    with (
        nearcall.connect(server.urls[0], LaterWeather) as later,
        pytest.raises(nearcall.InvalidArgument, match=why),
    ):
        later.tell(report)


def test_what_the_class_refuses_is_refused_by_field(server: nearcall.Server) -> None:
    status, answer = post(server, {"winds": [3, -1]})
    assert (status, answer["code"]) == (400, "invalid_argument")
    assert "winds[1]" in answer["message"]
    assert "-1 is not a valid Wind" in answer["message"]


def test_json_has_numbers_where_there_is_no_name(server: nearcall.Server) -> None:
    sent = {"rain": "RAIN_LIGHT", "wind": 12, "winds": ["WIND_STORM", 3], "turning": "TURNING_LEFT"}
    assert post(server, sent) == (200, sent)


class Sky(Enum):
    """Open, but its values are texts, which have no numbers."""

    CLEAR = "clear"

    @classmethod
    def _missing_(cls, value: object) -> Sky:
        made = object.__new__(cls)
        made._name_, made._value_ = "MADE", value
        return made


@nearcall.service
class Skies:
    def tell(self, sky: Sky) -> str:
        return str(sky.value)


def test_a_made_member_without_a_number_is_refused_by_its_name() -> None:
    with nearcall.Server(Skies(), "grpc://127.0.0.1:0", "inproc://skies") as server:
        with nearcall.connect(server.urls[1], Skies) as skies:
            assert skies.tell(Sky("haze")) == "haze"
        with (
            nearcall.connect(server.urls[0], Skies) as skies,
            pytest.raises(nearcall.InvalidArgument, match=r"argument 'sky': Sky has no number for <Sky.MADE: 'haze'>"),
        ):
            skies.tell(Sky("haze"))


def post(server: nearcall.Server, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"{server.urls[1]}/test.Weather/Tell", json.dumps(message).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
