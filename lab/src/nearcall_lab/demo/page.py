"""The demo's page: one file that needs nothing from the network."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from nearcall_lab.demo.charts import panel, scaling
from nearcall_lab.demo.look import FAMILIES, css_class, mark, style
from nearcall_lab.demo.results import Cell, Report, Row
from nearcall_lab.demo.terminal import notes
from nearcall_lab.stats import format_ratio, format_time, significant
from nearcall_lab.workloads import BY_KEY


def _cards(report: Report) -> str:
    """The fastest pair of processes for each workload. No factor is claimed where its interval spans 1."""
    baseline = report.row(report.baseline)
    base_name = escape(baseline.label if baseline else report.baseline)
    cards = []
    for key, title in report.workloads.items():
        rivals = [r for r in report.rows if not r.same_process and r.cells[key].p50_ns]
        if not rivals:
            continue
        best = min(rivals, key=lambda r: r.cells[key].p50_ns or 0.0)
        cell = best.cells[key]
        ratio = cell.times_faster
        if best.name == report.baseline:
            verdict = "the baseline itself"
        elif ratio is not None and ratio.decided():
            verdict = f"{format_ratio(ratio)} faster than {base_name}"
        else:
            verdict = f"no certain difference from {base_name}"
        cards.append(
            f'<div class="card"><h3>Fastest, {escape(title)}</h3><b>{format_time(cell.p50_ns)}</b>'
            f"<span>{escape(best.label)}{' (busy polling)' if best.busy_polls else ''}</span>"
            f"<span>{verdict}</span></div>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _legend(report: Report) -> str:
    present = {row.family for row in report.rows if not row.problem}
    items = [
        f'<li><svg viewBox="0 0 14 14" style="width:14px" aria-hidden="true">{mark(f, 7, 7)}</svg>'
        f"{escape({'rpc': 'RPC framework', 'http': 'HTTP'}.get(f, f))}</li>"
        for f in FAMILIES
        if f in present
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _cell(cell: Cell, row: Row, report: Report) -> str:
    if cell.p50_ns is None:
        reason = f"only {cell.n} samples" if cell.n else cell.problem
        return f'<td class="why" data-v="">{escape(reason)}</td>'
    if row.name == report.baseline:
        against = "baseline"
    elif row.name == report.floor:
        against = "floor"
    else:
        against = format_ratio(cell.times_faster)
    floor = f"{significant(cell.times_floor)}× floor" if cell.times_floor and row.name != report.floor else ""
    if cell.floor_share is not None and cell.floor_share > 0.05 and floor:
        floor += " ⚠"
    return (
        f'<td data-v="{cell.p50_ns}" title="n {cell.n:,} in {cell.launches} launches; '
        f'least {format_time(cell.min_ns)}; first call {format_time(cell.first_call_ns)}">'
        f"<b>{format_time(cell.p50_ns)}</b> / {format_time(cell.p99_ns)}"
        f"<small>{against}</small><small>{floor}</small><small>n {cell.n:,}</small></td>"
    )


def _table(report: Report) -> str:
    heads = "".join(f"<th scope=col><button>{escape(title)}</button></th>" for title in report.workloads.values())
    rows = []
    for row in report.rows:
        version = row.version or ("" if row.problem else "standard library")
        name = (
            f"<th scope=row>{escape(row.label)}<small>{escape(version)}"
            f"{', busy polling' if row.busy_polls else ''}{', one process' if row.same_process else ''}</small></th>"
        )
        if row.problem:
            body = f'<td class="why" colspan="{len(report.workloads)}">{escape(row.problem)}</td>'
        else:
            body = "".join(_cell(row.cells[key], row, report) for key in report.workloads)
        rows.append(f'<tr class="{css_class(row.family)}-row">{name}{body}</tr>')
    return (
        f'<div class="scroll"><table><thead><tr><th scope=col><button>mechanism</button></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _settings(report: Report) -> str:
    rows = "".join(
        f'<tr><th scope=row>{escape(r.label)}</th><td class="text">{escape(r.settings)}</td>'
        f'<td class="text">{escape(r.typed)}</td></tr>'
        for r in report.rows
    )
    return (
        '<div class="scroll"><table class="words"><thead><tr><th scope=col>mechanism</th><th scope=col>settings that '
        f"matter</th><th scope=col>dataclass travels as</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def render(report: Report) -> str:
    """The whole document."""
    baseline = report.row(report.baseline)
    base_name = escape(baseline.label if baseline else report.baseline)
    flags = ""
    if report.red_flags:
        flags = f'<div class="flags"><ul>{"".join(f"<li>{escape(f)}</li>" for f in report.red_flags)}</ul></div>'
    panels = "".join(
        f"<figure><figcaption>{escape(title)} "
        f"<small>{'bytes there and back' if BY_KEY[key].size else 'four fields each way'}</small></figcaption>"
        f"{panel(report, key)}</figure>"
        for key, title in report.workloads.items()
    )
    curve = scaling(report, {key: BY_KEY[key].size for key in report.workloads})
    sizes = f"<h2>How time grows with size</h2><figure>{curve}</figure>" if curve else ""
    env = report.environment
    script = (files(__package__) / "page.js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>nearcall-lab: one call between two processes</title><style>{style()}</style></head><body><main>
<h1>One call between two processes, by every mechanism on this machine</h1>
<p class="soft wide">{escape(report.started)} · {escape(env.cpu)}, {env.cpus_usable} CPUs · {escape(env.kernel)} ·
{escape(env.python)} · {escape(report.placement)}</p>
{_cards(report)}{flags}
<h2>Round-trip time</h2>
<p>Mark: median. Line: up to the 99th percentile, where there are samples enough for one. Dashed: {base_name}. The
last column says how many times faster than {base_name}. All panels share one logarithmic axis.</p>
{_legend(report)}<div class="panels">{panels}</div>
{sizes}
<h2>All numbers</h2>
<p>p50 / p99, then how many times faster than {base_name} with a 95 % interval, then the multiple of the floor
(⚠ where the floor is more than 5 % of the time). Click a heading to sort.</p>
{_table(report)}
<h2>Settings</h2>{_settings(report)}
<h2>How this was measured</h2><ul>{"".join(f"<li>{escape(line)}</li>" for line in notes(report))}</ul>
<p>Run it again: <code>nearcall-lab demo --rounds {report.rounds_planned} --slice-ms {report.slice_s * 1e3:.0f}
--seed {report.seed}</code></p>
</main><script>{script}</script></body></html>
"""
