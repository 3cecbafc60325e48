"""What holds of coroutine handlers on every kind of event loop."""

from __future__ import annotations

from typing import Any

import pytest

import nearcall


def check_tasks(looping: Any, key: str) -> None:
    """Every handler has a task of its own, which can be found, cancelled and timed out."""
    for _ in range(20):
        assert looping.own_task()
        looping.keep_task(key)
        assert not looping.cancel_kept(key)
    for how in ("cancelled", "named", "watched", "weak", ""):
        for _ in range(3):
            assert looping.change_task(key + how, how) == how
            named, kept, ended = looping.look_at_task(key + how)
            assert (named, kept) == (False, False), how
            assert ended > 0 or how != "watched"
    with pytest.raises(nearcall.RpcError):
        looping.cancel_itself()
    assert looping.wait_for(0.01) == "timed out"
