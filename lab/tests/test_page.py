"""The page as a reader has it: in a real browser, from a file, without a network."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import browser
from nearcall_lab.report import page
from nearcall_lab.report.model import prepare
from nearcall_lab.results.store import read
from whole_run import everything, study, write

_PROGRAM = browser.find()

pytestmark = [
    pytest.mark.skipif(
        _PROGRAM is None, reason="no browser here: apt-get install chromium, or name one in NEARCALL_LAB_BROWSER"
    ),
    pytest.mark.timeout(180),
]

_VISIBLE = "[...document.querySelectorAll('#cells > tbody')].filter(b => b.offsetParent !== null)"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    """One browser for all tests; started again for none, since that takes a second."""
    assert _PROGRAM is not None
    with browser.launched(_PROGRAM) as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    path = folder / "report.html"
    path.write_text(page.render(prepare([read(write(folder / "run", everything()))], [study()])), encoding="utf-8")
    return path


@pytest.fixture
def shown(tab: browser.Page, file: Path) -> Iterator[browser.Page]:
    with browser.shown(tab, file) as page_:
        yield page_


def _rows(tab: browser.Page) -> int:
    return int(tab.run(f"{_VISIBLE}.length"))


def _choose(tab: browser.Page, what: str, value: str) -> None:
    tab.run(
        f"""(() => {{ const field = document.querySelector('[data-filter={what}]'); field.value = '{value}';
        field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"""
    )


def test_filters(shown: browser.Page) -> None:
    everything_ = _rows(shown)
    assert everything_ == 99
    assert shown.run("document.getElementById('shown').textContent") == "99 rows"
    _choose(shown, "family", "socket")
    sockets = _rows(shown)
    assert 0 < sockets < everything_
    assert shown.run(f"{_VISIBLE}.every(b => b.dataset.family === 'socket')")
    assert shown.run("document.getElementById('shown').textContent") == f"{sockets} of 99 rows"
    assert shown.run("[...document.querySelectorAll('.series:not(.off)')].every(s => s.dataset.m === 'socket')")
    _choose(shown, "tuned", "tuned")
    assert _rows(shown) == 1
    shown.run("document.querySelector('#filters [type=reset]').click()")
    shown.until(f"{_VISIBLE}.length === 99")
    _choose(shown, "style", "asyncio")
    assert shown.run(f"new Set({_VISIBLE}.map(b => b.dataset.m)).size") == 1
    shown.run("document.querySelector('#filters [type=reset]').click()")
    shown.until(f"{_VISIBLE}.length === 99")
    _choose(shown, "text", "Queue 10 kb")
    assert _rows(shown) == 1
    _choose(shown, "text", "no such thing")
    assert _rows(shown) == 0
    assert shown.run("document.getElementById('none-left').offsetParent !== null")


def test_headings_sort(shown: browser.Page) -> None:
    heading = "[...document.querySelectorAll('#cells thead button')].find(b => b.textContent === '{}')"
    values = (
        "[...document.querySelectorAll('#cells > tbody')].map(b => b.dataset.c{}).map(v => v === undefined ? null : +v)"
    )
    for name, column in (("p50", 4), ("failed", 11), ("result", 2)):
        button = heading.format(name)
        shown.run(f"{button}.click()")
        assert shown.run(f"{button}.closest('th').ariaSort") == "ascending"
        up = shown.run(values.format(column))
        numbers = [value for value in up if value is not None]
        assert len(numbers) > 50
        assert up == sorted(numbers) + [None] * (len(up) - len(numbers))  # without a number: last
        shown.run(f"{button}.click()")
        assert shown.run(f"{button}.closest('th').ariaSort") == "descending"
        assert shown.run(values.format(column)) == sorted(numbers, reverse=True) + [None] * (len(up) - len(numbers))
    shown.run(f"{heading.format('mechanism')}.click()")
    names = shown.run("[...document.querySelectorAll('#cells .unfold')].map(b => b.textContent.trim().toLowerCase())")
    assert names == sorted(names, key=lambda name: (name.replace(",", ""), name)) or names[0] <= names[-1]
    assert shown.run("document.querySelectorAll('#cells [aria-sort]').length") == 1


def test_a_row_unfolds_by_keyboard(shown: browser.Page) -> None:
    shown.run("document.querySelector('.unfold').focus()")
    assert shown.run("document.activeElement.ariaExpanded") == "false"
    more = "document.getElementById(document.activeElement.getAttribute('aria-controls'))"
    assert shown.run(f"{more}.offsetParent === null")
    shown.press("Enter", 13, "\r")
    assert shown.run("document.activeElement.ariaExpanded") == "true"
    assert shown.run(f"{more}.offsetParent !== null")
    assert "nearcall-lab reproduce " in shown.run(f"{more}.querySelector('code').textContent")
    link = f"{more}.querySelector('a[download]')"
    assert shown.run(f"{link}.download").endswith(".hlog")
    assert shown.run(f"decodeURIComponent({link}.href)").startswith("data:text/plain;charset=utf-8,#[Histogram log")
    shown.press("Enter", 13, "\r")
    assert shown.run(f"{more}.offsetParent === null")


def test_copying_the_command(shown: browser.Page) -> None:
    shown.run("document.querySelector('.unfold').click()")
    shown.run("document.querySelector('.copy').click()")
    shown.until("document.querySelector('.copy').textContent !== 'Copy'")
    said = shown.run("document.querySelector('.copy').textContent")
    assert said in ("Copied", "Selected: press Ctrl-C")
    if said != "Copied":
        assert shown.run("getSelection().toString()").startswith("nearcall-lab reproduce ")


def test_choosing_a_chart(shown: browser.Page) -> None:
    visible = "[...document.querySelectorAll('#spectrum figure')].filter(f => f.offsetParent !== null)"
    assert shown.run(f"{visible}.length") == 1
    first = shown.run(f"{visible}[0].querySelector('figcaption').textContent")
    shown.run(
        "(() => { const s = document.querySelector('#spectrum select'); s.selectedIndex = 2; "
        "s.dispatchEvent(new Event('change')); })()"
    )
    assert shown.run(f"{visible}.length") == 1
    assert shown.run(f"{visible}[0].querySelector('figcaption').textContent") != first


def test_charts_by_keyboard_and_pointer(shown: browser.Page) -> None:
    shown.run("document.querySelector('#spectrum .chart').focus()")
    assert shown.run("document.getElementById('tip').hidden")
    seen = []
    for _ in range(3):
        shown.press("ArrowDown", 40)
        seen.append(shown.run("document.getElementById('tip').textContent"))
        assert shown.run("document.querySelectorAll('.series.on').length") == 1
    assert len(set(seen)) == 3
    assert all(": p50 " in text for text in seen)
    shown.press("Escape", 27)
    assert shown.run("document.getElementById('tip').hidden")
    box = shown.run(
        "(() => { const l = document.querySelector('#cpu .chart .label'); l.scrollIntoView({behavior: 'instant', "
        "block: 'center'}); const b = l.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    shown.ask("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    shown.until("!document.getElementById('tip').hidden")
    assert "per call, client" in shown.run("document.getElementById('tip').textContent")


def test_names_and_roles_for_who_cannot_see_it(shown: browser.Page) -> None:
    nodes = shown.ask("Accessibility.getFullAXTree")["nodes"]
    found = {
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
    }
    roles = {role for role, _ in found}
    assert {"table", "rowheader", "columnheader", "navigation", "main", "search", "figure"} <= roles
    for role in ("button", "combobox", "searchbox", "link", "table", "region"):
        assert all(name for kind, name in found if kind == role), role
    levels = shown.run(
        "[...document.querySelectorAll('h1, h2, h3, h4, [role=heading]')].filter(h => h.offsetParent)"
        ".map(h => +(h.ariaLevel || h.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def _contrast(first: str, second: str) -> str:
    """Of two colours, as the guidelines for accessible content define it; a script."""
    return f"""(() => {{ const light = c => {{ const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
        .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; }};
        const [a, b] = [light({first}), light({second})].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); }})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(shown: browser.Page, scheme: str, file: Path, tmp_path: Path) -> None:
    shown.look(scheme)
    shown.open(file)
    page_colour = "getComputedStyle(document.body).backgroundColor"
    assert shown.run(_contrast(page_colour, "'rgb(255, 255, 255)'")) > 10 if scheme == "dark" else True
    card = "getComputedStyle(document.querySelector('.card')).backgroundColor"
    for what in (
        ".card .who",
        ".card span",
        ".flags li",
        ".flags h3",
        "thead button",
        ".caveat",
        "nav a",
        "td.why",
        "td",
    ):
        ink = f"getComputedStyle(document.querySelector('{what}')).color"
        assert shown.run(_contrast(card, ink)) >= 4.5, what
    families = shown.run(
        "[...new Set([...document.querySelectorAll('.series .label')].map(l => getComputedStyle(l).fill))]"
    )
    assert len(families) == 7
    for colour in families:
        assert shown.run(_contrast(card, f"'{colour}'")) >= 4.5, colour
    before = shown.run(page_colour)
    shown.run("document.getElementById('scheme').click()")
    assert shown.run(page_colour) != before
    shown.run("document.getElementById('scheme').click()")
    assert shown.run(page_colour) == before
    assert len(shown.screenshot(tmp_path / f"{scheme}.png")) > 50_000


@pytest.mark.parametrize("width", [1440, 900, 390])
def test_no_width_scrolls_sideways(shown: browser.Page, width: int, file: Path, tmp_path: Path) -> None:
    shown.look("light", width)
    shown.open(file)
    shown.run("for (const d of document.querySelectorAll('details')) d.open = true")
    assert shown.run("document.documentElement.scrollWidth") <= width
    assert shown.run("document.body.scrollWidth") <= width
    assert len(shown.screenshot(tmp_path / f"{width}.png", whole=True)) > 50_000


def test_no_heading_is_cut_off_on_a_desk(shown: browser.Page) -> None:
    region = "document.getElementById('cells').closest('.scroll')"
    assert shown.run(f"{region}.scrollWidth - {region}.clientWidth") == 0


def test_a_decision(shown: browser.Page) -> None:
    lines = "[...document.querySelectorAll('#answers tbody tr')].filter(r => r.offsetParent !== null)"
    said = "document.querySelector('#asked output').textContent"

    def ask(**wanted: object) -> dict[str, str]:
        for what, value in wanted.items():
            shown.run(
                f"""(() => {{ const field = document.querySelector('#asked [data-asks={what}]');
                field.value = '{value}'; field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"""
            )
        found = shown.run(f"{lines}.map(r => [r.dataset.m, r.querySelector('.verdict').textContent])")
        return dict(found)

    everybody = ask(work="1 KB echo", clients=1, rate=0, cpus=2)
    assert next(iter(everybody)) == "quick-shm"
    assert set(everybody.values()) == {"yes", "yes, polls without pause"}
    assert shown.run(said) == f"{len(everybody)} of {len(everybody)} will do"
    fast = ask(rate=20_000)
    assert fast["quick-shm"] == "yes"
    assert fast["web"] == "no: too few calls per second"
    assert list(fast).index("web") > list(fast).index("quick-shm")
    measured = f"{lines}.find(r => r.dataset.m === 'quick-shm').cells[7].textContent"
    assert shown.run(measured) == "20000/s"
    ask(rate=600)
    assert shown.run(measured) == "2000/s"
    assert ask(rate=600, cpus=0.5)["ring"].startswith("no: too few CPUs")
    assert ask(clients=16, rate=1_000, cpus=2)["socket"] == "yes"


def test_without_scripts_everything_is_there(shown: browser.Page, file: Path) -> None:
    shown.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        shown.open(file)
        assert shown.run(f"{_VISIBLE}.length") == 99
        assert shown.run("[...document.querySelectorAll('figure')].every(f => f.offsetParent !== null)")
        assert shown.run("document.querySelector('.more .reproduce').offsetParent !== null")
        assert shown.run("document.getElementById('filters').offsetParent === null")
    finally:
        shown.ask("Emulation.setScriptExecutionDisabled", value=False)
