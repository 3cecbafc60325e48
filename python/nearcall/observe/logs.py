"""``nearcall.observe.access_log``: a line in a log for each call."""

from __future__ import annotations

import logging
from typing import Any

from ..call.interceptors import CallInfo, ServerCall
from ..log import known_peer, write
from ..options.names import checks_names
from ..status import StatusCode
from .calls import Followed, Interceptor, follow

__all__ = ["access_log"]


@checks_names
def access_log(
    logger: logging.Logger | str = "nearcall.access", *, level: int = logging.INFO, failed: int = logging.WARNING
) -> Interceptor:
    """An interceptor that logs each call when it has ended, at a client or at a server::

        server Calculator.add OK 0.041 ms pid=4711 uid=1000

    The record has the parts as attributes, too: ``side``, ``method``, ``kind``, ``code``, ``seconds`` and, at a server,
    ``peer``. Arguments, results and messages are not logged: they may be long, and secret.

    Args:
        logger: The logger to write to.
        level: The level for a call that ended well.
        failed: The level for a call that failed.
    """
    to = logging.getLogger(logger) if isinstance(logger, str) else logger

    class _Logged(Followed):
        def ended(self, code: StatusCode, seconds: float, error: BaseException | None) -> None:
            chosen = level if code == StatusCode.OK else failed
            if to.isEnabledFor(chosen):
                _write(to, chosen, self.call, code, seconds)

    return follow(_Logged)


def _write(to: logging.Logger, level: int, call: CallInfo, code: StatusCode, seconds: float) -> None:
    parts: dict[str, Any] = {"method": call.method, "kind": call.kind, "code": code.name, "seconds": seconds}
    if isinstance(call, ServerCall):
        peer = call.context.peer
        parts |= {"side": "server", "peer": peer}
        ended = (call.method, code.name, seconds * 1e3, known_peer(peer))
        write(to, level, "server %s %s %.3f ms %s", *ended, extra=parts)
    else:
        parts["side"] = "client"
        write(to, level, "client %s %s %.3f ms", call.method, code.name, seconds * 1e3, extra=parts)
