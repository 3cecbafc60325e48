"""Made by ``nearcall stub`` of weather.proto; do not edit."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import typing

import nearcall

__all__ = [
    "Recorded",
    "Report",
    "ReportRain",
    "Sky",
    "Station",
    "Weather",
]


class Sky(enum.IntEnum):
    UNSPECIFIED = 0
    CLEAR = 1
    CLOUDS = 2


@dataclasses.dataclass(kw_only=True)
class Station:
    name: typing.Annotated[str, nearcall.field(1, implicit=True)] = ""


@dataclasses.dataclass(kw_only=True)
class Report:
    station: typing.Annotated[Station | None, nearcall.field(1)] = None
    at: typing.Annotated[datetime.datetime | None, nearcall.field(2)] = None
    celsius: typing.Annotated[float, nearcall.field(3, type="float", implicit=True)] = 0.0
    sky: typing.Annotated[Sky, nearcall.field(4, implicit=True)] = Sky.UNSPECIFIED
    humidity: typing.Annotated[int | None, nearcall.field(5, type="uint32")] = None
    """percent, if it is known"""
    rain: typing.Annotated[ReportRain | None, nearcall.field(6)] = None
    """One of falls: at most one of those is set."""
    snow: typing.Annotated[bool | None, nearcall.field(7)] = None
    """One of falls: at most one of those is set."""
    notes: typing.Annotated[dict[str, str], nearcall.field(8)] = dataclasses.field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if sum(each is not None for each in [self.rain, self.snow]) > 1:
            raise ValueError("Report: more than one of falls is set")


@dataclasses.dataclass(kw_only=True)
class ReportRain:
    """What falls."""

    micrometres: typing.Annotated[int, nearcall.field(1, type="uint32", implicit=True)] = 0


@dataclasses.dataclass(kw_only=True)
class Recorded:
    reports: typing.Annotated[int, nearcall.field(1, type="int32", implicit=True)] = 0


@nearcall.service(name="weather.v1.Weather")
class Weather(typing.Protocol):
    """Where it is measured, and what."""

    def latest(self, request: Station) -> Report:
        """The last report of a station."""
        ...

    def watch(self, request: Station) -> collections.abc.Iterator[Report]:
        """Reports as they come."""
        ...

    def record(self, requests: collections.abc.Iterator[Report]) -> Recorded:
        """Takes reports in, and says how many there were."""
        ...
