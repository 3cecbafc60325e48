"""The decision view: which mechanism suffices for given work, calls at once, calls per second and CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from nearcall_lab.report.html import element, items, join
from nearcall_lab.report.look import css_class, icon
from nearcall_lab.report.model import Report, Row
from nearcall_lab.report.text import cpu, rate
from nearcall_lab.scenario.cell import Mode, describe
from nearcall_lab.stats import format_time

HEADS = ("mechanism", "will it do?", "p50", "p99", "calls/s reached", "CPU/call", "CPUs for it", "measured")
CAVEATS = (
    "CPUs are the rate times the CPU time per call of both sides. A client or server that polls takes a whole CPU, "
    "however few the calls: such a mechanism is counted with one at least.",
    "Times are those of the load that was measured, which the table names: at the rate asked for, or the next higher "
    "one, if there is an open loop; else at full speed, which says little about few calls now and then.",
    "Your machine, your messages and your handlers decide in the end. A mechanism that is close belongs into a run of "
    "your own.",
)


@dataclass(frozen=True)
class Offer:
    """One mechanism, as measured with one number of calls at once."""

    row: Row
    work: str
    at_once: int

    @property
    def calls(self) -> float:
        """Calls per second that were measured with it."""
        return self.row.summary.throughput or 0.0


def offers(report: Report) -> list[Offer]:
    """Every cell that a decision can be based on: measured in full, between two processes, call by call."""
    return list(_offers(report))


def _offers(report: Report) -> Iterator[Offer]:
    for group in report.groups:
        for row in group.rows:
            cell = row.cell
            if row.competes and cell.mode.kind in ("closed", "open") and row.summary.throughput and row.cpu_us:
                work = describe(cell.work, Mode(), cell.placement, cell.same_process)
                where = f"{work} ({group.info.scenario})" if group.several else work
                yield Offer(row, where, cell.mode.slots)


def section(report: Report) -> Markup:
    """The question's form and the answer's table; without scripts the table shows every offer."""
    found = offers(report)
    if not found:
        return element("p", "No cell has both a time and its CPU time, call by call.", class_="empty")
    works = list(dict.fromkeys(offer.work for offer in found))
    numbers = sorted({offer.at_once for offer in found})
    cpus = max(recorded.info.environment.cpus_usable for recorded in report.runs)
    form = element(
        "form",
        _label("Work", element("select", [element("option", work) for work in works], data_asks="work")),
        _label("Calls at once", element("select", [element("option", n) for n in numbers], data_asks="clients")),
        _label("Calls/s", _number("rate", 1_000)),
        _label("CPUs", _number("cpus", cpus)),
        element("output", data_says=True, aria_live="polite"),
        id="asked", class_="filters", role="search", aria_label="What the mechanism must do",
    )  # fmt: skip
    words = ("mechanism", "measured", "will it do?")
    heads = [element("th", head, scope="col", class_="words" if head in words else None) for head in HEADS]
    table = element(
        "table",
        element("caption", "What would do, the fastest first", class_="hidden"),
        element("thead", element("tr", heads)),
        element("tbody", [_line(offer) for offer in sorted(found, key=_order(works))]),
        id="answers",
    )
    region = element(
        "div", table, class_="scroll tall", tabindex="0", role="region", aria_label="What would do, the fastest first"
    )
    return join(form, region, element("div", element("strong", "Beware"), items(list(CAVEATS)), class_="caveat"))


def _order(works: list[str]) -> Callable[[Offer], tuple[int, int, float]]:
    def key(offer: Offer) -> tuple[int, int, float]:
        median = offer.row.summary.quantiles.get(0.5)
        return works.index(offer.work), offer.at_once, median.value if median else float("inf")

    return key


def _label(name: str, field: Markup) -> Markup:
    return element("label", f"{name} ", field)


def _number(name: str, value: float) -> Markup:
    return element("input", type="number", min="0", step="any", value=f"{value:g}", data_asks=name, inputmode="decimal")


def _line(offer: Offer) -> Markup:
    row, mode = offer.row, offer.row.cell.mode
    p50, p99 = (row.summary.quantiles.get(p) for p in (0.5, 0.99))
    used = sum(row.cpu_us or ())
    measured = f"{mode.rate:g}/s" if mode.rate else "at full speed"
    return element(
        "tr",
        element("th", icon(row.result.family), " ", row.name, scope="row", class_=css_class(row.result.family)),
        element("td", "polls without pause" if row.result.busy_polls else "", class_="words verdict"),
        element("td", format_time(p50.value if p50 else None)),
        element("td", format_time(p99.value if p99 else None)),
        element("td", rate(offer.calls)),
        element("td", cpu(used)),
        element("td", "–", class_="needs"),
        element("td", measured, class_="words"),
        data_m=row.cell.mechanism,
        data_work=offer.work,
        data_clients=offer.at_once,
        data_calls=f"{offer.calls:.6g}",
        data_rate=f"{mode.rate:g}",
        data_cpu=f"{used / 1e6:.6g}",
        data_time=f"{p50.value:.6g}" if p50 else None,
        data_polls=row.result.busy_polls,
    )
