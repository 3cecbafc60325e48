"""The report: its page, its Markdown, what it says of every state, and that hostile text stays text."""

from __future__ import annotations

import io
import itertools
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from rich.console import Console

from made_up import Lab, latencies, started
from nearcall_lab.cli import main
from nearcall_lab.engine.progress import Progress
from nearcall_lab.engine.run import Engine
from nearcall_lab.markdown import code, escaped
from nearcall_lab.report import beside, decide, histograms, markdown, page, sections
from nearcall_lab.report.charts import connections, frontier, load
from nearcall_lab.report.charts.families import Member
from nearcall_lab.report.charts.frame import Axis, apart
from nearcall_lab.report.charts.load import knee
from nearcall_lab.report.charts.sizes import crossovers
from nearcall_lab.report.html import element, escape
from nearcall_lab.report.model import Report, prepare
from nearcall_lab.report.table import against_text
from nearcall_lab.report.terminal import print_run
from nearcall_lab.results.model import CellResult, Observation
from nearcall_lab.results.store import read
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.stats import significant
from nearcall_lab.studies.stored import FILE
from whole_run import HOSTILE, Maker, every_state, everything, ping_pong, study, write

_VOID = {"meta", "br", "input", "col"}


class Reader(HTMLParser):
    """Checks that every element is closed, and keeps what a test asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute of {tag} twice: {attrs}"
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(str(found["id"]))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("runs") / "whole", everything())


@pytest.fixture(scope="module")
def report(whole: Path) -> Report:
    return prepare([read(whole)], [study()])


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    return page.render(report)


def test_the_page_is_whole_and_asks_nothing_of_the_network(text: str) -> None:
    reader = Reader(text)
    assert len(reader.ids) == len(set(reader.ids))
    for tag, attributes in reader.tags:
        assert tag not in ("link", "iframe", "img", "object", "base")
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src"):
            assert (attributes.get(name) or "#").startswith(("#", "data:text/plain"))
    targets = {str(a["href"])[1:] for a in reader.all("a") if str(a["href"]).startswith("#")}
    assert targets <= set(reader.ids)
    assert {a["aria-controls"] for a in reader.all("button") if "aria-controls" in a} <= set(reader.ids)


def test_the_parts_stand_in_their_order(text: str) -> None:
    parts = re.findall(r'<section id="([a-z]+)" class="part"', text)
    assert parts == ["verdicts", "decide", "machine", "floor", "numbers", "pictures", "why", "studies"]
    charts = re.findall(r'<section id="([a-z]+)" class="charts"', text)
    assert charts == ["spectrum", "frontier", "load", "scaling", "sizes", "cpu", "dots"]
    assert text.count('<aside class="caveat"') == len(charts)


def test_hostile_text_stays_text(text: str, report: Report) -> None:
    assert HOSTILE not in text
    assert "<script>window" not in text
    assert "<img" not in text
    assert HOSTILE in Reader(text).words
    found = markdown.render(report)
    assert "<script>" not in found
    assert "<img" not in found
    assert "[a](javascript" not in found
    assert escape("a\x00b\u202ec\u2066") == "a\ufffdb\ufffdc\ufffd"
    assert element("td", "<b>", title='"') == '<td title="&#34;">&lt;b&gt;</td>'
    assert escaped("a|b\nc<d>") == "a\\|b c&lt;d&gt;"
    assert code("a`b") == "`a'b`"


def test_hostile_text_in_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = Maker().cell("socket", Work(size=15), Mode(), label="[/nope]\x1b[31mred", problem="[red]\x1b]0;x\x07")
    failed = CellResult(other := Cell("proxy", Work(size=15), Mode()), other.digest(), "failed", "\x1b[2Jgone [/x]")
    assert main(["report", str(write(tmp_path / "run", [cell, failed]))]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[/nope]" in out
    assert "gone [/x]" in out


def test_only_the_page_s_own_script_may_run(text: str) -> None:
    policy = next(str(meta["content"]) for meta in Reader(text).all("meta") if "http-equiv" in meta)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert text.count("<script") == 1


def test_every_state_says_what_it_is(report: Report, text: str) -> None:
    by_name = {(row.cell.mechanism, row.cell.work.operation): row for row in report.rows}
    assert against_text(by_name["quick-shm", "quote"]) == "cannot tell"
    assert against_text(by_name["base-tcp", "quote"]) == "baseline"
    assert "×" in against_text(by_name["socket", "quote"])
    assert by_name["queue", "quote"].summary.failed.kinds["timeout"] == 4
    words = Reader(text).words
    for said in ("failed: ", "unsupported: has no quote", "not reached", "overloaded"):
        assert said in words
    assert "1 of 99 cells failed" in words
    assert "5 of 5 launches overloaded" in words
    assert "1 of 480 launches disturbed" in words


def test_failed_calls_are_told_with_their_reason(report: Report) -> None:
    """In the row, among the red flags, and where the fastest is named, in every format."""
    row = next(row for row in report.rows if row.summary.failed.calls)
    sentence = row.summary.failed.sentence()
    assert sentence == f"5 of {row.n + 5:,} failed: timeout (4), {HOSTILE} (1)"
    words, text = Reader(page.render(report)).words, markdown.render(report)
    assert words.count(f"Calls: {sentence}Beware: 1 of 5 launches disturbed: steal of 3 %") == 1
    assert f"calls failed in 1 of 99 cells: {sentence}" in words
    assert text.count(escaped(sentence)) == 2


def _place(name: str, cpu_us: float, median_us: float, tmp_path: Path) -> frontier.Place:
    [row] = prepare([read(write(tmp_path / name, [Maker().cell(name, Work(size=15), Mode())]))]).rows
    return frontier.Place(row, cpu_us * 1e3, median_us * 1e3)


def test_the_front_has_those_that_nobody_beats_in_both(tmp_path: Path) -> None:
    cheap = _place("socket", 10, 100, tmp_path)
    quick = _place("quick-shm", 40, 5, tmp_path)
    between = _place("ring", 20, 50, tmp_path)
    beaten = _place("queue", 20, 60, tmp_path)
    dear = _place("proxy", 50, 5, tmp_path)
    assert frontier.front([dear, beaten, quick, between, cheap]) == [cheap, between, quick]
    assert frontier.front([beaten]) == [beaten]


def test_names_on_the_front_hide_nothing(tmp_path: Path) -> None:
    report = prepare([read(write(tmp_path / "run", everything()))])
    figure = frontier.figures(report)[0]
    assert "quick shm" in figure.drawing
    assert [row[0] for row in figure.rows if row[3] == "yes"] == ["quick shm"]
    assert "no-op in process" not in [row[0] for row in figure.rows]


def test_what_a_decision_can_rest_on(tmp_path: Path) -> None:
    found = decide.offers(prepare([read(write(tmp_path / "run", everything()))]))
    assert {offer.row.result.status for offer in found} == {"ok"}
    assert {offer.at_once for offer in found} == {1, 2, 4, 8, 16}
    assert not any(offer.row.is_floor for offer in found)
    assert {offer.row.cell.mode.rate for offer in found} == {0, 500, 2_000, 5_000, 20_000}


def test_a_card_says_what_it_was_measured_on_and_what_it_costs(tmp_path: Path) -> None:
    cells = [Maker().cell(name, Work(size=15), Mode(connections=4)) for name in ("quick-shm", "base-tcp")]
    words = Reader(page.render(prepare([read(write(tmp_path / "run", cells))]))).words
    assert re.search(r"µs of CPU time per call against \d+ µs; 4 calls at once, each side on a CPU of its own", words)


def test_a_run_that_ended_early_has_no_winner_and_says_so_first(tmp_path: Path) -> None:
    run, planned = started(tmp_path / "run")

    def stop(progress: Progress) -> None:
        if progress.done == 1:
            raise KeyboardInterrupt

    with run:
        Engine(run, planned, Lab().fresh_processes, stop).go()
    report = prepare([read(tmp_path / "run")])
    (group,) = report.groups
    assert group.not_reached == "1 of 2 mechanisms not reached"
    shown = str(sections.cards(report))
    assert group.not_reached in shown
    assert "no verdict" in shown
    assert "×" not in shown
    whole_page = page.render(report)
    assert whole_page.index("This run is not complete") < whole_page.index('id="verdicts"')
    text = markdown.render(report)
    assert text.splitlines()[2] == "**Caution:** the run ended early: interrupted."
    assert f"no verdict, {group.not_reached}" in text


def test_what_has_not_passed_check_is_a_red_flag(tmp_path: Path) -> None:
    cells = [Maker().cell(name, Work(size=15), Mode()) for name in ("quick-shm", "base-tcp")]
    cells[0].checked, cells[1].checked = False, True
    words = Reader(page.render(prepare([read(write(tmp_path / "run", cells))]))).words
    assert "since nearcall-lab check has not passed: quick shm" in words
    assert "has not passed: quick shm, baseline" not in words


def test_the_fastest_is_not_named_without_what_it_failed_to_do(tmp_path: Path) -> None:
    cells = [Maker().cell(name, Work(size=15), Mode()) for name in ("quick-shm", "base-tcp")]
    cells[0].launches[0].errors = {"AioRpcError CANCELLED": 15}
    found = prepare([read(write(tmp_path / "run", cells))])
    assert [row.name for row in found.groups[0].ranked()] == ["quick shm", "baseline, TCP"]
    said = "15 of 15,015 failed: AioRpcError CANCELLED"
    assert said in Reader(page.render(found)).words.partition("Red flags")[0]
    assert f"({said})" in markdown.render(found).partition("## Machine")[0]
    assert said in _printed(tmp_path / "run")
    assert "failed" not in _printed(write(tmp_path / "good", [Maker().cell("base-tcp", Work(size=15), Mode())]))


def test_who_leaves_a_part_undone_is_not_ranked(tmp_path: Path) -> None:
    cells = [Maker().cell(name, Work(size=15), Mode()) for name in ("quick-shm", "base-tcp")]
    cells[0].launches[0].errors = {"AioRpcError CANCELLED": 15_000}
    group = prepare([read(write(tmp_path / "run", cells))]).groups[0]
    assert [row.name for row in group.ranked()] == ["baseline, TCP"]
    assert "15,000 of 30,000 failed" in Reader(page.render(prepare([read(tmp_path / "run")]))).words
    assert "50 %" in _printed(tmp_path / "run")


def _printed(run: Path) -> str:
    file = io.StringIO()
    print_run(Console(width=190, file=file), read(run))
    return file.getvalue()


def test_counts_say_how_many_calls_they_stand_for(tmp_path: Path) -> None:
    seen = Observation(2.0, 3.0, 1.0, 1.0, calls=1_234, syscalls_calls=567)
    run = write(tmp_path / "run", [Maker().cell("base-tcp", Work(size=15), Mode(), observation=seen)])
    for text in (Reader(page.render(prepare([read(run)]))).words, markdown.render(prepare([read(run)]))):
        assert "1,234" in text
        assert "567" in text
    assert "counted over 567 calls" in _printed(run)


def test_no_factor_where_the_interval_spans_one(tmp_path: Path) -> None:
    found = prepare([read(write(tmp_path / "run", list(every_state(Maker()))))])
    wide = next(row for row in found.rows if row.cell.mechanism == "quick-shm")
    assert wide.against is not None
    assert wide.against.speed is not None
    assert wide.against.speed.low is not None
    assert wide.against.speed.low < 1 < (wide.against.speed.high or 0)
    shown = f"{wide.against.speed.value:.2f}×"
    assert shown not in page.render(found)
    assert shown not in markdown.render(found)


def test_the_lead_of_the_fastest_is_over_the_next_that_is_not_the_baseline(report: Report) -> None:
    found = [group for group in report.groups if group.ahead is not None]
    assert len(found) > 5
    for group in found:
        assert group.ahead is not None
        assert group.second is not None
        assert not group.second.is_baseline
        assert group.ahead.candidate is group.ranked()[0].result
        assert group.ahead.base is group.second.result


def test_a_page_says_what_its_verdicts_rest_on_and_how_many_there_are(report: Report) -> None:
    made = sum(row.against is not None and row.against.speed is not None for row in report.rows)
    said = f"about {significant(made / 100, 2)} of {made} intervals would leave 1 out by chance"
    for text in (Reader(page.render(report)).words, markdown.render(report)):
        assert said in text
        assert "otherwise the launches cannot tell" in text


def test_the_longest_call_is_a_column_of_every_format(tmp_path: Path) -> None:
    cell = Maker().cell("base-tcp", Work(size=15), Mode())
    response = cell.launches[2].response
    assert response is not None
    response.max = 200_000_000  # a stall; what is stored besides is as it was
    run = write(tmp_path / "run", [cell])
    found = prepare([read(run)])
    for text in (Reader(page.render(found)).words, markdown.render(found), _printed(run)):
        assert "200 ms" in text


def test_what_runs_in_one_process_is_not_called_fastest(report: Report) -> None:
    for group in report.groups:
        assert "noop" not in [row.cell.mechanism for row in group.ranked()]
        assert all(row.result.status == "ok" for row in group.ranked())


def test_markdown_and_page_have_the_same_numbers(report: Report, text: str) -> None:
    words, found = Reader(text).words, markdown.render(report)
    for row in report.rows:
        if row.summary.value is not None and row.result.status == "ok":
            for p in (0.5, 0.99):
                if (quantile := row.summary.quantiles.get(p)) is not None:
                    from nearcall_lab.stats import format_time

                    assert format_time(quantile.value) in found
                    assert format_time(quantile.value) in words
    for heading in ("## Verdicts", "## Machine", "## Floor", "## All numbers", "## Why", "## A made-up study"):
        assert f"\n{heading}\n" in found
    assert "| quick shm `" in found
    assert "faster than baseline, TCP" in found


def test_the_histograms_can_be_read_by_their_library(report: Report, text: str, tmp_path: Path) -> None:
    row = report.rows[0]
    address = histograms.data_uri(histograms.log(row, histograms.Detail.LAUNCHES))
    assert address in text
    file = tmp_path / "cell.hlog"
    file.write_text(unquote(address.partition(",")[2]))
    reference = HdrHistogram(1, 3_600_000_000_000, 3)
    reader, total = HistogramLogReader(str(file), reference), 0
    while (histogram := reader.get_next_interval_histogram()) is not None:
        total += histogram.get_total_count()
    reader.close()
    assert total == row.n
    merged = histograms.log(row, histograms.Detail.MERGED).splitlines()[-1].rpartition(",")[2]
    assert HdrHistogram.decode(merged).get_total_count() == row.n
    assert histograms.log(row, histograms.Detail.NONE) == ""


def test_two_hundred_cells_stay_below_five_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker(launches=6, samples=800)
    cells = list(ping_pong(maker, sizes=[15 * 2**power for power in range(20)]))
    assert len(cells) == 200
    found = prepare([read(write(tmp_path / "run", cells))])
    assert len(page.render(found).encode()) < 5_000_000
    total = sum(len(launch.response.histogram) for cell in cells for launch in cell.launches if launch.response)
    monkeypatch.setattr(histograms, "MOST_CHARACTERS", total - 1)
    assert histograms.detail_for(found.rows) is histograms.Detail.MERGED
    monkeypatch.setattr(histograms, "MOST_CHARACTERS", 100)
    few = prepare([read(write(tmp_path / "few", cells[:3]))])
    assert histograms.detail_for(few.rows) is histograms.Detail.NONE
    assert "left out, to keep this page small" in page.render(few)


def test_several_runs_on_one_page(whole: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", list(ping_pong(Maker(), sizes=[1_000])), title="Another one")
    found = prepare([read(whole), read(other)])
    reader = Reader(page.render(found))  # the same cell of two runs has two ids
    assert len(reader.ids) == len(set(reader.ids))
    assert "A made-up run of everything; Another one" in reader.words


def test_every_kind_of_work_is_drawn(tmp_path: Path) -> None:
    maker, cells = Maker(launches=3, samples=400), []
    for name in ("quick-shm", "ring", "base-tcp"):
        for size in (20, 4_000, 100_000):
            cells.append(maker.cell(name, Work("send", size), Mode("one-way")))
            cells.append(maker.cell(name, Work("send", size), Mode("one-way", rate=1_000.0)))
        cells.append(maker.cell(name, Work("count", items=1_000), Mode("stream")))
        cells.append(maker.cell(name, Work(size=15), Mode("connect")))
        cells.append(maker.cell(name, Work("wait", delay_s=0.1), Mode("burst", calls=100, outstanding=100)))
        cells.append(maker.cell(name, Work(sizes=(1_000, 10_000)), Mode("mixed")))
        for outstanding in (1, 8):
            cells.append(maker.cell(name, Work(size=15), Mode(outstanding=outstanding)))
    found = prepare([read(write(tmp_path / "run", cells))])
    text = page.render(found)
    words = Reader(text).words
    for said in (
        "1000 integers streamed",
        "connection set-up",
        "burst of 100",
        "20 B one-way",
        "outstanding × N",
        "/s",
    ):
        assert said in words
    assert "one-way, rising size" in words
    assert markdown.render(found).count("\n### ") == len(found.groups)


def test_a_run_keeps_what_the_filters_need(tmp_path: Path) -> None:
    text = 'title = "x"\n[[cells]]\nmechanisms = ["fast", "on-a-loop"]\nsize = 15'
    run, _ = started(tmp_path / "run", text)
    run.close()
    assert [cell.style for cell in read(tmp_path / "run").cells] == ["threads", "asyncio"]
    assert not any(cell.same_process for cell in read(tmp_path / "run").cells)


def test_what_is_overloaded_at_every_rate_is_not_forgotten(tmp_path: Path) -> None:
    cells = []
    for rate in (1_000.0, 4_000.0):
        cells.append(Maker().cell("quick-shm", Work(size=15), Mode("open", rate=rate)))
        cells.append(Maker().cell("web", Work(size=15), Mode("open", rate=rate), status="overloaded"))
    cells.append(Maker().cell("proxy", Work(size=15), Mode("open", rate=1_000.0)))
    cells.append(Maker().cell("proxy", Work(size=15), Mode("open", rate=4_000.0), status="overloaded"))
    found = prepare([read(write(tmp_path / "run", cells))])
    figure, *of_tails = load.figures(found)
    assert [one.key for one in of_tails] == ["rate0-p99", "rate0-p999"]
    assert figure.remarks == ["web server has no point: overloaded at 1000/s, 4000/s."]
    assert [row[0] for row in figure.rows if row[-1] == "overloaded"] == ["web server", "web server", "object proxy"]
    assert figure.drawing.count('class="over"') == 1
    assert "web server has no point" in page.render(found)


def test_a_knee_of_the_client_is_said_to_be_one(tmp_path: Path) -> None:
    cells = [
        Maker().cell("web", Work(size=1_000), Mode("open", rate=rate)) for rate in (200.0, 1_000.0, 2_000.0, 2_300.0)
    ]
    for launch in (launch for cell in cells for launch in cell.launches):
        launch.client.cpu_s, launch.server.cpu_s = 0.97 * launch.wall_s, 0.4 * launch.wall_s
    figure, *_ = load.figures(prepare([read(write(tmp_path / "run", cells))]))
    assert [row[1] for row in figure.rows if row[-1] == "the knee"] == ["1000"]
    assert figure.remarks == [
        "web server: at its knee its client had used 97% of a CPU, and its server 40%: the server alone can do more."
    ]


def test_memory_of_connections(tmp_path: Path) -> None:
    cells = []
    for number, pss_kb in ((1, 20_000), (101, 21_000), (1_001, 30_000)):
        mode = Mode("open", rate=200.0, connections=number, callers=8)
        for name in ("quick-shm", "base-tcp"):
            cell = Maker().cell(name, Work(size=1_000), mode)
            for launch in cell.launches:
                launch.server.pss_kb = pss_kb if name == "quick-shm" else 2 * pss_kb
                launch.server.descriptors = number + 10 if name == "quick-shm" else 90
                launch.client.pss_kb = 10_000
            cells.append(cell)
    found = prepare([read(write(tmp_path / "run", cells))])
    of_memory, of_cpu = connections.figures(found)
    assert (of_memory.key, of_cpu.key) == ("held0-memory", "held0-cpu")
    mine = [row for row in of_memory.rows if row[0] == "quick shm"]
    assert [row[1:5] for row in mine] == [
        ["1", "19.5 MB", "–", "–"],
        ["101", "20.5 MB", "10.0", "0"],
        ["1,001", "29.3 MB", "10.0", "0"],
    ]
    assert [row[3] for row in of_memory.rows if row[0] == "baseline, TCP"] == ["–", "–", "–"]
    assert [remark.partition(":")[0] for remark in of_memory.remarks] == [
        "baseline, TCP, 101 connections",
        "baseline, TCP, 1,001 connections",
    ]
    assert "Many connections" in page.render(found)


def test_two_runs_of_two_machines_stand_side_by_side(tmp_path: Path) -> None:
    first = write(tmp_path / "desk", list(ping_pong(Maker(), sizes=(15,))))
    slower = Maker(seed=8)
    cells = list(ping_pong(slower, sizes=(15, 1_000)))
    for launch in cells[0].launches:
        assert launch.response is not None
        launch.response = latencies([int(2 * launch.response.mean)] * 1_000)
    second = write(tmp_path / "server", cells)
    runs = [read(first), read(second)]
    runs[1].info.environment.cpu = "Another CPU"
    found = beside.section(prepare(runs))
    reader = Reader(f"<main>{found}</main>")
    assert reader.words.count("× its baseline") >= 4
    assert "server" in reader.words
    assert "Another CPU, 2 CPUs, Linux 6.1" in reader.words
    assert "slower than the first" in reader.words
    assert "1 KB" not in reader.words, "only what both have"
    assert 'id="beside"' in page.render(prepare(runs))
    assert beside.section(prepare(runs[:1])) == ""


def test_knee() -> None:
    assert knee([(100, 1.0), (200, 1.1), (400, 1.3), (500, 5.0)]) == 2
    assert knee([(100, 1.0), (200, 1.0), (400, 1.0)]) is None
    assert knee([(100, 1.0), (200, 9.0)]) is None


def test_crossovers(report: Report) -> None:
    by_name: dict[str, Member] = {}
    for row in report.rows:
        cell = row.cell
        if cell.work.operation == "echo" and cell.mode.kind == "closed" and cell.mode.seconds == 0.3:
            member = by_name.setdefault(cell.mechanism, Member(cell.mechanism, [], []))
            member.rows.append(row)
            member.at.append(float(cell.work.size))
    found = crossovers([by_name["quick-shm"], by_name["ring"], by_name["noop"]], "", "noop")
    assert [(c.smaller, c.larger) for c in found] == [("quick shm", "ring buffer")]
    assert 15_000 < found[0].size < 1_000_000
    assert found[0].sentence().startswith("quick shm is ahead below about ")
    assert crossovers([by_name["base-tcp"], by_name["base-aio"]], "base-tcp", "noop") == []  # not sure enough


def test_labels_keep_apart() -> None:
    places = apart([(10, "a"), (11, "b"), (12, "c"), (300, "d")], 15, 0, 310)
    ordered = [places[name] for name in "abcd"]
    assert all(b - a >= 15 for a, b in itertools.pairwise(ordered))
    assert max(ordered) <= 310
    assert Axis(1, 1000, 0, 300)(10) == pytest.approx(100)
    assert Axis(0, 10, 0, 100, log=False).ticks() == [0, 2, 4, 6, 8, 10]


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    whole = write(tmp_path / "run", list(every_state(Maker())))
    (whole / FILE).write_bytes(msgspec.json.encode(study()))
    assert main(["report", str(whole), "--out", "deep/report.html"]) == 0
    assert "wrote deep/report.html" in capsys.readouterr().out
    assert "A made-up study" in Reader(Path("deep/report.html").read_text()).words
    assert main(["report", "--study", str(whole), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# A made-up run of everything\n")
    assert main(["report", str(whole / "combined.json"), "--out", "report.md"]) == 0
    assert "A made-up study" not in Path("report.md").read_text()
    assert main(["report", str(whole)]) == 0
    assert "quick shm" in capsys.readouterr().out
    assert main(["report", str(whole), "--format", "terminal", "--out", "report.txt"]) == 0
    assert "quick shm" in Path("report.txt").read_text()


def test_what_cannot_be_shown_is_said_in_one_line(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: str) -> str:
        assert main(["report", *arguments]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    (tmp_path / "none").mkdir()
    assert "is it the directory of a run?" in refused(str(tmp_path / "none"), "--out", "x.html")
    assert "nearcall-lab study makes such a directory" in refused("--study", str(tmp_path / "none"))
    assert "its ending does not say which format" in refused(str(whole), "--out", "x.pdf")
    assert "cannot be written: Is a directory" in refused(str(whole), "--out", str(tmp_path), "--format", "html")
    broken = write(tmp_path / "broken", list(every_state(Maker())))
    file = next((broken / "cells").iterdir())
    whole_text = file.read_text()
    file.write_text(whole_text[:100])
    assert f"{file}: broken: " in refused(str(broken), "--out", "x.html")
    file.unlink()
    assert "No such file or directory" in refused(str(broken), "--out", "x.html")
    text = next(path for path in (broken / "cells").iterdir() if "HIST" in path.read_text())
    text.write_text(re.sub(r'"HIST[^"]+"', '"HISTnonsense"', text.read_text()))
    file.write_text(whole_text)
    assert "not a histogram" in refused(str(broken), "--out", "x.html")
    (tmp_path / "none" / FILE).write_text("{")
    assert "study.json: broken: " in refused("--study", str(tmp_path / "none"))


def test_an_empty_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = write(tmp_path / "empty", [])
    assert main(["report", str(empty)]) == 0
    assert "This run has no cell" in capsys.readouterr().out
    found = prepare([read(empty)])
    assert "No run on this page has a cell" in Reader(page.render(found)).words
    assert "This run has no cell" in markdown.render(found)


def test_a_run_without_numbers_says_so(tmp_path: Path) -> None:
    cells = [cell for cell in every_state(Maker()) if not cell.launches]
    found = prepare([read(write(tmp_path / "run", cells))])
    words = Reader(page.render(found)).words
    assert "No cell has a number that could be compared." in words
    assert "Nothing to draw: no cell has numbers." in words
    assert "No floor was measured in this run" in words
    assert "## All numbers" in markdown.render(found)
