"""Which mechanisms the demo shows: one or two rows of each, so that it ends within three minutes."""

from __future__ import annotations

from nearcall_lab.registry import Entrant

_ELSEWHERE = ("rpyc-tcp", "rpyc-forking", "rpyc-oneshot", "http-uvicorn", "raw-pipe")
"""Rows that a scenario of their own shows."""


def shown(entrant: Entrant) -> bool:
    """Whether the demo has a row for it. It calls one by one from a thread, with default settings."""
    mechanism = entrant.mechanism
    return (
        mechanism.style == "threads"
        and not mechanism.tuned
        and not mechanism.environment
        and mechanism.name not in _ELSEWHERE
    )
