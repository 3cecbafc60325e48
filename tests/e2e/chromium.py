"""Chromium without a window, asked over the two pipes of its DevTools protocol what a page says.

No port is opened and no package is needed: messages are JSON that end with a zero byte. See
https://chromedevtools.github.io/devtools-protocol/ for the methods.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 50.0
"""Seconds after which the browser has failed."""


def find() -> str | None:
    """The browser of this machine, if there is one; ``NEARCALL_LAB_BROWSER`` names another."""
    return os.environ.get("NEARCALL_LAB_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One, whose files are in ``folder``; use it in a ``with`` statement."""

    def __init__(self, program: str, folder: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # It reads from descriptor 3 and writes to 4.
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *flags, "--remote-debugging-pipe"],
            pass_fds=(to_browser, from_browser),
            env={**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._end = time.monotonic() + PATIENCE
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a method of the protocol: its result or its error."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._read], [], [], max(0.0, self._end - time.monotonic()))
                assert ready, f"the browser does not answer {method}"
                more = os.read(self._read, 1 << 20)
                assert more, f"the browser ended before it answered {method}"
                self._buffer += more
            text, _, self._buffer = self._buffer.partition(b"\0")
            answer: dict[str, Any] = json.loads(text)
            if answer.get("id") == number:
                result: dict[str, Any] = answer.get("result", answer)
                return result

    def value(self, url: str, expression: str) -> Any:
        """What a page's expression is as soon as that is not null."""
        target = self.ask("Target.createTarget", url=url)["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return self.later(expression)

    def later(self, expression: str) -> Any:
        """What an expression of the page that is open is as soon as that is not null."""
        while True:
            # While the page is being opened this fails, or is asked of an empty page.
            answer = self.ask("Runtime.evaluate", expression=expression)
            found = answer.get("result", {}).get("value")
            if found is not None:
                return found
            assert time.monotonic() < self._end, answer
            time.sleep(0.02)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Files(http.server.SimpleHTTPRequestHandler):
    """A page's files, without a line for each request."""

    def log_message(self, format: str, *args: object) -> None: ...


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Where the files of a folder are served."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
