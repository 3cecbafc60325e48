"""A browser for tests: Chromium without a window, driven over the two pipes of its own DevTools protocol.

No port is opened and no package is needed: messages are JSON that end with a zero byte. See
https://chromedevtools.github.io/devtools-protocol/ for the methods.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LIMIT_S = 40.0


def find() -> str | None:
    """The browser of this machine, if there is one; ``NEARCALL_LAB_BROWSER`` names another."""
    named = os.environ.get("NEARCALL_LAB_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser did not do what it was asked."""


class Page:
    """One tab."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol. Raises `BrowserError`."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _LIMIT_S
        while True:
            answer = self._next(end, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self, end: float, waiting_for: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise BrowserError(f"no answer to {waiting_for} in {_LIMIT_S:.0f} s")
            more = os.read(self._read, 1 << 20)
            if not more:
                raise BrowserError(f"the browser ended before it answered {waiting_for}")
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def open(self, path: Path) -> None:
        """Show a file, and wait until it is loaded."""
        self.ask("Page.navigate", url=path.resolve().as_uri())
        self.until("document.readyState === 'complete' && location.protocol === 'file:'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page. Raises `BrowserError` if it throws."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _LIMIT_S
        while not self.run(script):
            if time.monotonic() > end:
                raise BrowserError(f"never true: {script}")
            time.sleep(0.01)

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """One key, as a keyboard sends it."""
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **shared)

    def look(self, scheme: str = "light", width: int = 1440, height: int = 900) -> None:
        """The reader's system: light or dark, how wide the window is, and no movement that a test would wait for."""
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def screenshot(self, path: Path, whole: bool = False) -> bytes:
        """A PNG of what is seen, or of the whole page."""
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        content = base64.b64decode(self.ask("Page.captureScreenshot", **options)["data"])
        path.write_bytes(content)
        return content

    def complaints(self) -> list[str]:
        """Everything that the console would show as an error or a warning."""
        self.run("1")  # what was said before this answer has arrived before it
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(str(params["args"]))
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for, besides its own file."""
        sent = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("file:", "about:"))]


@contextlib.contextmanager
def launched(program: str) -> Iterator[Page]:
    """A browser with an empty profile and one tab without network; its processes are gone afterwards."""
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="nearcall-lab-browser-", ignore_cleanup_errors=True) as profile:
        command = [
            *(program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run"),
            *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"),
            *("--disable-component-update", "--disable-extensions", "--mute-audio", "--hide-scrollbars", "--no-zygote"),
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Settings of its desktop libraries go with its profile.
            env={**os.environ, "XDG_RUNTIME_DIR": profile},
            close_fds=False,
            start_new_session=True,
            preexec_fn=_pipes_as(3, to_browser[0], 4, from_browser[1]),
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Page(to_browser[1], from_browser[0])
        finally:
            os.close(to_browser[1])
            os.close(from_browser[0])
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _pipes_as(first: int, read: int, second: int, write: int) -> Callable[[], None]:
    """The protocol's pipes are descriptors 3 and 4; no thread runs in the child, so that this is safe before exec."""

    def place() -> None:
        # Out of the way first: one of them may have the number that the other needs. To free numbers, since subprocess
        # has a descriptor of its own here.
        high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 60) for each in (read, write)]
        os.dup2(high[0], first)
        os.dup2(high[1], second)

    return place


@contextlib.contextmanager
def shown(tab: Page, file: Path) -> Iterator[Page]:
    """A page of the lab's, freshly opened; whatever a test does, the console stays silent and nothing is asked for."""
    tab.events.clear()
    tab.look()
    tab.open(file)
    yield tab
    assert tab.complaints() == []
    assert tab.requests() == []
    assert tab.run("typeof window.hurt") == "undefined"
