"""What several workers have counted, one after the other and side by side: pages of Prometheus's text, added up.

Each process is a life, and has a place among the workers, in which others were before it. Counters and histograms only
grow in a life, so those of a place are the sums over its lives, of what each has said last. Everything else, such as
gauges, is what the youngest life says now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.samples import Sample

__all__ = ["Places", "Said", "noted"]


class Said(NamedTuple):
    """What a worker has said of itself."""

    life: int
    """The number of its process. A successor's is higher."""
    place: int
    """Its number among the workers."""
    when: float
    """On the clock of this machine."""
    text: str
    """Its page."""


def noted(book: Mapping[str, Any], said: Iterable[Said], lives: Callable[[int], bool]) -> dict[str, Any]:
    """What is known of all workers, once some have said more.

    Args:
        book: What was known: ``lives``, with what each has said last by its number, and ``gone``, with the page of all
            lives that are over, by their place.
        said: What workers say.
        lives: Whether a life goes on.
    """
    last = {int(life): Said(*each) for life, each in book.get("lives", {}).items()}
    gone = {int(place): text for place, text in book.get("gone", {}).items()}
    for each in said:
        # Another worker may have asked later, and be through sooner.
        if each.life not in last or last[each.life].when < each.when:
            last[each.life] = each
    for life in [life for life in last if not lives(life)]:
        over = last.pop(life)
        gone[over.place] = _grown([over.text, gone.get(over.place, "")])
    return {"lives": last, "gone": gone}


class Places:
    """What ``generate_latest`` writes: the metrics of all places, each with the number of its worker.

    Args:
        book: What is known of all workers.
        said: What those say now that answer.
    """

    def __init__(self, book: Mapping[str, Any], said: Sequence[Said]) -> None:
        self._book = book
        self._said = said

    def collect(self) -> Iterable[Metric]:
        """The metrics, each once."""
        from prometheus_client import Metric

        last: dict[int, Said] = self._book["lives"]
        now = {each.place: each for each in sorted(self._said)}
        found: dict[str, Metric] = {}
        for place in sorted({*now, *self._book["gone"], *(each.place for each in last.values())}):
            # What the youngest has is what the code of now means.
            texts = [each.text for each in sorted(last.values(), reverse=True) if each.place == place]
            texts.append(self._book["gone"].get(place, ""))
            for name, added in _added_up(texts, now[place].text if place in now else None).items():
                metric = found.setdefault(name, Metric(name, added.documentation, added.type))
                for sample in added.samples if metric.type == added.type else ():
                    metric.add_sample(sample.name, sample.labels | {"worker": str(place)}, sample.value)
        return found.values()


class _Texts:
    """The same of the lives of one place that are over, without the number."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def collect(self) -> Iterable[Metric]:
        """The metrics that only grow."""
        return [metric for metric in _added_up(self._texts, None).values() if metric.samples]


def _grown(texts: Sequence[str]) -> str:
    from prometheus_client import generate_latest

    return generate_latest(_Texts(texts)).decode()


def _added_up(texts: Iterable[str], now: str | None) -> dict[str, Metric]:
    """The sums of what only grows; and of ``now`` everything else."""
    from prometheus_client import Metric
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, Metric] = {}
    sums: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            metric = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples if metric.type == family.type else ():
                if _only_grows(family, sample):
                    key = family.name, sample.name, tuple(sorted(sample.labels.items()))
                    sums[key] = sums.get(key, 0.0) + sample.value
    for family in text_string_to_metric_families(now or ""):
        metric = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        for sample in family.samples:
            if not _only_grows(family, sample):
                metric.add_sample(sample.name, sample.labels, sample.value)
    for (name, part, labels), value in sums.items():
        found[name].add_sample(part, dict(labels), value)
    return found


def _only_grows(family: Metric, sample: Sample) -> bool:
    return family.type in ("counter", "histogram") or (
        family.type == "summary" and sample.name.endswith(("_count", "_sum"))
    )
