"""A page in a real browser calls: `examples/browser`, in Chromium without a window."""

from __future__ import annotations

import functools
import http.server
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearcall

from .chromium import Browser, find

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/browser"
BROWSER = find()

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no browser here: `make browser` installs one, NEARCALL_LAB_BROWSER names one"
)


class Files(http.server.SimpleHTTPRequestHandler):
    """The page's files, without a line for each request."""

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def origin() -> Iterator[str]:
    """Where the page is."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=EXAMPLE)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


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
