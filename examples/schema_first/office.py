"""What `weather.proto` describes: a class that implements the interface that `nearcall stub` has written."""

from collections.abc import Iterator
from datetime import datetime, timezone

from weather import Recorded, Report, Sky, Station, Weather

import nearcall


class Office(Weather):
    def __init__(self) -> None:
        self._reports: dict[str, Report] = {}

    def latest(self, request: Station) -> Report:
        if request.name not in self._reports:
            raise nearcall.NotFound(f"there is no station {request.name}")
        return self._reports[request.name]

    def watch(self, request: Station) -> Iterator[Report]:
        for celsius in (20.0, 20.5, 21.0):
            yield Report(station=request, at=datetime.now(timezone.utc), celsius=celsius, sky=Sky.CLEAR)

    def record(self, requests: Iterator[Report]) -> Recorded:
        count = 0
        for report in requests:
            if report.station is None:
                raise nearcall.InvalidArgument(f"report {count + 1} names no station")
            self._reports[report.station.name] = report
            count += 1
        return Recorded(reports=count)
