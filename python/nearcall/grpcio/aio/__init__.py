"""The same for ``grpc.aio``: serves its servicers, and lets its stubs call, in the running event loop.

::

    server = nearcall.grpcio.aio.server()
    helloworld_pb2_grpc.add_GreeterServicer_to_server(Greeter(), server)
    server.add_insecure_port("[::]:50051")
    await server.start()
    await server.wait_for_termination()
"""

from typing import TYPE_CHECKING, Any

from ..credentials import name_of_grpc
from ..peer import grpc
from .channel import Channel, channel, insecure_channel, secure_channel
from .server import Server, server

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return name_of_grpc(name, __name__, grpc.aio)


__all__ = ["Channel", "Server", "channel", "insecure_channel", "secure_channel", "server"]
