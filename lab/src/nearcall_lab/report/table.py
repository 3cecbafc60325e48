"""The page's table: one body for each cell, so that a row and what unfolds under it stay together when sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from markupsafe import Markup

from nearcall_lab.analysis.compare import interval_text
from nearcall_lab.analysis.summary import without_number
from nearcall_lab.report import histograms
from nearcall_lab.report.html import element, escape, join
from nearcall_lab.report.look import FAMILY_NAMES, css_class, icon
from nearcall_lab.report.model import Group, Report, Row, command_text
from nearcall_lab.report.text import NOTHING, cpu, memory, metric_text, rate, share, spread_text
from nearcall_lab.stats import format_time


@dataclass(frozen=True)
class Column:
    """One column."""

    head: str
    about: str
    words: bool = False


COLUMNS = (
    Column("mechanism", "What was measured; unfold it for its settings and for how to measure it again", words=True),
    Column("work", "What one call does, and how calls arrive", words=True),
    Column("result", "What is compared: mean over launches, with half its 95 % interval"),
    Column("against baseline", "How many times faster than the run's baseline; or the same within 5 %; or cannot tell"),
    Column("p50", "Half of the calls took longer"),
    Column("p99", "One call in 100 took longer"),
    Column("p99.9", "One call in 1000 took longer"),
    Column("max", "The longest of all calls: one stall shows here, and in no percentile of a closed loop"),
    Column("calls/s", "Median over launches"),
    Column("CPU/call", "User and system time of all processes of both sides"),
    Column("RSS", "Peak resident memory of both sides"),
    Column("failed", "Failed calls among those that were made; of what, is said under the row"),
    Column("n", "Samples"),
    Column("launches", "Fresh pairs of processes"),
    Column("settings", "Default, or tuned as its documentation recommends; and how a program calls it", words=True),
)


def table(report: Report) -> Markup:
    """Filters and table."""
    detail = histograms.detail_for(report.rows)
    heads = [
        element("th", element("button", column.head, type="button"), scope="col", title=column.about,
                class_="words" if column.words else None)
        for column in COLUMNS
    ]  # fmt: skip
    bodies = [_body(group, row, detail) for group in report.groups for row in _sorted(group)]
    caption = "Every cell: a mechanism, its work, and what was measured. Headings sort; a name unfolds its row."
    return join(
        _filters(report),
        element(
            "div",
            element(
                "table",
                element("caption", caption, class_="hidden"),
                element("thead", element("tr", heads)),
                bodies,
                id="cells",
            ),
            class_="scroll main", tabindex="0", role="region", aria_label="All numbers",
        ),
        element("p", "No row is left: loosen a filter.", class_="empty", id="none-left", hidden=True),
        element(
            "p",
            "A time stands only where n ≥ 10 / (1 − p) samples carry it. Percentiles are read from all launches put "
            "together, and never averaged. Times of an overloaded cell are waiting in a queue that grows, and are not "
            "shown. What is tuned stands in a row of its own beside the default.",
            class_="caveat",
        ),
    )  # fmt: skip


def _sorted(group: Group) -> list[Row]:
    ranked = [row.key for row in group.ranked()]
    return sorted(group.rows, key=lambda row: ranked.index(row.key) if row.key in ranked else len(ranked))


def _filters(report: Report) -> Markup:
    rows = report.rows
    families = sorted({row.result.family for row in rows})
    styles = sorted({row.result.style for row in rows if row.result.style})
    choices: list[tuple[str, str, list[tuple[str, str]]]] = [
        ("family", "Family", [(name, FAMILY_NAMES.get(name, name) or "none") for name in families]),
        ("work", "Work", [(group.key, group.full_title) for group in report.groups]),
        ("style", "Called by", [(name, name) for name in styles]),
        ("tuned", "Settings", [("default", "default"), ("tuned", "tuned")]),
        ("status", "State", [(name, name) for name in sorted({row.result.status for row in rows})]),
    ]
    selects = [
        element(
            "label",
            label,
            " ",
            element(
                "select",
                element("option", "all", value=""),
                [element("option", text, value=value) for value, text in options],
                data_filter=name,
                autocomplete="off",
            ),
        )
        for name, label, options in choices
    ]
    search = element("label", "Text ", element("input", type="search", data_filter="text", autocomplete="off",
                                               placeholder="name or work"))  # fmt: skip
    return element(
        "form",
        search,
        selects,
        element("button", "Clear", type="reset"),
        element("output", f"{len(rows)} rows", id="shown", role="status", aria_live="polite"),
        id="filters",
        role="search",
        aria_label="Filter the table and the charts",
    )


def _body(group: Group, row: Row, detail: histograms.Detail) -> Markup:
    result, summary = row.result, row.summary
    tuned = "tuned" if result.tuned else "default"
    numbers: list[object] = [row.name.lower(), group.full_title.lower()]
    title = element("td", group.full_title, class_="words")
    name = element(
        "th",
        element("button", icon(result.family), " ", row.name, type="button", aria_expanded="true",
                aria_controls=f"{row.key}-more", class_=f"unfold {css_class(result.family)}"),
        element("small", " · ".join(part for part in (_role(row), result.version, row.cell.mechanism) if part)),
        scope="row",
    )  # fmt: skip
    settings = join(tuned, element("small", result.style) if result.style else None)
    if summary.value is None:
        cells = [element("td", without_number(summary), class_="words why", colspan=len(COLUMNS) - 3)]
        numbers += [None] * (len(COLUMNS) - 3)
    else:
        values, keys = _values(row)
        cells = [element("td", value) for value in values]
        numbers += keys
    cells.append(element("td", settings, class_="words soft"))
    numbers.append(f"{tuned} {result.style}")
    # Where failed calls are the reason of a missing number, they are not mentioned twice.
    failed = summary.failed.sentence() if summary.value is not None else ""
    beware = [
        remark
        for remark in summary.remarks
        if remark != summary.failed.sentence() and (summary.value is not None or remark != result.problem)
    ]
    note = element(
        "tr",
        element(
            "td",
            element("div", f"Calls: {failed}", class_="bad") if failed else None,
            element("div", "Beware: ", "; ".join(beware)) if beware else None,
            colspan=len(COLUMNS),
        ),
        class_="note",
    )
    attributes = {f"data_c{at}": _sort_key(value) for at, value in enumerate(numbers)}
    return element(
        "tbody",
        element("tr", name, title, cells),
        note if beware or failed else None,
        element("tr", element("td", _more(row, detail), colspan=len(COLUMNS)), class_="more", id=f"{row.key}-more"),
        data_family=result.family,
        data_work=group.key,
        data_style=result.style,
        data_tuned=tuned,
        data_status=result.status,
        data_m=row.cell.mechanism,
        data_text=f"{row.name} {row.cell.mechanism} {group.full_title} {result.family} {result.status}".lower(),
        class_="floor" if row.is_floor else "baseline" if row.is_baseline else None,
        **attributes,
    )


def _sort_key(value: object) -> str | None:
    return None if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def _role(row: Row) -> str:
    if row.is_floor:
        return "floor"
    if row.is_baseline:
        return "baseline"
    return "one process" if row.result.same_process or row.cell.same_process else ""


def against_text(row: Row) -> str:
    """A row's comparison with its baseline, for the table: a factor only where it is certain."""
    if row.is_baseline:
        return "baseline"
    if row.against is None:
        return NOTHING
    if row.against.outcome == "same":
        return f"the same within {100 * row.against.margin:g} %"
    if row.against.outcome == "cannot tell":
        return "cannot tell"
    sure = row.against.outcome in ("faster", "slower") and row.against.speed is not None
    return interval_text(row.against.speed) if sure and row.against.speed else NOTHING


def quantile_text(row: Row, p: float) -> str:
    """A quantile, or why there is none."""
    found = row.summary.quantiles.get(p)
    return format_time(found.value) if found else NOTHING


def _values(row: Row) -> tuple[list[object], list[object]]:
    """The values shown, and the values to sort by, from the column `result` to the column `launches`."""
    result, summary = row.result, row.summary
    over = result.status == "overloaded" and summary.metric.unit == "ns"
    shown = "overloaded" if over else metric_text(summary.metric, summary.value)
    ratio = row.against.speed.value if row.against and row.against.speed else 1.0 if row.is_baseline else None
    values: list[object] = [
        join(element("b", shown), element("small", "" if over else spread_text(summary.spread))),
        against_text(row),
    ]
    # With times and rates in one column the better ones come first: a rate is sorted by its inverse.
    value = summary.value or 0.0
    keys: list[object] = [None if over else 1e9 / value if summary.metric.more_is_better and value else value, ratio]
    for p in (0.5, 0.99, 0.999):
        found = summary.quantiles.get(p)
        values.append(quantile_text(row, p))
        keys.append(found.value if found else None)
    values += [
        format_time(summary.longest_ns),
        rate(summary.throughput),
        cpu(summary.cpu_us_per_call),
        memory(row.rss_kb),
        element(
            "span",
            share(summary.failed.share),
            title=summary.failed.sentence() or None,
            class_="bad" if summary.failed.calls else None,
        ),
        f"{row.n:,}",
        str(summary.launches),
    ]
    keys += [
        *(summary.longest_ns, summary.throughput, summary.cpu_us_per_call, row.rss_kb),
        *(summary.failed.share, float(row.n), float(summary.launches)),
    ]
    return values, keys


def _more(row: Row, detail: histograms.Detail) -> Markup:
    """How to measure it again, and what else is known."""
    result, info = row.result, row.info
    text = histograms.log(row, detail)
    download = (
        element("a", "histograms", href=histograms.data_uri(text), download=f"{result.digest}.hlog")
        if text
        else escape("no histogram")
    )
    facts: list[tuple[str, object]] = [
        ("cell digest", element("code", result.digest)),
        ("scenario digest", element("code", info.scenario_digest or "none")),
        ("of the run", element("code", command_text(info) or "unknown")),
        ("raw data", join(download, f" ({detail.value})" if text or detail is histograms.Detail.NONE else "")),
        ("settings", result.settings),
        ("dataclass travels as", result.typed),
        ("launches", ", ".join(metric_text(row.summary.metric, value) for value in row.summary.values)),
        ("first call", format_time(row.summary.first_call_ns) if row.summary.first_call_ns else ""),
        ("Little's law", f"{row.summary.little:.3f} of the calls under way" if row.summary.little else ""),
        ("failed calls", ", ".join(f"{kind}: {number:,}" for kind, number in row.summary.failed.kinds.items())),
        ("log", result.log),
        ("the cell", element("code", msgspec.json.encode(row.cell, order="sorted").decode())),
    ]
    shown = [
        element("div", element("dt", name), element("dd", value), class_="all" if name == "the cell" else None)
        for name, value in facts
        if value
    ]
    return element(
        "div",
        element("h3", "Measure it again"),
        element(
            "p",
            element("code", row.reproduce),
            " ",
            element("button", "Copy", type="button", class_="copy", aria_label=f"Copy the command for {row.name}"),
        ),
        element("dl", shown, class_="facts"),
        class_="reproduce",
    )


def rows_as_text(rows: Sequence[Row]) -> list[list[str]]:
    """The columns from `result` to `launches` as plain text, for Markdown."""
    found = []
    for row in rows:
        summary = row.summary
        over = row.result.status == "overloaded" and summary.metric.unit == "ns"
        value = "overloaded" if over else metric_text(summary.metric, summary.value)
        found.append(
            [
                f"{value} {'' if over else spread_text(summary.spread)}".strip(),
                against_text(row),
                *(quantile_text(row, p) for p in (0.5, 0.99, 0.999)),
                *(
                    format_time(summary.longest_ns),
                    rate(summary.throughput),
                    cpu(summary.cpu_us_per_call),
                    memory(row.rss_kb),
                ),
                *(share(summary.failed.share), f"{row.n:,}", str(summary.launches)),
            ]
        )
    return found
