"""Asks the route guide: `python client.py ADDRESS`, or a URL of nearcall's in its place."""

import sys

import grpc
import route_guide_pb2
import route_guide_pb2_grpc

import nearcall.grpcio


def point(latitude, longitude):
    return route_guide_pb2.Point(latitude=latitude, longitude=longitude)


def channel_to(target):
    if "://" in target:
        return nearcall.grpcio.channel(target)
    return grpc.insecure_channel(target)


def ask(stub):
    gate, tower = point(525163000, 133777000), point(525200000, 134049000)
    print("there is:", stub.GetFeature(gate, timeout=5).name)
    print("nothing there:", repr(stub.GetFeature(point(0, 0), timeout=5).name))
    try:
        stub.GetFeature(point(1000000000, 0), timeout=5)
    except grpc.RpcError as error:
        print(f"{error.code().name}: {error.details()}")
    middle = route_guide_pb2.Rectangle(lo=point(525100000, 133700000), hi=point(525250000, 134100000))
    print("in the middle:", *sorted(feature.name for feature in stub.ListFeatures(middle)), sep="\n  ")
    summary, call = stub.RecordRoute.with_call(iter([gate, point(525170000, 133900000), tower]))
    print(f"{summary.point_count} points, {summary.feature_count} features, {summary.distance} m")
    print("metadata:", *(f"{key}={value}" for key, value in call.trailing_metadata()))
    notes = [route_guide_pb2.RouteNote(location=tower, message=text) for text in ("first", "second", "third")]
    print("notes:", *(note.message for note in stub.RouteChat(iter(notes))))


if __name__ == "__main__":
    with channel_to(sys.argv[1]) as channel:
        ask(route_guide_pb2_grpc.RouteGuideStub(channel))
