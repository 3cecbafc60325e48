"""Deadlines that pass while something is under way, on a machine of any speed."""

from __future__ import annotations

from collections.abc import Iterator

MOST = 30.0


def longer_and_longer(first: float = 0.05) -> Iterator[float]:
    """Seconds for a call that must get somewhere before its deadline passes.

    On a busy machine a short deadline may have passed before the call is even sent, and that shows nothing. Use it in a
    loop that is left once the call got there::

        for seconds in longer_and_longer():
            with nearcall.timeout(seconds), pytest.raises(nearcall.DeadlineExceeded):
                waiting.hold(key)
            if waiting.has_entered(key):
                break
    """
    seconds = first
    while seconds < MOST:
        yield seconds
        seconds *= 4
    raise AssertionError("the call gets nowhere, however much time it has")
