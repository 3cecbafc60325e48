"""Numbers as the report's three formats write them."""

from __future__ import annotations

from nearcall_lab.results.metric import Metric
from nearcall_lab.stats import format_time, significant

NOTHING = "–"


def plain(text: str) -> str:
    """One line for a terminal: control characters, which could change its state, become visible."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "\ufffd" for c in text)


def rate(value: float | None) -> str:
    """Things per second, for example ``267 K``; a dash for None."""
    if value is None:
        return NOTHING
    for limit, unit in ((1e6, " M"), (1e3, " K")):
        if value >= limit:
            return f"{significant(value / limit)}{unit}"
    return significant(value)


def metric_text(metric: Metric, value: float | None) -> str:
    """A value of this metric with its unit: ``1.33 µs`` or ``267 K/s``."""
    if value is None:
        return NOTHING
    return format_time(value) if metric.unit == "ns" else f"{rate(value)}/s"


def spread_text(spread: float | None) -> str:
    """Half an interval as a share, for example ``±2.1 %``; empty for None."""
    return "" if spread is None else f"±{100 * spread:.1f} %" if spread < 10 else f"±{100 * spread:,.0f} %"


def cpu(us: float | None) -> str:
    """CPU time of a call."""
    return NOTHING if us is None else format_time(1e3 * us)


def memory(kb: float | None) -> str:
    """Kilobytes of 1024 bytes, in megabytes."""
    return NOTHING if not kb else f"{significant(kb / 1024)} MB"


def share(value: float) -> str:
    """For example ``0.31 %``; ``0`` for none."""
    return f"{significant(100 * value, 2)} %" if value else "0"


def count(value: float | None) -> str:
    """A count per call, which may be a fraction; a dash for None."""
    return NOTHING if value is None else "0" if value < 0.005 else f"{value:,.2f}".rstrip("0").rstrip(".")
