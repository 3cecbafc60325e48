"""Scenario files: TOML, checked, and expanded to the cells of a run.

A file has a title, a table ``[run]`` of settings and one or more ``[[cells]]``. A key of ``[[cells]]`` that is given a
list multiplies the cells: two sizes and three rates are six cells of every mechanism the table names.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

from nearcall_lab import toml
from nearcall_lab.descriptors import too_few
from nearcall_lab.registry import Entrant, paired, stays_here
from nearcall_lab.scenario.cell import Cell, CellsPerLaunch, Mode, Network, PlacementMode, Work
from nearcall_lab.scenario.keys import CELLS, RUN, TOP, Key, KeyProblem, show, suggest
from nearcall_lab.scenario.rules import DEFAULT_MODE, contradiction, unsupported

MOST_CELLS = 5_000
"""A larger cross product is taken for a mistake: at one second each, a round would take longer than an hour."""

_CONNECT_SIZE = 15
"""Bytes of the one echo that proves a connection to be usable."""


class ScenarioError(Exception):
    """An error in a scenario, in one line: the place, the key, and what is allowed."""


@dataclass(frozen=True)
class Settings:
    """The table ``[run]``."""

    launches: int = 5
    seconds: float = 0.3
    warmup_s: float = 0.05
    placement: PlacementMode = "apart"
    order: Literal["abba", "rounds"] = "abba"
    seed: int = 1
    track: Literal["raw", "objects", "both"] = "both"
    limit_s: float = 0.0
    """Seconds after which no new launch starts; 0 is no limit."""
    cells_per_launch: CellsPerLaunch = "one"


@dataclass(frozen=True)
class Planned:
    """A cell and the entrant that runs it."""

    cell: Cell
    entrant: Entrant
    problem: str = ""
    """Why it cannot run; shown in its row."""


@dataclass(frozen=True)
class Scenario:
    """A scenario, resolved: everything a run needs."""

    name: str
    """The preset's name, or the file's path as it was given."""
    title: str
    text: str
    settings: Settings
    planned: tuple[Planned, ...]
    baseline: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the file's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def only(self, patterns: Sequence[str]) -> Scenario:
        """This scenario with only the mechanisms that match. Raises `ScenarioError` if one pattern matches none."""
        names = list(dict.fromkeys(planned.entrant.mechanism.name for planned in self.planned))
        kept = _matching(patterns, names, f"{self.name}, --only", "none of its mechanisms")
        planned = tuple(p for p in self.planned if p.entrant.mechanism.name in kept)
        return Scenario(self.name, self.title, self.text, self.settings, planned, self.baseline)

    def also_at(self, host: str) -> Scenario:
        """This scenario, and after that all of it once more with the servers on the machine of that URL."""
        there = tuple(
            replace(
                planned,
                cell=msgspec.structs.replace(planned.cell, host=host),
                problem=stays_here(planned.entrant) or planned.problem,
            )
            for planned in self.planned
        )
        settings = replace(self.settings, limit_s=3 * self.settings.limit_s)
        return replace(self, planned=(*self.planned, *there), settings=settings)


def presets() -> dict[str, str]:
    """Text of every scenario that comes with the lab, by name."""
    folder = files(__package__) / "presets"
    texts = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    return {name.removesuffix(".toml"): texts[name] for name in sorted(texts) if name.endswith(".toml")}


def preset_titles() -> dict[str, str]:
    """Title of every scenario that comes with the lab, by name."""
    return {name: str(toml.loads(text)["title"]) for name, text in presets().items()}


def load(name: str, entrants: Sequence[Entrant]) -> Scenario:
    """The preset of that name, or the file at that path. Raises `ScenarioError`."""
    known = presets()
    if name in known:
        return parse(name, known[name], entrants)
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise ScenarioError(
            f'no scenario "{name}"{suggest(name, known)}; there are {", ".join(known)}, '
            "or give the path of a .toml file"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
        raise ScenarioError(f"{name}: cannot be read: {reason}") from None
    return parse(name, text, entrants)


def parse(name: str, text: str, entrants: Sequence[Entrant]) -> Scenario:
    """A scenario from its text; error messages call it `name`. Raises `ScenarioError`."""
    try:
        document = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise ScenarioError(f"{name}: not TOML: {error}") from None
    return _Reader(name, text, document, entrants).scenario()


@dataclass(frozen=True)
class _Place:
    """One table of the file, for errors."""

    table: str
    first_line: int
    lines: tuple[str, ...]

    def of(self, key: str) -> str:
        """``[[cells]] 2, line 14``: the line of the key, or the table's first line where the key is not in it."""
        pattern = re.compile(rf'\s*"?{re.escape(key)}"?\s*=')
        line = next((n for n, text in enumerate(self.lines) if pattern.match(text)), 0)
        return ", ".join(part for part in (self.table, f"line {self.first_line + line}") if part)


def _places(text: str) -> dict[str, list[_Place]]:
    """The tables of a file with their lines; the top of the file is the table with the empty name."""
    lines = text.splitlines()
    heads = [(0, "")]
    for number, line in enumerate(lines):
        if found := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$", line):
            heads.append((number, found[1]))
    found_places: dict[str, list[_Place]] = {}
    for (begin, table), (end, _) in zip(heads, [*heads[1:], (len(lines), "")], strict=True):
        same = found_places.setdefault(table, [])
        shown = {"": "", "cells": f"[[cells]] {len(same) + 1}"}.get(table, f"[{table}]")
        same.append(_Place(shown, begin + 1, tuple(lines[begin:end])))
    return found_places


class _Reader:
    """Reads one document."""

    def __init__(self, name: str, text: str, document: dict[str, Any], entrants: Sequence[Entrant]) -> None:
        self.name = name
        self.text = text
        self.document = document
        self.entrants = {entrant.mechanism.name: entrant for entrant in entrants}
        self.places = _places(text)

    def fail(self, place: _Place, key: str, message: str) -> ScenarioError:
        return ScenarioError(f"{self.name}, {place.of(key)}: {message}")

    def place(self, table: str, number: int = 0) -> _Place:
        """The place of a table; for one that is written in an unusual way, the file's first line."""
        found = self.places.get(table, [])
        return found[number] if number < len(found) else _Place(f"{table} {number + 1}", 1, ())

    def scenario(self) -> Scenario:
        top = self.place("")
        for table, shape in (("run", dict), ("cells", list)):
            if not isinstance(self.document.get(table, shape()), shape):
                written = "[run]" if table == "run" else "[[cells]]"
                raise self.fail(top, table, f"{table} must be written as a table, {written}")
        given = {key: value for key, value in self.document.items() if key not in ("run", "cells")}
        self.check_names(top, given, TOP, also=("run", "cells"))
        texts = {key: self.values(top, TOP[key], value)[0] for key, value in given.items()}
        if "title" not in texts:
            raise self.fail(top, "title", 'title is missing; it takes a text, such as title = "Round trips"')
        baseline = texts.get("baseline", "")
        if baseline and baseline not in self.entrants:
            hint = suggest(baseline, self.entrants)
            raise self.fail(top, "baseline", f'baseline names no mechanism "{baseline}"{hint}; see nearcall-lab list')
        settings = self.settings()
        planned = self.planned(settings)
        return Scenario(self.name, texts["title"], self.text, settings, tuple(planned), baseline)

    def settings(self) -> Settings:
        place, given = self.place("run"), self.document.get("run", {})
        self.check_names(place, given, RUN)
        return Settings(**{key: self.values(place, RUN[key], value)[0] for key, value in given.items()})

    def check_names(self, place: _Place, given: dict[str, Any], keys: dict[str, Key], also: Sequence[str] = ()) -> None:
        for key in given:
            if key not in keys:
                known = [*keys, *also]
                raise self.fail(place, key, f'unknown key "{key}"{suggest(key, known)}; known are {", ".join(known)}')

    def values(self, place: _Place, key: Key, value: Any) -> list[Any]:
        try:
            return key.values(value)
        except KeyProblem as problem:
            raise self.fail(place, key.name, str(problem)) from None

    def planned(self, settings: Settings) -> list[Planned]:
        tables = self.document.get("cells", [])
        if not tables:
            raise self.fail(self.place(""), "cells", "there is no [[cells]] table, so nothing to measure")
        found: list[Planned] = []
        tables_by_digest: dict[str, str] = {}
        for number, table in enumerate(tables):
            place = self.place("cells", number)
            if not isinstance(table, dict):
                raise self.fail(place, "", f"[[cells]] {number + 1} is {show(table)}, not a table")
            for planned in self.expand(place, table, settings):
                digest = planned.cell.digest()
                if digest in tables_by_digest:
                    raise self.fail(
                        place,
                        "mechanisms",
                        f"{planned.cell.mechanism} ({planned.cell.title()}) is already in {tables_by_digest[digest]}; "
                        "a run measures a cell once",
                    )
                tables_by_digest[digest] = place.of("mechanisms")
                found.append(planned)
                if len(found) > MOST_CELLS:
                    raise self.fail(place, "mechanisms", f"more than {MOST_CELLS} cells; shorten some of the lists")
        return found

    def expand(self, place: _Place, table: dict[str, Any], settings: Settings) -> Iterator[Planned]:
        """All cells of one ``[[cells]]``: work and mode outside, mechanisms inside."""
        self.check_names(place, table, CELLS)
        if "mechanisms" not in table:
            allowed = CELLS["mechanisms"].allowed()
            raise self.fail(place, "mechanisms", f"mechanisms is missing; it takes {allowed}")
        lists = {key: self.values(place, CELLS[key], value) for key, value in table.items()}
        patterns, exclude = lists.pop("mechanisms")[0], lists.pop("exclude", [()])[0]
        servers = lists.pop("servers", [()])[0]
        try:
            names = _matching(patterns, list(self.entrants), "mechanisms", "no mechanism")
            without = _matching(exclude, list(self.entrants), "exclude", "no mechanism") if exclude else []
        except ScenarioError as error:
            key = str(error).partition(":")[0]
            raise self.fail(place, key, str(error)) from None
        names = [name for name in names if name not in without]
        if not names:
            raise self.fail(place, "exclude", "exclude leaves none of the mechanisms")
        if style := lists.pop("style", [None])[0]:
            names = [name for name in names if self.entrants[name].mechanism.style == style]
            if not names:
                raise self.fail(place, "style", f'none of the mechanisms is of the style "{style}"')
        chosen = {name: self.entrants[name] for name in names}
        if servers:
            chosen = self.pairs(place, names, servers)
        for combination in itertools.product(*lists.values()):
            given = dict(zip(lists, combination, strict=True))
            for name, entrant in chosen.items():
                yield self.plan(place, given, entrant, settings, named=name in patterns)

    def pairs(self, place: _Place, clients: Sequence[str], patterns: Sequence[str]) -> dict[str, Entrant]:
        """Each of these clients with the server of each mechanism that matches; one with its own server is no pair."""
        by_protocol = {name: entrant.mechanism.protocol for name, entrant in self.entrants.items()}
        can = [name for name, protocol in by_protocol.items() if protocol]
        try:
            servers = _matching(patterns, can, "servers", "no mechanism that others can call")
        except ScenarioError as error:
            raise self.fail(place, "servers", str(error)) from None
        found: dict[str, Entrant] = {}
        for client, server in itertools.product(clients, servers):
            if by_protocol[client] != by_protocol[server]:
                raise self.fail(place, "servers", f"{client} does not speak the protocol of {server}")
            one = self.entrants[client]
            pair = one if client == server else paired(one, self.entrants[server])
            found[pair.mechanism.name] = pair
        return found

    def plan(self, place: _Place, given: dict[str, Any], entrant: Entrant, settings: Settings, named: bool) -> Planned:
        """One cell. If the mechanism cannot run it, that is an error where the file names the mechanism, and otherwise
        a row with the reason.
        """
        operation = given.get("operation", "quote" if settings.track == "objects" else "echo")
        kind = given.get("mode", DEFAULT_MODE[operation])
        key, problem = contradiction(given, operation, kind, settings.track)
        if problem:
            raise self.fail(place, key, problem)
        mode_keys = (
            "connections",
            "outstanding",
            "client_processes",
            "callers",
            "rate",
            "arrivals",
            "calls",
            "extra_copy",
        )
        work = {key: given[key] for key in ("size", "sizes", "items", "delay_s") if key in given}
        if kind == "connect" and operation == "echo":
            work.setdefault("size", _CONNECT_SIZE)
        cell = Cell(
            entrant.mechanism.name,
            Work(operation, **work),
            Mode(
                kind,
                seconds=given.get("seconds", settings.seconds),
                warmup_s=given.get("warmup_s", settings.warmup_s),
                **{key: given[key] for key in mode_keys if key in given},
            ),
            given.get("placement", settings.placement),
            given.get("same_process", False),
            settings.seed,
            given.get("hosts", ""),
            given.get("network", Network()),
        )
        key, problem = unsupported(cell, entrant.mechanism)
        if cell.mode.callers and not (problem or entrant.module):
            key, problem = "callers", "has a client in another language, which makes its calls in its own way"
        if cell.host and not problem:
            key, problem = "hosts", stays_here(entrant)
        if problem and named:
            raise self.fail(place, key, f"{entrant.mechanism.name} {problem}")
        return Planned(cell, entrant, problem or entrant.problem or too_few(cell.mode))


def _matching(patterns: Sequence[str], names: Sequence[str], where: str, what: str) -> list[str]:
    """The names that match any pattern, in their own order. A pattern that matches none is an error."""
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            shown = ", ".join(sorted(names))
            raise ScenarioError(f'{where}: "{pattern}" matches {what}{suggest(pattern, names)}; there are {shown}')
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
