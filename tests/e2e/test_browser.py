"""A page in a real browser calls: `examples/browser`, in Chromium without a window."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearcall

from .chromium import Browser, find, served

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/browser"
BROWSER = find()

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no browser here: `make browser` installs one, NEARCALL_LAB_BROWSER names one"
)


@pytest.fixture
def origin() -> Iterator[str]:
    """Where the page is."""
    with served(EXAMPLE) as url:
        yield url


def shown(url: str, folder: Path) -> str:
    """What the page says when it is through."""
    assert BROWSER is not None
    with Browser(BROWSER, folder) as browser:
        said: str = browser.value(url, 'document.title === "done" ? document.getElementById("out").textContent : null')
        return said.strip()


def promised() -> str:
    """What the example's page of words says that it shows."""
    found = re.search(r"```text\n(.*?)\n```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def calculator(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    sys.modules.pop("calculator", None)
    import calculator

    yield calculator.Calculator()
    sys.modules.pop("calculator", None)


def test_a_page_calls(origin: str, calculator: object, tmp_path: Path) -> None:
    with nearcall.Server(calculator, "http://127.0.0.1:0", allow_origins=[origin]) as server:
        assert shown(f"{origin}/?server={server.urls[0]}", tmp_path) == promised()


def test_a_page_from_elsewhere_may_not(origin: str, calculator: object, tmp_path: Path) -> None:
    with nearcall.Server(calculator, "http://127.0.0.1:0", allow_origins=["http://other.example"]) as server:
        assert shown(f"{origin}/?server={server.urls[0]}", tmp_path).startswith("failed:")
