"""What adapters say of their libraries in ``adapters/facts.toml``: the facts that do not come out of a measurement."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

from nearcall_lab.modules import load
from nearcall_lab.registry import Entrant

ANY = "*"
"""In `Facts.languages`: whatever has an HTTP client, or can open a socket."""
ANY_LANGUAGE = "any"
"""A language of which nothing else is known."""


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One library; the file says what each field means."""

    name: str
    languages: tuple[str, ...]
    systems: tuple[str, ...]
    good: str
    wrong: str
    languages_by: str = ""
    security: str = ""
    trust: str = ""
    fan_out: str = ""
    keeps: bool = False
    keeps_by: str = ""
    keeps_in: tuple[str, ...] = ()
    variants: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def speaks(self, language: str, variant: str = "") -> bool:
        """Whether the other side can be written in this language with what is there, for a variant of the adapter."""
        only = dict(self.variants).get(language)
        if only is not None and variant and variant not in only:
            return False
        return language in self.languages or ANY in self.languages

    def keeps_with(self, variant: str) -> bool:
        """Whether messages wait for who is not there, with a variant of the adapter."""
        return self.keeps and (not self.keeps_in or variant in self.keeps_in)


@cache
def all_facts() -> dict[str, Facts]:
    """By adapter, in the file's order; an adapter that is the same library as another has its facts."""
    text = (files("nearcall_lab.adapters") / "facts.toml").read_bytes()
    tables = msgspec.toml.decode(text, type=dict[str, dict[str, object]])
    own = {name: msgspec.convert(table, Facts) for name, table in tables.items() if "same_as" not in table}
    return own | {name: own[str(table["same_as"])] for name, table in tables.items() if "same_as" in table}


def known_languages() -> list[str]:
    """The languages that facts name, in order, without `ANY_LANGUAGE`."""
    return sorted({name for facts in all_facts().values() for name in facts.languages} - {ANY})


def facts_of(entrant: Entrant) -> Facts | None:
    """The facts of a mechanism's library; None for an adapter that does not come with the lab."""
    if entrant.sides is not None:
        return facts_of(entrant.sides[1])
    if entrant.source:
        return all_facts().get(entrant.source.rpartition("/")[2])
    if not entrant.module.startswith("nearcall_lab."):
        return None
    # An adapter with rows of several libraries says whose each one is.
    library_of = getattr(load(entrant.module), "library_of", None)
    return all_facts().get(library_of(entrant.mechanism) if library_of else entrant.module.rpartition(".")[2])
