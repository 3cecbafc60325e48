"""For users of grpcio: serves its servicers, and lets its stubs call, unchanged.

Code that protoc has generated, and code written for it, stays; only the lines that make a server or a channel change::

    server = nearcall.grpcio.server(futures.ThreadPoolExecutor(max_workers=10))
    helloworld_pb2_grpc.add_GreeterServicer_to_server(Greeter(), server)

    channel = nearcall.grpcio.insecure_channel("localhost:50051")
    stub = helloworld_pb2_grpc.GreeterStub(channel)

The other names of the module ``grpc``, such as ``StatusCode`` and ``intercept_channel``, can be had from here, too.
:mod:`nearcall.grpcio.aio` does the same for ``grpc.aio``. ``docs/grpcio.md`` says what is different.
"""

from typing import TYPE_CHECKING, Any

from .channel import Channel, channel, insecure_channel, secure_channel
from .credentials import name_of_grpc, ssl_channel_credentials, ssl_server_credentials
from .peer import grpc
from .server import Server, server

if TYPE_CHECKING:
    from . import aio
else:

    def __getattr__(name: str) -> Any:
        if name == "aio":  # asyncio only where it is needed
            from importlib import import_module

            return import_module(f".{name}", __name__)
        return name_of_grpc(name, __name__, grpc)


__all__ = [
    "Channel",
    "Server",
    "aio",
    "channel",
    "insecure_channel",
    "secure_channel",
    "server",
    "ssl_channel_credentials",
    "ssl_server_credentials",
]
