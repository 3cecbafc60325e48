"""Published studies: their figures, those of the same method here, and the corrected ones side by side; then their
flaws.
"""

from __future__ import annotations

import shlex

from markupsafe import Markup

from nearcall_lab.report.html import element, join
from nearcall_lab.studies.model import ShownTable, StudyResult
from nearcall_lab.studies.show import ended_early, shown


def section(studies: list[StudyResult]) -> Markup:
    """All studies, each unfolded by itself."""
    return join([_study(study, len(studies) == 1) for study in studies])


def _study(study: StudyResult, only: bool) -> Markup:
    replicated = {table.id: table for table in study.replicated}
    corrected = {table.id: table for table in study.corrected}
    published = {table.id for table in study.published}
    parts: list[Markup] = []
    for table in study.published:
        columns = [("as published", table, "")]
        if table.id in replicated:
            columns.append(("the same method, here", replicated[table.id], ""))
        if table.id in corrected:
            mine = corrected[table.id]
            columns.append(("corrected", mine, mine.title if mine.title != table.title else ""))
        parts.append(_side_by_side(table.title, columns))
    parts += [
        _side_by_side(table.title, [("corrected", table, "")]) for table in study.corrected if table.id not in published
    ]
    versions = ", ".join(f"{name} {version}" for name, version in study.versions.items())
    problems = [f"{name}: {problem}" for name, problem in study.problems.items()]
    return element(
        "details",
        element("summary", element("span", study.title, role="heading", aria_level="3")),
        element("p", "Caution: ", ended_early(study), class_="caveat") if study.ended_early else None,
        element("p", f"The published figures' machine: {study.machine or 'not given'}. {versions}", class_="soft"),
        element("p", f"The machine here: {study.here}.", class_="soft") if study.here else None,
        parts,
        element("h4", "What is wrong with it, in numbers from this machine"),
        element("div", [_flaw(flaw.claim, flaw.truth, flaw.numbers) for flaw in study.flaws], class_="flaws"),
        element("p", "Could not be repeated here: ", "; ".join(problems), ".") if problems else None,
        element(
            "p",
            "“As published” was measured on another machine: compare how the rows of a table stand to each other, not "
            "its numbers with those of the others. “The same method” has the study's flaws on purpose.",
            class_="caveat",
        ),
        element("p", "Made by ", element("code", shlex.join(study.command)),
                f", {study.started}, {study.seconds:.0f} s", class_="soft"),
        class_="study box", open=only,
    )  # fmt: skip


def _side_by_side(title: str, columns: list[tuple[str, ShownTable, str]]) -> Markup:
    return join(
        element("h4", title),
        element(
            "div",
            [_table(name, table, f"{title}: {name}", extra) for name, table, extra in columns],
            class_="beside",
        ),
    )


def _table(name: str, table: ShownTable, label: str, extra: str) -> Markup:
    rows = []
    for row, values in table.rows.items():
        if len(values) == 1 and isinstance(values[0], str) and len(table.columns) > 1:
            cells = [element("td", values[0], class_="words why", colspan=len(table.columns))]
        else:
            padded = [*values, *([None] * (len(table.columns) - len(values)))]
            cells = [
                element("td", shown(value), class_="words why" if isinstance(value, str) and len(value) > 24 else None)
                for value in padded
            ]
        rows.append(element("tr", element("th", row, scope="row"), cells))
    head = element("tr", element("td"), [element("th", column, scope="col") for column in table.columns])
    caption = element("caption", element("strong", name), element("small", extra) if extra else None)
    return element(
        "div", element("table", caption, element("thead", head), element("tbody", rows)),
        class_="scroll", tabindex="0", role="region", aria_label=label,
        style=f"flex-basis:{_width(table):.0f}rem",
    )  # fmt: skip


def _width(table: ShownTable) -> float:
    """About how wide a table is, so that as many as fit are placed side by side."""
    names = max((len(row) for row in table.rows), default=0)
    columns = [
        max([len(column), *(min(24, len(shown(values[at]))) for values in table.rows.values() if at < len(values))])
        for at, column in enumerate(table.columns)
    ]
    return 0.5 * (min(28, names) + sum(columns)) + 1.2 * (len(columns) + 1)


def _flaw(claim: str, truth: str, numbers: dict[str, str]) -> Markup:
    shown_numbers = [element("div", element("dt", name), element("dd", value)) for name, value in numbers.items()]
    return element(
        "article",
        element("p", element("strong", "Claim: "), claim),
        element("p", element("strong", "But: "), truth),
        element("dl", shown_numbers, class_="facts")
        if numbers
        else element("p", "Not shown by this run: a row it needs has no numbers.", class_="soft"),
    )
