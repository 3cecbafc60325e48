"""The report as one HTML file that needs nothing from the network."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from markupsafe import Markup

from nearcall_lab import __version__
from nearcall_lab.report import beside, decide, sections, studies, why
from nearcall_lab.report.charts import concurrency, connections, cpu, dots, frontier, heat, load, sizes, spectrum
from nearcall_lab.report.charts.frame import section as charts
from nearcall_lab.report.html import element, join
from nearcall_lab.report.look import FAMILIES, FAMILY_NAMES, classes, css_class, icon, palette
from nearcall_lab.report.model import Report
from nearcall_lab.report.table import table


def render(report: Report) -> str:
    """The whole document."""
    parts = [
        ("verdicts", "Verdicts", sections.cards(report)),
        ("decide", "Which one?", decide.section(report)),
        ("machine", "Machine", sections.machines(report)),
        ("floor", "Floor", sections.floors(report)),
        ("numbers", "All numbers", table(report)),
        ("beside", "Runs side by side", beside.section(report)),
        ("pictures", "Pictures", join(_legend(report), _charts(report))),
        ("why", "Why", why.section(report)),
    ]
    parts = [part for part in parts if part[0] != "beside" or part[2]]  # it takes several runs
    if report.studies:
        parts.append(("studies", "Published studies", studies.section(report.studies)))
    if not report.groups:
        parts = [part for part in parts if part[0] in ("machine", "studies")]
        parts.insert(
            0, ("empty", "Empty", element("p", "No run on this page has a cell: nothing was planned.", class_="empty"))
        )
    contents = element(
        "nav",
        element("ul", [element("li", element("a", heading, href=f"#{name}")) for name, heading, _ in parts]),
        aria_label="Contents",
    )
    main = [
        sections.ended_early(report),
        *_parts(parts),
    ]
    return _document(report, contents, main)


def _parts(parts: list[tuple[str, str, Markup]]) -> list[Markup]:
    return [
        element("section", element("h2", heading, tabindex="-1"), content, id=name, class_="part")
        for name, heading, content in parts
    ]


def _charts(report: Report) -> Markup:
    made = [
        charts(
            "spectrum", "How slow the slow ones are",
            "Each line goes from the fastest call to the slowest that the samples can tell. A line that stays flat "
            "keeps its promise; one that climbs has a tail.",
            spectrum.figures(report),
            ("A line ends where fewer than ten samples lie beyond.",
             "All launches are put together: one launch that went badly shows as a step. The dots below tell which.",
             "In a closed loop a server that stalls delays only the calls under way; an open loop shows what a "
             "caller would have waited."),
        ),
        charts(
            "frontier", "Time against CPU time",
            "To the left: less CPU time for each call. Down: a shorter wait. The dashed line is the Pareto front: "
            "nobody measured here is better than those on it in both.",
            frontier.figures(report),
            ("What stands above and to the right of the line is beaten in both by somebody on it; by how much, and "
             "whether for sure, the table of all numbers tells.",
             "A mechanism that polls uses CPU time while nothing is asked of it, too: that is not in this picture."),
        ),
        charts(
            "load", "Response time under load",
            "To the right: more calls done per second. Up: each takes longer. The ring is the knee, where throughput "
            "for the time waited is best; beyond it more load buys mostly waiting.",
            load.figures(report),
            ("No ring: the knee was not reached, or there are fewer than three points.",
             "In an open loop calls are due whether or not earlier ones are done, and waiting counts. ✕ at the top: "
             "overloaded, at the throughput reached; such times are not latencies.",
             "In a closed loop the load adapts to the server: its curve flatters.",
             "The knee is one of the measured points, so it is known only as finely as the steps are."),
        ),
        charts(
            "connections", "Many connections",
            "The same calls at the same rate, over more and more connections in turn. Flat is best: what rises is what "
            "a client costs that is merely connected.",
            connections.figures(report),
            ("Memory is that of the server's processes. What the kernel keeps for a socket, some kilobytes, is in no "
             "process's memory.",
             "Connections were opened one after another by each caller, and had one call each before the timed part.",
             "CPU time contains what the server does for all connections, however few of them call."),
        ),
        charts(
            "scaling", "More calls at once",
            "Solid: what was measured. Dashed: N times the first point. Dotted: what Little's law gives for the "
            "response time measured, if no slot were ever idle.",
            concurrency.figures(report),
            ("Where the dotted line lies above the solid one, the client could not keep its slots busy: it is part "
             "of the limit.",
             "Throughput cannot grow beyond the CPUs there are, which client and server share."),
        ),
        charts(
            "sizes", "How time grows with size",
            "Both axes are logarithmic: a straight rising line is a constant price per byte. A ring marks where one "
            "overtakes another: the best changes, or the baseline is passed.",
            sizes.figures(report),
            ("Only crossings are marked whose two mechanisms differ for sure at both neighbouring sizes.",
             "Where exactly they cross is interpolated, and has no interval: take it for a hint of where to measure.",
             "A payload of no bytes stands at the left edge, since a logarithmic axis has no zero."),
        ),
        charts(
            "heat", "Size and connections at once",
            "A field for each mechanism: to the right more connections, up a larger payload. All fields of a picture "
            "have one scale, so that the same shade is the same number everywhere.",
            heat.figures(report),
            ("Client and server share the CPUs: from some number of connections on, more of them only wait.",
             "“Too few”: fewer than a thousand calls, which are not enough for a 99th percentile.",
             "A place without colour has no number that stands for all of its calls."),
        ),
        charts(
            "cpu", "What a call costs in CPU time",
            "User and system time of all processes of both sides, divided by the calls done. ⟳ polls without pause, "
            "and uses a CPU while nothing happens, too.",
            cpu.figures(report),
            ("Waiting for a reply by spinning is CPU time of the client; the kernel's own work for a wake-up is "
             "partly charged to nobody.",
             "A slow mechanism that sleeps can cost less than a fast one that spins: read it beside the times."),
        ),
        charts(
            "dots", "From launch to launch",
            "One dot for each launch, which is a fresh pair of processes, beside the mean of its row. An interval "
            "rests on how far these dots lie apart, not on how many calls there were.",
            dots.figures(report),
            ("A hollow dot is a launch during which the machine was disturbed, and a repetition was no better.",
             "Two groups of dots mean that something is decided anew at each start: where memory lies, which CPU.",
             "Launches of one number stand side by side in time: ratios are paired, so a difference can be sure "
             "although the dots overlap."),
        ),
    ]  # fmt: skip
    found = join(made)
    return found or element("p", "Nothing to draw: no cell has numbers.", class_="empty")


def _legend(report: Report) -> Markup:
    present = {row.result.family for row in report.rows if row.summary.value is not None}
    shown = [
        element("li", icon(family), FAMILY_NAMES.get(family, family), class_=css_class(family))
        for family in FAMILIES
        if family in present
    ]
    return (
        element("ul", shown, class_="legend", aria_label="Colours and marks of the families") if shown else Markup("")
    )


def _document(report: Report, contents: Markup, main: list[Markup]) -> str:
    script = (files(__package__) / "page.js").read_text(encoding="utf-8")
    # Only this script may run, whatever the page contains; and nothing is ever fetched.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    style = (files(__package__) / "page.css").read_text(encoding="utf-8")
    style = style.replace("/*LIGHT*/", palette(dark=False)).replace("/*DARK*/", palette(dark=True)) + classes()
    infos = [recorded.info for recorded in report.runs]
    about = " · ".join(
        dict.fromkeys(
            f"{i.started[:16].replace('T', ' ')} · {i.environment.cpu} · {i.environment.python}" for i in infos
        )
    )
    head = join(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{report.title} · nearcall-lab"),
        Markup(f"<style>{style}</style>"),
    )
    header = element(
        "header",
        element("p", "nearcall-lab report", class_="soft kind"),
        element("h1", report.title),
        element("p", about, class_="soft") if about else None,
        contents,
        element("button", "Light or dark", type="button", id="scheme", hidden=True),
    )
    footer = element(
        "footer", f"Written by nearcall-lab {__version__}. This page is one file and asks nothing of the network."
    )
    body = join(
        element("a", "To the numbers", href="#numbers", class_="skip"),
        header,
        element("main", main),
        footer,
        element("div", id="tip", role="status", aria_live="polite", hidden=True),
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}<script>{script}</script></body></html>\n'
