"""A servicer that was written for grpcio: nothing here knows of nearcall."""

import math
import threading
import time

import grpc
import route_guide_pb2
import route_guide_pb2_grpc

FEATURES = {
    (525163000, 133777000): "Brandenburger Tor",
    (525186000, 133761000): "Reichstag",
    (525200000, 134049000): "Fernsehturm",
    (524756000, 133351000): "Rathaus Schöneberg",
}
"""By latitude and longitude, in degrees times 10,000,000."""
EARTH = 6371000
"""Its radius, metres."""


def feature_at(point):
    name = FEATURES.get((point.latitude, point.longitude), "")
    return route_guide_pb2.Feature(name=name, location=point)


def metres(start, end):
    """The length of the great circle between two points, by the haversine formula."""
    north, south = math.radians(start.latitude / 1e7), math.radians(end.latitude / 1e7)
    east = math.radians((end.longitude - start.longitude) / 1e7)
    part = math.sin((south - north) / 2) ** 2 + math.cos(north) * math.cos(south) * math.sin(east / 2) ** 2
    return 2 * EARTH * math.asin(math.sqrt(part))


class RouteGuide(route_guide_pb2_grpc.RouteGuideServicer):
    def __init__(self):
        self._lock = threading.Lock()
        self._notes = []

    def GetFeature(self, request, context):
        if not -900000000 <= request.latitude <= 900000000:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"there is no latitude {request.latitude}")
        return feature_at(request)

    def ListFeatures(self, request, context):
        rows = sorted((request.lo.latitude, request.hi.latitude))
        columns = sorted((request.lo.longitude, request.hi.longitude))
        for latitude, longitude in FEATURES:
            if rows[0] <= latitude <= rows[1] and columns[0] <= longitude <= columns[1]:
                yield feature_at(route_guide_pb2.Point(latitude=latitude, longitude=longitude))

    def RecordRoute(self, request_iterator, context):
        began, points, features, distance, last = time.monotonic(), 0, 0, 0.0, None
        for point in request_iterator:
            points += 1
            features += bool(feature_at(point).name)
            distance += 0 if last is None else metres(last, point)
            last = point
        context.set_trailing_metadata((("points", str(points)),))
        return route_guide_pb2.RouteSummary(
            point_count=points,
            feature_count=features,
            distance=round(distance),
            elapsed_time=int(time.monotonic() - began),
        )

    def RouteChat(self, request_iterator, context):
        for note in request_iterator:
            with self._lock:
                there = [other for other in self._notes if other.location == note.location]
                self._notes.append(note)
            yield from there
