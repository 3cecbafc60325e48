"""The page of a profile, in a real browser, from a file, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from nearcall.profile import render
from nearcall.profile.reading import read
from nearcall.profile.recorder import Recorder
from nearcall.profile.summary import summarize

import browser

_PROGRAM = browser.find()

pytestmark = [
    pytest.mark.skipif(
        _PROGRAM is None, reason="no browser here: apt-get install chromium, or name one in NEARCALL_LAB_BROWSER"
    ),
    pytest.mark.timeout(180),
]

_MS = 1_000_000
_HOSTILE = "<script>hurt = 1</script><b>bold</b>"


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Page]:
    assert _PROGRAM is not None
    with browser.launched(_PROGRAM) as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a made-up program: a loop, two calls at once, a failure, a name that is markup."""
    folder = tmp_path_factory.mktemp("profile")
    recorder = Recorder(str(folder))

    def write(at: float, took: float, name: str, library: str = "nearcall", error: Exception | None = None) -> None:
        call = recorder.begin(recorder.name(library, "call", name), depth=1)
        assert call is not None
        call.leave()
        call.begun = int(at * _MS) + 1
        recorder.write(call, call.begun + int(took * _MS), 0 if error is None else recorder.error(error))

    def loop() -> None:
        for number in range(50):
            write(2 * number, 1, "Basics.add")

    loop()
    write(100, 50, "GET http://host/", "requests")
    write(110, 20, "GET http://host/", "requests")
    write(170, 10, _HOSTILE, "rpyc", ValueError())
    recorder.close()
    profile = summarize(read(folder), command=["program.py", "--x"], started=0.0, begun=0, ended=200 * _MS, status=0)
    for process in profile.processes:
        process.took, process.waiting = 200 * _MS, 0.5
    path = folder / "profile.html"
    path.write_text(render(profile), encoding="utf-8")
    return path


@pytest.fixture
def shown(tab: browser.Page, file: Path) -> Iterator[browser.Page]:
    with browser.shown(tab, file) as page_:
        yield page_


def test_what_it_says(shown: browser.Page) -> None:
    assert shown.run("document.title") == "program.py --x · profile"
    assert shown.run("document.querySelector('h1').textContent") == "program.py --x"
    rules = shown.run("[...document.querySelectorAll('.card')].map(card => card.dataset.rule)")
    assert "failures" in rules
    names = shown.run(
        "[...document.querySelectorAll('#table tbody tr')].map(row => row.cells[1].firstChild.nextSibling.data.trim())"
    )
    assert _HOSTILE in names
    assert len(names) == 3


def test_headings_sort(shown: browser.Page) -> None:
    button = "[...document.querySelectorAll('#table thead button')].find(b => b.textContent === 'calls')"
    values = "[...document.querySelectorAll('#table tbody tr')].map(row => +row.cells[2].dataset.value)"
    shown.run(f"{button}.click()")
    assert shown.run(values) == [50, 2, 1]
    assert shown.run(f"{button}.closest('th').ariaSort") == "descending"
    shown.run(f"{button}.click()")
    assert shown.run(values) == [1, 2, 50]


def test_the_flame_picture_widens(shown: browser.Page) -> None:
    bars = "[...document.querySelectorAll('#picture g')]"
    width = f"+{bars}.find(bar => bar.dataset.label === 'Basics.add').querySelector('rect').getAttribute('width')"
    before = shown.run(width)
    # 50 of the 130 milliseconds that were waited.
    assert before == pytest.approx(1200 * 50 / 130, rel=0.01)
    click = "dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    shown.run(f"{bars}.find(bar => bar.dataset.label === 'Basics.add').{click}")
    assert shown.run(width) == pytest.approx(1200, rel=0.01)
    shown.run("document.getElementById('picture').focus()")
    shown.press("Escape", 27)
    assert shown.run(width) == pytest.approx(before)


def test_the_timeline_zooms_and_tells(shown: browser.Page) -> None:
    painted = "(() => { const c = document.getElementById('canvas'); return c.toDataURL().length + c.toDataURL(); })()"
    whole = shown.run(painted)
    shown.run("document.getElementById('canvas').focus()")
    shown.press("+", 187, "+")
    assert shown.run(painted) != whole
    shown.press("0", 48, "0")
    assert shown.run(painted) == whole
    box = SimpleNamespace(
        **shown.run(
            "(() => { const c = document.getElementById('canvas'); c.scrollIntoView({ block: 'center' }); "
            "const b = c.getBoundingClientRect(); return { x: b.x, y: b.y, width: b.width }; })()"
        )
    )
    # The second row is the request that was made while another was under way.
    shown.ask(
        "Input.dispatchMouseEvent", type="mouseMoved", x=box.x + box.width * 120 / 200, y=box.y + 22 + 16 + 18 + 5
    )
    shown.until("!document.getElementById('tip').hidden")
    assert "GET http://host/: 20 ms" in shown.run("document.getElementById('tip').textContent")


@pytest.mark.parametrize("width", [1300, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_scrolls_sideways(shown: browser.Page, file: Path, scheme: str, width: int, tmp_path: Path) -> None:
    shown.look(scheme, width)
    shown.open(file)
    assert shown.run("document.documentElement.scrollWidth") <= width
    assert len(shown.screenshot(tmp_path / "page.png", whole=True)) > 20_000


def test_without_scripts_all_but_the_timeline_is_there(shown: browser.Page, file: Path) -> None:
    shown.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        shown.open(file)
        assert shown.run("document.querySelectorAll('#table tbody tr').length") == 3
        assert shown.run("document.querySelector('#picture g title').textContent").startswith("all: 130 ms")
        assert shown.run("document.querySelector('noscript') !== null")
    finally:
        shown.ask("Emulation.setScriptExecutionDisabled", value=False)
