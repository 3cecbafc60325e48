"""Put the numbers of the last `make demo` and `make bench` into the README, between its `measured` marks.

Usage: python tools/update_readme.py [--check] [--out out] [--readme README.md]
Every row that was measured is written, won or lost; a row without numbers says why. The chart above the table is drawn
anew as well. With --check nothing is written, and the status is 1 if README or chart would change.
"""

import argparse
import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from nearcall_lab.stats import counted, format_time, significant
from readme_chart import Bar, chart

ROOT = Path(__file__).resolve().parent.parent
SHOWN_FIRST = (
    "nearcall shm",
    "nearcall unix",
    "nearcall tcp",
    "nearcall grpc",
    "iceoryx2 (Python)",
    "raw socket, UDS",
    "multiprocessing.connection",
    "Pyro5",
    "pyzmq REQ/REP",
    "RPyC, tuned",
    "HTTP, uvicorn, tuned",
    "grpcio, TCP",
)
"""Rows that a reader compares first. The others, and the rest of what was measured, are below them, folded."""
CHART = "docs/round-trip.svg"
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"


def folded(summary: str, lines: list[str]) -> list[str]:
    """What GitHub shows when one clicks on the summary."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def machine(report: dict[str, Any]) -> str:
    """Where the numbers are from, and what makes them less trustworthy."""
    found = report["environment"]
    where = f"{found['cpu']}, {found['cpus_usable']} CPUs usable, {found['kernel']}, {found['python']}"
    flags = "".join(f" Caution: {flag}." for flag in report["red_flags"])
    return f"{where}; {report['placement']}.{flags}"


def demo_table(report: dict[str, Any]) -> list[str]:
    """One row for each mechanism: the median of a round trip, the CPU time of the first work, and how many times
    faster than the baseline it is there; then some of them under other conditions.
    """
    columns = report["workloads"]
    first = next(iter(columns))
    baseline = next((row["label"] for row in report["rows"] if row["name"] == report["baseline"]), report["baseline"])
    lines = [
        f"| round trip, median | {' | '.join(columns.values())} | CPU, {columns[first]} "
        f"| against {baseline}, {columns[first]} |",
        "|---|" + "---:|" * (len(columns) + 2),
    ]
    first_rows = lines.copy()
    reasons = []
    for row in report["rows"]:
        if row["problem"]:
            reasons.append(f"{row['label']}: {row['problem']}")
            continue
        times = [format_time(row["cells"][key]["p50_ns"]) for key in columns]
        times.append(cpu(row["cells"][first]))
        ratio = row["cells"][first]["times_faster"]
        itself = "1×" if row["name"] == report["baseline"] else "–"
        times.append(f"{significant(ratio['value'])}×" if ratio else itself)
        note = " (polls without pause)" if row["busy_polls"] else ""
        lines.append(f"| {row['label']}{note} | {' | '.join(times)} |")
        if row["label"] in SHOWN_FIRST:
            first_rows.append(lines[-1])
    if reasons:
        lines += ["", f"Without numbers: {'; '.join(reasons)}."]
    return [
        *picture(report),
        "One client calls as fast as it can, with a CPU for each side and one call under way. That favours mechanisms "
        "which spin, that is, look for the reply for a moment before they sleep; other conditions are folded in below. "
        "The last column is the mean of the launches' own factors, so it is not quite the quotient of two medians:",
        "",
        *first_rows,
        "",
        *folded(
            f"All {len(report['rows'])} mechanisms, and other conditions",
            [*lines, "", *conditions_table(report, columns[first], first)[:-1]],
        ),
        "",
        f"`make demo`, {report['date']}, {counted(report['launches'], 'launch')} of fresh processes, every reply "
        f"verified. {machine(report)}",
    ]


def bars(report: dict[str, Any]) -> list[Bar]:
    """What the chart shows of the first work: the rows that a reader compares first."""
    first = next(iter(report["workloads"]))
    rows = [row for row in report["rows"] if not row["problem"] and row["label"] in SHOWN_FIRST]
    found = [Bar(row["label"], row["cells"][first]["p50_ns"], row["label"].startswith("nearcall")) for row in rows]
    return sorted(found, key=lambda bar: bar.nanoseconds)


def draw(report: dict[str, Any]) -> str:
    """The chart."""
    work = next(iter(report["workloads"].values()))
    return chart(f"{work} to another process and back: median, on a logarithmic scale", bars(report))


def picture(report: dict[str, Any]) -> list[str]:
    """The chart's place, and what it says in words."""
    told = "; ".join(f"{bar.label} {format_time(bar.nanoseconds)}" for bar in bars(report))
    return [f"![A bar for each mechanism: {told}.]({CHART})", ""]


def cpu(cell: dict[str, Any]) -> str:
    """CPU time of both sides per call."""
    return format_time(cell["cpu_us"] * 1e3) if cell["cpu_us"] is not None else "–"


def conditions_table(report: dict[str, Any], heading: str, first: str) -> list[str]:
    """The same work under other conditions: the median, and the CPU time of both sides, for whom it was measured."""
    columns = {first: "one client, pinned", **report["conditions"]}
    if not report["conditions"]:
        return []
    lines = [
        f"The same {heading} where spinning gains less, or loses; median · CPU time of both sides per call:",
        "",
        f"| | {' | '.join(columns.values())} |",
        "|---|" + "---:|" * len(columns),
    ]
    for row in report["rows"]:
        measured = [row["cells"][key] for key in report["conditions"]]
        if row["problem"] or not any(cell["n"] or cell["problem"] for cell in measured):
            continue
        shown = [row["cells"][key] for key in columns]
        texts = [f"{format_time(c['p50_ns'])} · {cpu(c)}" if c["p50_ns"] else c["problem"] or "–" for c in shown]
        lines.append(f"| {row['label']} | {' | '.join(texts)} |")
    return [*lines, ""]


def runtime_table(report: dict[str, Any]) -> list[str]:
    """One row for each target."""
    word = {True: "yes", False: "**no**", None: "–"}
    lines = ["| target | | measured | met |", "|---|---|---|---|"]
    for verdict in report["verdicts"]:
        measured = verdict["measured"].replace("|", "/")
        lines.append(f"| {verdict['what']} | {verdict['target']} | {measured} | {word[verdict['met']]} |")
    quick = " This was a quick run: too short to publish." if report["quick"] else ""
    cut = " The run was interrupted." if report["interrupted"] else ""
    met = [verdict["what"] for verdict in report["verdicts"] if verdict["met"]]
    missed = [verdict["what"] for verdict in report["verdicts"] if verdict["met"] is False]
    return [
        f"Of {len(met) + len(missed)} targets {len(met)} are met. Missed: {'; '.join(missed) or 'none'}.",
        "",
        *folded("All targets, with what was measured", lines),
        "",
        f"`make bench`, {report['date']}, {counted(report['rounds'], 'round')}, medians.{quick}{cut} {machine(report)}",
    ]


def block(out: Path) -> str:
    """The text between the marks."""
    parts: list[str] = []
    for name, table in (("demo.json", demo_table), ("runtime.json", runtime_table)):
        path = out / name
        if path.exists():
            report = json.loads(path.read_text(encoding="utf-8"))
            # The report's own date where it has one, else the file's.
            written = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).isoformat()
            report["date"] = report.get("started", written)[:10]
            parts += [*table(report), ""]
        else:
            parts += [f"There is no {name} yet: `make {'demo' if name == 'demo.json' else 'bench'}` measures it.", ""]
    return "\n".join([*parts, "To measure on your machine: `make demo && make bench && make readme`."])


def main() -> int:
    """Update the README, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if the README would change")
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="directory of demo.json and runtime.json")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="the file to update")
    options = parser.parse_args()
    text = options.readme.read_text(encoding="utf-8")
    before, found_begin, rest = text.partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found_begin and found_end):
        print(f"{options.readme} has no block between {BEGIN} and {END}", file=sys.stderr)
        return 2
    demo = options.out / "demo.json"
    if demo.exists() and json.loads(demo.read_text(encoding="utf-8"))["environment"].get("build", "").startswith(
        "without"
    ):
        print(
            f"{demo} is of a build without a profile, and the README shows what is published: make profiled demo",
            file=sys.stderr,
        )
        return 2
    new = {options.readme: f"{before}{BEGIN}\n{block(options.out)}\n{END}{after}"}
    if demo.exists():
        new[options.readme.parent / CHART] = draw(json.loads(demo.read_text(encoding="utf-8")))
    if options.check:
        return int(any(not path.exists() or path.read_text(encoding="utf-8") != now for path, now in new.items()))
    for path, now in new.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")
    print(f"updated {options.readme} from {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
