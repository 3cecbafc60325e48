"""The callables of each kind of method, for threads."""

from __future__ import annotations

from typing import Any

from .. import _core
from ..references.target import Calls
from ..service.plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, MethodPlan
from .streams import call_bidi_stream, call_client_stream, call_server_stream

__all__ = ["make_callable"]


def make_callable(calls: Calls, plan: MethodPlan, method: _core.Method) -> Any:
    """The callable for a method of a service, or of one object."""
    if plan.kind == ONEWAY:
        return calls.oneway(method, for_loop=False)
    if plan.kind == SERVER_STREAM:
        return call_server_stream(calls, plan, method)
    if plan.kind == CLIENT_STREAM:
        return call_client_stream(calls, plan, method)
    if plan.kind == BIDI_STREAM:
        return call_bidi_stream(calls, plan, method)
    return calls.unary(method)
