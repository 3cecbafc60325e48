"""The page's first parts: verdicts, machine, floor."""

from __future__ import annotations

from markupsafe import Markup

from nearcall_lab.analysis.compare import Comparison, interval_text, note
from nearcall_lab.report.html import element, escape, items, join, paragraph
from nearcall_lab.report.look import css_class, icon
from nearcall_lab.report.model import Group, Report, Row, command_text
from nearcall_lab.report.text import cpu, metric_text, spread_text
from nearcall_lab.results.failed import failed_of
from nearcall_lab.results.store import Recorded
from nearcall_lab.stats import format_time, significant

_CARDS_SHOWN = 10


def verdict(comparison: Comparison | None, other: str) -> str:
    """A comparison as a phrase. It has no factor where a difference is not certain, or where there is none."""
    if comparison is None:
        return ""
    if comparison.outcome == "unusable":
        return f"no verdict against {other}: {comparison.problem}"
    if comparison.outcome == "same":
        return f"the same as {other} within {100 * comparison.margin:g} %"
    if comparison.outcome == "cannot tell" or comparison.speed is None:
        return f"cannot tell it from {other}"
    shown = comparison.speed if comparison.outcome == "faster" else comparison.speed.inverse()
    return f"{interval_text(shown)} {comparison.outcome} than {other}"


def how_judged(report: Report) -> str:
    """What a reader must know about the verdicts on this page."""
    return note([row.against for row in report.rows if row.against is not None])


def cards(report: Report) -> Markup:
    """For each work the fastest mechanism, and how certain that is."""
    made = [card for group in report.groups if (card := _card(group))]
    if not made:
        return paragraph("No cell has a number that could be compared.", class_="empty")
    shown, rest = made[:_CARDS_SHOWN], made[_CARDS_SHOWN:]
    more = (
        element(
            "details",
            element("summary", f"{len(rest)} more"),
            element("div", rest, class_="cards"),
            class_="more",
        )
        if rest
        else None
    )
    caveat = paragraph(
        f"{how_judged(report)} The fastest was chosen by looking, so its lead is on the high side. What runs in one "
        "process, and what is overloaded, failed, or had more than one call in a thousand fail, does not compete.",
        class_="caveat",
    )
    return join(element("div", shown, class_="cards"), more, caveat)


def _card(group: Group) -> Markup | None:
    ranked = group.ranked()
    if not ranked:
        return None
    best, base = ranked[0], group.baseline
    metric = best.summary.metric
    if group.not_reached:
        return _open_card(group)
    lines: list[Markup] = []
    factor: Markup | None = None
    if base is None:
        lines.append(element("span", "no baseline was measured on this work"))
    elif best is base:
        lines.append(element("span", "the baseline itself"))
    elif best.against is not None and best.against.outcome in ("faster", "slower") and best.against.speed is not None:
        speed = best.against.speed if best.against.outcome == "faster" else best.against.speed.inverse()
        factor = join(
            element("b", f"{significant(speed.value)}×"),
            element("i", f"[{significant(speed.low or 0)}–{significant(speed.high or 0)}]"),
        )
        lines.append(element("span", f"{best.against.outcome} than {base.name}"))
        both = f"{metric_text(metric, best.summary.value)} against {metric_text(metric, base.summary.value)}"
        lines.append(element("span", both))
    else:
        lines.append(element("span", verdict(best.against, base.name)))
    if group.second is not None:
        ahead = verdict(group.ahead, f"the next, {group.second.name}")
        lines.append(element("span", ahead, class_="next"))
    value = metric_text(metric, best.summary.value)
    return element(
        "article",
        element("h3", group.full_title, element("small", f" · {metric.title.rpartition(', ')[0] or metric.title}")),
        element("p", icon(best.result.family), " ", best.name, class_=f"who {css_class(best.result.family)}"),
        element("p", factor or element("b", value), class_="factor"),
        lines,
        element("span", _conditions(best, base), class_="next"),
        element("span", best.summary.failed.sentence(), class_="bad") if best.summary.failed.calls else None,
        element("span", "polls without pause: a whole CPU is its price") if best.result.busy_polls else None,
        class_="card",
    )


def _open_card(group: Group) -> Markup:
    """A card without a winner: the fastest of a run that ended early is not known to be the fastest of all."""
    best = group.ranked()[0]
    value = metric_text(best.summary.metric, best.summary.value)
    return element(
        "article",
        element("h3", group.full_title),
        element("p", "no verdict", class_="who"),
        element("span", group.not_reached, class_="bad"),
        element("span", f"{best.name} is the fastest of those that were: {value}", class_="next"),
        class_="card",
    )


def ended_early(report: Report) -> Markup:
    """What a reader must know before the first number: the runs that were not carried out to their end."""
    return join(
        [
            element(
                "div",
                paragraph(
                    element("strong", "This run is not complete"),
                    f" ({recorded.path.name or recorded.info.scenario})" if len(report.runs) > 1 else "",
                    f": {recorded.info.ended_early}. {_reached(recorded)}",
                ),
                class_="flags banner", role="note",
            )
            for recorded in report.runs
            if recorded.info.ended_early
        ]
    )  # fmt: skip


def _reached(recorded: Recorded) -> str:
    missing = sum(cell.status == "not reached" for cell in recorded.cells)
    return f"{missing} of {len(recorded.cells)} cells were not reached." if missing else "Every cell was reached."


_PLACED = {
    "apart": "each side on a CPU of its own",
    "same": "both sides on one CPU",
    "free": "not pinned",
    "busy": "not pinned, beside processes that keep every CPU busy",
}


def _conditions(best: Row, base: Row | None) -> str:
    """The conditions of the measurement, and the cost compared with the baseline's: a factor is valid only for
    these.
    """
    mode, placed = best.cell.mode, _PLACED.get(best.cell.placement, best.cell.placement)
    slots = mode.slots
    calls = "one call at a time" if slots == 1 else f"{slots} calls at once"
    if best.cpu_us is None:
        return f"{calls}, {placed}"
    used = f"{cpu(sum(best.cpu_us))} of CPU time per call"
    if base is not None and base is not best and base.cpu_us is not None:
        used += f" against {cpu(sum(base.cpu_us))}"
    return f"{used}; {calls}, {placed}"


def machines(report: Report) -> Markup:
    """What is known about the machine of each run, the red flags first."""
    return join([_machine(recorded, len(report.runs) > 1) for recorded in report.runs])


def flags_of(recorded: Recorded) -> list[str]:
    """Reasons to doubt these numbers: the machine's state, and the course of the run."""
    info = recorded.info
    found = list(info.environment.flags())
    if info.ended_early:
        found.append(f"the run ended early: {info.ended_early}")
    cells = recorded.cells
    for status in ("failed", "overloaded", "not reached"):
        number = sum(cell.status == status for cell in cells)
        if number:
            found.append(f"{number} of {len(cells)} cells {status}")
    failing = [cell for cell in cells if any(launch.errors for launch in cell.launches)]
    if failing:
        failed = failed_of([launch for cell in failing for launch in cell.launches])
        found.append(f"calls failed in {len(failing)} of {len(cells)} cells: {failed.sentence()}")
    disturbed = sum(bool(launch.breach) for cell in cells for launch in cell.launches)
    if disturbed:
        launches = sum(len(cell.launches) for cell in cells)
        found.append(f"{disturbed} of {launches} launches disturbed, and a repetition was no better")
    repeated = sum(len(cell.disturbed) for cell in cells)
    if repeated:
        found.append(f"launches disturbed and made again: {repeated}")
    unchecked = dict.fromkeys(cell.label or cell.cell.mechanism for cell in cells if cell.checked is False)
    if unchecked:
        names = "; ".join(list(unchecked)[:6]) + (f" and {len(unchecked) - 6} more" if len(unchecked) > 6 else "")
        found.append(f"not known to keep their promises, since nearcall-lab check has not passed: {names}")
    few = sum(0 < len(cell.launches) < 3 for cell in cells)
    if few:
        found.append(f"{few} of {len(cells)} cells with fewer than three launches: no intervals, no verdicts")
    if info.revision.endswith("+"):
        found.append("the lab's source had changes that no revision has")
    return found


def _machine(recorded: Recorded, several: bool) -> Markup:
    info, machine = recorded.info, recorded.info.environment
    load = f"{machine.load_1min_at_start:.2f}"
    if machine.load_1min_at_end is not None:
        load += f" → {machine.load_1min_at_end:.2f}"
    what = "cell" if info.cells_per_launch == "one" else "mechanism, of all its cells"
    facts = {
        "CPU": f"{machine.cpu}, {machine.cpus_usable} usable",
        "Kernel": machine.kernel + (", virtual machine" if machine.virtual else ""),
        "Python": machine.python,
        **({"nearcall": f"built {machine.build}"} if machine.build else {}),
        "Clock": f"{machine.clock}, resolution {format_time(machine.clock_resolution_ns)}",
        "Governor": machine.governor or "not visible",
        **({"Open descriptors": f"{machine.descriptors:,} for each process"} if machine.descriptors else {}),
        "Load, 1 min": load,
        "Stolen CPU time": "not known" if machine.steal_share is None else f"{100 * machine.steal_share:.2f} %",
        "Placement": info.placement,
        "Launches": f"{info.launches} per {what}, "
        + ("random blocks forwards and backwards" if info.order == "abba" else "random rounds")
        + f", seed {info.seed}",
        "Time": f"{info.started} – {info.finished or 'not finished'}",
        "Lab": f"{info.lab_version}, revision {info.revision or 'unknown'}",
        "Scenario": f"{info.scenario}, SHA-256 {info.scenario_digest[:16]}…" if info.scenario_digest else info.scenario,
    }
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items())
    flags = flags_of(recorded)
    return element(
        "div",
        element("h3", f"{info.title} ({recorded.path.name or info.scenario})") if several else None,
        element("div", element("h3", "Red flags"), items(flags), class_="flags", role="note")
        if flags
        else paragraph("No red flags: nothing seen on this machine speaks against the numbers.", class_="good"),
        element(
            "dl",
            [element("div", element("dt", name), element("dd", value)) for name, value in facts.items()],
            class_="facts",
        ),
        element("details", element("summary", "Versions of everything that took part"), paragraph(versions or "none")),
        element("p", "Made by ", element("code", command_text(info)), class_="soft") if info.command else None,
        class_="box",
    )


def floors(report: Report) -> Markup:
    """The floor of each work, and how far above it the best is."""
    rows = []
    for group in report.groups:
        floor = group.floor
        if floor is None:
            continue
        ranked = group.ranked()
        best = ranked[0] if ranked else None
        rows.append(
            element(
                "tr",
                element("th", group.full_title, scope="row"),
                element("td", floor.name, class_="words"),
                element("td", element("b", metric_text(floor.summary.metric, floor.summary.value))),
                element("td", spread_text(floor.summary.spread) or "–"),
                element("td", f"{floor.n:,}"),
                element("td", best.name if best else "–", class_="words"),
                element("td", _times_floor(floor, best)),
            )
        )
    if not rows:
        return paragraph("No floor was measured in this run: add the mechanism “noop” to its scenario.", class_="empty")
    heads = ("work", "floor", "value", "±", "samples", "fastest", "from the floor")
    return join(
        element(
            "div",
            element(
                "table",
                element("caption", "The floor of each work", class_="hidden"),
                element("thead", element(
                    "tr",
                    [element("th", h, scope="col", class_=h in ("floor", "fastest") and "words") for h in heads],
                )),
                element("tbody", rows),
            ),
            class_="scroll", tabindex="0", role="region", aria_label="Floor of each work",
        ),
        paragraph(
            "The floor is a plain function call in one process, timed, verified and recorded like any other. It is "
            "contained in every other number; a row says so where it is more than 5 % of it.",
            class_="caveat",
        ),
    )  # fmt: skip


def _times_floor(floor: Row, best: Row | None) -> Markup:
    low, high = floor.summary.value, best.summary.value if best else None
    if not low or not high:
        return escape("–")
    times = low / high if floor.summary.metric.more_is_better else high / low
    return escape(f"{significant(times)}×")
