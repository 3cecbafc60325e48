"""The callables of each kind of method, for threads."""

from __future__ import annotations

from typing import Any

from .. import _core
from ..service.outward import dressed
from ..service.plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, MethodPlan
from .streams import call_bidi_stream, call_client_stream, call_server_stream

__all__ = ["make_callable"]


def make_callable(calls: _core.Calls, plan: MethodPlan, method: _core.Method) -> Any:
    """The callable for a method of a service, or of one object."""
    if plan.kind == ONEWAY:
        return calls.oneway(method, for_loop=False)
    makers = {
        SERVER_STREAM: call_server_stream,
        CLIENT_STREAM: call_client_stream,
        BIDI_STREAM: call_bidi_stream,
    }
    make = makers.get(plan.kind)
    if make is None:
        return calls.unary(method)
    return dressed(make(calls, plan, method), plan, for_loop=False)
