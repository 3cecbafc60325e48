"""A choice as lines of text, and the facts as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nearcall_lab.choice.choose import Candidate, Choice, a_second
from nearcall_lab.choice.facts import ANY, Facts, all_facts
from nearcall_lab.choice.needs import Needs
from nearcall_lab.markdown import escaped
from nearcall_lab.markdown import table as table_text
from nearcall_lab.report.text import NOTHING, cpu, rate
from nearcall_lab.stats import format_time

HEAD = ("mechanism", "p50", "p99", "a second", "CPU/call", "measured as", "run of")


def rows(candidates: Iterable[Candidate]) -> list[tuple[str, ...]]:
    """A line for each of these candidates, which have numbers, under `HEAD`."""
    return [_row(candidate) for candidate in candidates]


def _row(candidate: Candidate) -> tuple[str, ...]:
    label, number = candidate.entrant.mechanism.label, candidate.number
    assert number is not None, "only what was measured has a line"
    summary = number.summary
    p50, p99 = (summary.quantiles.get(p) for p in (0.5, 0.99))
    return (
        label,
        format_time(p50.value if p50 else None),
        format_time(p99.value if p99 else None),
        rate(a_second(number)),
        cpu(summary.cpu_us_per_call),
        summary.result.cell.title(),
        number.started[:10],
    )


def remarks(choice: Choice, needs: Needs) -> Iterator[str]:
    """What each candidate's library is for and is not, and what is to be said of nearcall."""
    for facts in dict.fromkeys(candidate.facts for candidate in choice.candidates):
        yield f"{facts.name}: good for {facts.good}. Wrong for {facts.wrong}."
        if needs.keeps:
            yield f"{facts.name} keeps messages by {facts.keeps_by}: the numbers are of messages that are not kept."
    yield from _of_nearcall(choice)
    if not choice.candidates:
        yield "Nothing that the lab knows does all of this: ask for less, or use two mechanisms."
    elif all(candidate.number is None for candidate in choice.candidates):
        yield f"No stored run has such work: {_scenario(needs)} measures it."


def _of_nearcall(choice: Choice) -> Iterator[str]:
    """Where nearcall is not the answer, said in so many words."""
    of_nearcall = [c for c in (*choice.candidates, *choice.too_slow) if c.entrant.mechanism.family == "nearcall"]
    if not of_nearcall:
        own = [why for label, why in choice.left_out.items() if label.startswith("nearcall")]
        fewest = min(own, key=len) if own else ["is not here"]
        yield f"nearcall is not the answer: it {'; '.join(fewest)}."
        return
    first = next((candidate for candidate in choice.candidates if candidate.number is not None), None)
    if first is not None and first.entrant.mechanism.family != "nearcall":
        yield f"{first.entrant.mechanism.label} is ahead of nearcall here."


def _scenario(needs: Needs) -> str:
    name = "streams" if needs.streaming else "one-way" if needs.one_way or needs.fan_out else "sizes"
    return f"nearcall-lab run {name}"


def left_out(choice: Choice) -> list[tuple[str, str]]:
    """Each reason, and the mechanisms that it concerns."""
    found: dict[str, list[str]] = {}
    for label, reasons in choice.left_out.items():
        found.setdefault("; ".join(reasons), []).append(label)
    if choice.unknown:
        found["come from elsewhere, and the lab has no facts of them"] = choice.unknown
    return [(reason, in_line(labels)) for reason, labels in found.items()]


def in_line(labels: Iterable[str]) -> str:
    """Names that may have commas in them, in one line."""
    return " · ".join(labels)


def page() -> str:
    """The facts of all libraries as tables in Markdown."""
    found = list(dict.fromkeys(all_facts().values()))
    head = ["", "the other side in", "systems", "on a network", "to many", "messages wait", "beware"]
    said = [
        [
            escaped(facts.name),
            escaped(_languages(facts)),
            "all" if len(facts.systems) == 3 else escaped(", ".join(facts.systems)),
            escaped(facts.security or "nothing"),
            escaped(facts.fan_out or "no"),
            escaped(facts.keeps_by or "yes") if facts.keeps else "no",
            escaped(facts.trust or NOTHING),
        ]
        for facts in found
    ]
    use = [[escaped(facts.name), escaped(facts.good), escaped(facts.wrong)] for facts in found]
    return f"{table_text(head, said)}\n\n{table_text(['', 'good for', 'wrong for'], use)}\n"


def _languages(facts: Facts) -> str:
    names = [name for name in facts.languages if name != ANY] + ["any"] * (ANY in facts.languages)
    return ", ".join(names) + (f" ({facts.languages_by})" if facts.languages_by else "")
