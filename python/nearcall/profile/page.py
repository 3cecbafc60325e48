"""A profile as one HTML file that needs nothing from the network. What it says can be read without scripts, but for the
timeline.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
import time
from collections.abc import Iterable, Iterator
from html import escape as _escape
from importlib.resources import files

import msgspec

from ..types.shown import shown
from .findings import duration
from .flame import drawing
from .model import Finding, Line, Profile
from .terminal import place, size

__all__ = ["render"]

_FAMILIES = {"nearcall": "nearcall", "requests": "http", "httpx": "http", "xmlrpc": "http"}
_RULES = {
    "loop": "In a loop",
    "chain": "Attribute chain",
    "identical": "The same again",
    "connections": "Many connections",
    "slow": "Slow calls",
    "failures": "Failures",
}


def render(profile: Profile) -> str:
    """The whole document."""
    folder = files("nearcall.profile")
    script = (folder / "page.js").read_text(encoding="utf-8")
    style = (folder / "page.css").read_text(encoding="utf-8")
    # Only this script may run, whatever the page contains; and nothing is ever fetched.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = _text(shlex.join(profile.command))
    body = "".join(
        (
            _header(profile, title),
            "<main>",
            _section("findings", "What could be better", _findings(profile.findings)),
            _section("lines", "Lines that wait", _lines(profile)),
            _section("flame", "Where the waiting comes from", drawing(profile.flame)),
            _section("timeline", "When", _timeline(profile)),
            _section("processes", "Processes", _processes(profile)),
            "</main>",
            f"<footer>Written by nearcall profile. Python {_text(profile.python)}. This page is one file and asks "
            "nothing of the network; the JSON beside it has the same numbers.</footer>",
            '<div id="tip" role="status" aria-live="polite" hidden></div>',
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title} · profile</title><style>{style}</style></head><body>{body}"
        f'<script type="application/json" id="data">{_data(profile)}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def _text(value: object) -> str:
    """A value as text of a page: no markup, and no characters that cannot be seen."""
    return _escape(shown(str(value)))


def _section(name: str, heading: str, content: str) -> str:
    return f'<section id="{name}"><h2>{heading}</h2>{content}</section>'


def _header(profile: Profile, title: str) -> str:
    calls = sum(process.calls for process in profile.processes)
    about = "about " if any(process.recorded != process.calls for process in profile.processes) else ""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(profile.started))
    ended = "" if profile.status == 0 else f" · ended with {_status(profile.status)}"
    facts = [
        (f"{about}{calls:,}", "remote calls"),
        (duration(profile.took), "from start to end"),
        (f"{profile.processes[0].waiting:.0%}" if profile.processes else "0%", "of it waiting for calls"),
        (f"{len(profile.findings)}", "findings"),
    ]
    cards = "".join(f"<li><b>{_text(value)}</b> {_text(what)}</li>" for value, what in facts)
    links = "".join(
        f'<li><a href="#{name}">{heading}</a></li>'
        for name, heading in (
            ("findings", "Findings"), ("lines", "Lines"), ("flame", "Flame"), ("timeline", "Timeline"),
            ("processes", "Processes"),
        )
    )  # fmt: skip
    return (
        f'<header><p class="soft kind">nearcall profile</p><h1>{title}</h1><p class="soft">{when}{ended}</p>'
        f'<ul class="facts">{cards}</ul><nav aria-label="Contents"><ul>{links}</ul></nav>'
        '<button type="button" id="scheme" hidden>Light or dark</button></header>'
    )


def _status(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


def _findings(findings: Iterable[Finding]) -> str:
    found = "".join(
        f'<li class="card" data-rule="{_text(each.rule)}"><h3>{_RULES.get(each.rule, "Finding")}'
        f"{_saves(each)}</h3>"
        f'<p class="where"><code>{_text(place(each.file, each.line))}</code> {_text(each.name)}</p>'
        f"<p>{_text(each.text)}.</p>{_advice(each)}</li>"
        for each in findings
    )
    return f'<ul class="cards">{found}</ul>' if found else '<p class="soft">Nothing that would save one per cent.</p>'


def _saves(finding: Finding) -> str:
    return f" <small>saves about {duration(finding.saves)}</small>" if finding.saves else ""


def _advice(finding: Finding) -> str:
    if not finding.advice:
        return ""
    return f'<p class="advice">{_text(finding.advice[:1].upper() + finding.advice[1:])}.</p>'


_COLUMNS = (
    ("line", "words"), ("what", "words"), ("calls", ""), ("waited", ""), ("share", ""), ("fastest", ""), ("median", ""),
    ("p99", ""), ("slowest", ""), ("sent", ""), ("received", ""), ("at once", ""), ("inside", ""), ("failed", ""),
)  # fmt: skip


def _lines(profile: Profile) -> str:
    if not profile.lines:
        return '<p class="soft">No remote calls were seen.</p>'
    head = "".join(
        f'<th scope="col" class="{kind}"><button type="button">{name}</button></th>' for name, kind in _COLUMNS
    )
    several = len(profile.processes) > 1
    body = "".join(_line(line, profile, several) for line in profile.lines)
    return (
        "<p>Share: the part of the process's time in which this line waited for at least one of its calls. At once: "
        "the most of them under way together. Inside: made while another call was under way in the same thread.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Lines and their calls"><table id="table"><thead>'
        f"<tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _line(line: Line, profile: Profile, several: bool) -> str:
    process = f" · {profile.processes[line.process].pid}" if several else ""
    kind = "" if line.kind == "call" else f" · {line.kind}"
    failed = sum(failure.calls for failure in line.failures)
    errors = "".join(f"<small>{_text(each.error)} {each.calls:,}</small>" for each in line.failures[:3])
    family = _FAMILIES.get(line.library, "rpc")
    cells = (
        (line.calls, f"{line.calls:,}"),
        (line.waited, duration(line.waited)),
        (line.share, f'<span class="bar" style="--share:{line.share:.3f}">{line.share:.1%}</span>'),
        (line.fastest, duration(line.fastest)),
        (line.median, duration(line.median)),
        (line.p99, duration(line.p99)),
        (line.slowest, duration(line.slowest)),
        (-1 if line.sent is None else line.sent, size(line.sent)),
        (-1 if line.received is None else line.received, size(line.received)),
        (line.at_once, f"{line.at_once:,}"),
        (line.inside, f"{line.inside:,}"),
        (failed, f"{failed:,}{errors}"),
    )
    numbers = "".join(f'<td data-value="{value}">{text}</td>' for value, text in cells)
    return (
        f'<tr><th scope="row"><code>{_text(place(line.file, line.line))}</code>'
        f"<small>{_text(line.function)}{process}</small></th>"
        f'<td class="words"><span class="f-{family}">●</span> {_text(line.name)}<small>{_text(line.library)}{kind}'
        f"</small></td>{numbers}</tr>"
    )


def _timeline(profile: Profile) -> str:
    if not profile.timeline:
        return '<p class="soft">No remote calls were seen.</p>'
    recorded = sum(process.recorded for process in profile.processes)
    shown_ = len(profile.timeline)
    which = "" if shown_ == recorded else f" The {shown_:,} longest of {recorded:,} recorded calls are drawn."
    return (
        "<p>A row for each thread, with further rows for calls at the same time; a bar for each call. Drag to move, "
        f"turn the wheel or press + and − to zoom, 0 for all.{which}</p>"
        '<noscript><p class="soft">The timeline needs scripts.</p></noscript>'
        '<div class="box"><canvas id="canvas" tabindex="0" role="img" aria-label="Calls over time; the table of lines '
        'has the numbers"></canvas></div>'
    )


def _processes(profile: Profile) -> str:
    return "".join(_process_items(profile)) or '<p class="soft">None has made a remote call.</p>'


def _process_items(profile: Profile) -> Iterator[str]:
    for process in profile.processes:
        notes = "".join(f"<li>{_text(note)}</li>" for note in process.notes)
        yield (
            f'<div class="box"><p><code>{_text(shlex.join(process.command))}</code></p><p class="soft">process '
            f"{process.pid}, child of {process.parent} · {process.calls:,} calls · {duration(process.took)}, "
            f"{process.waiting:.0%} of it waiting</p>{f'<ul>{notes}</ul>' if notes else ''}</div>"
        )


def _data(profile: Profile) -> str:
    data = {
        "took": profile.took,
        "processes": [{"pid": process.pid, "lanes": process.lanes} for process in profile.processes],
        "lines": [
            [line.process, f"{place(line.file, line.line)} {shown(line.name)}", _FAMILIES.get(line.library, "rpc")]
            for line in profile.lines
        ],
        "calls": profile.timeline,
    }
    # Within a script element nothing but its end is looked for.
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")
