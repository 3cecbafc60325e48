"""xmlrpc.client: calls of server proxies, `MultiCall` among them."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

from nearcall.profile.following import count_bytes, waited
from nearcall.profile.recorder import Recorder

from nearcall_lab.profiling.connections import connects
from nearcall_lab.profiling.urls import length_of

_LIBRARY = "xmlrpc"


def patch(module: ModuleType, recorder: Recorder) -> None:
    proxy: Any = module.ServerProxy
    transport: Any = module.Transport
    request, single, parse = proxy._ServerProxy__request, transport.single_request, transport.parse_response

    @wraps(request)
    def requested(self: Any, methodname: str, params: Any) -> Any:
        name = connects(recorder.name(_LIBRARY, "call", methodname), _LIBRARY)
        call = recorder.begin(name)
        if call is not None:
            call.arguments = recorder.arguments_of(name, (self._ServerProxy__host, *params))
        return waited(call, request, self, methodname, params)

    @wraps(single)
    def sent(self: Any, host: Any, handler: Any, request_body: Any, verbose: Any = False) -> Any:
        count_bytes(sent=len(request_body))
        return single(self, host, handler, request_body, verbose)

    @wraps(parse)
    def received(self: Any, response: Any) -> Any:
        count_bytes(received=length_of(getattr(response, "headers", None)))
        return parse(self, response)

    proxy._ServerProxy__request = requested
    transport.single_request, transport.parse_response = sent, received
