"""Serves the route guide: `python server.py ADDRESS [URL]`."""

import signal
import sys
from concurrent import futures

import route_guide_pb2_grpc
from route_guide import RouteGuide

import nearcall.grpcio


def serve(address, *urls):
    server = nearcall.grpcio.server(futures.ThreadPoolExecutor(max_workers=10))  # it was grpc.server(...)
    route_guide_pb2_grpc.add_RouteGuideServicer_to_server(RouteGuide(), server)
    server.add_insecure_port(address)
    for url in urls:
        server.add_url(url)  # new: nearcall's own transports, such as shared memory
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=5))
    server.wait_for_termination()


if __name__ == "__main__":
    serve(*sys.argv[1:])
