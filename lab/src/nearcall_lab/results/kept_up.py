"""Why a launch with a schedule did not keep up with it; its times are then not latencies."""

from __future__ import annotations

from nearcall_lab.results.model import Launch


def overload(launch: Launch) -> str:
    """The reason in a few words; empty where the launch kept up, or had no schedule."""
    if not launch.overloaded:
        return ""
    share = launch.calls / launch.due
    if share < 0.99:
        failed = sum(launch.errors.values())
        more = f", {failed:,} failed" if failed else ""
        return f"{share:.1%} of the {launch.due:,} calls that were due got done{more}"
    return "calls were answered later and later"
