"""Calls it, over shared memory and over gRPC."""

from weather import Report, ReportRain, Sky, Station, Weather

import nearcall

for url in ("shm://example-weather", "grpc://127.0.0.1:7006"):
    with nearcall.connect(url, Weather) as weather:
        oslo = Station(name="Oslo")
        rain = Report(station=oslo, celsius=12.5, sky=Sky.CLOUDS, rain=ReportRain(micrometres=300))
        print(weather.record(iter([Report(station=oslo), rain])).reports, "reports")
        print(weather.latest(oslo).rain)
        print([report.celsius for report in weather.watch(oslo)])
