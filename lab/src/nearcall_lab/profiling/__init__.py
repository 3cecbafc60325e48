"""Adapters for `nearcall.profile`: how the calls of other libraries are seen. Each is a module with a function
``patch``, which is imported only in processes that import the library.
"""

from __future__ import annotations

ADAPTERS = {
    "rpyc.utils.factory": "nearcall_lab.profiling.rpyc",
    "rpyc.core.channel": "nearcall_lab.profiling.rpyc",
    "rpyc.core.protocol": "nearcall_lab.profiling.rpyc",
    "grpc._channel": "nearcall_lab.profiling.grpcio",
    "grpc.aio._channel": "nearcall_lab.profiling.grpc_aio",
    "Pyro5.socketutil": "nearcall_lab.profiling.pyro5",
    "Pyro5.client": "nearcall_lab.profiling.pyro5",
    "xmlrpc.client": "nearcall_lab.profiling.xmlrpc",
    "http.client": "nearcall_lab.profiling.connections",
    "urllib3.connection": "nearcall_lab.profiling.connections",
    "httpcore._sync.connection": "nearcall_lab.profiling.connections",
    "httpcore._async.connection": "nearcall_lab.profiling.connections",
    "requests.sessions": "nearcall_lab.profiling.requests",
    "httpx._client": "nearcall_lab.profiling.httpx",
}
"""The modules to watch, and the adapters that patch them."""
