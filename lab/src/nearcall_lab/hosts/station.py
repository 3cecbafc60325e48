"""What the lab runs first on another machine: it keeps what servers need there, for as long as a run lasts.

This file is sent as it is, before anything of the lab is there: it imports the standard library only, and can be read
by Python 3.8, to say that it is too old. It gets requests on its standard input and answers on its standard output, in
the lines of `nearcall_lab.workers.protocol`. It ends, with what it has started, when its input ends or is silent for
longer than the lease.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib.metadata
import importlib.util
import io
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import venv
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import IO, Any, NoReturn

MARK = b"nearcall-lab station 1\n"
"""The first line of its output: what came before was written by somebody's shell."""
_COMPLETE = "complete"
_LOOK_S = 0.1


class Gone(Exception):
    """The lab has ended, or is silent, or the connection broke."""


class Refused(Exception):
    """A step failed: its name, what happened, and what to do."""


class Input:
    """Requests, with their blobs."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.lease_s = 60.0
        self._heard = time.monotonic()

    def request(self) -> tuple[dict[str, Any], bytes]:
        """The next one. Raises `Gone`."""
        while True:
            while b"\n" not in self._buffer:
                self.listen(self.lease_s)
            line, _, rest = bytes(self._buffer).partition(b"\n")
            message = json.loads(line)
            size = int(message.get("blob", 0))
            self._buffer[:] = rest
            while len(self._buffer) < size:
                self.listen(self.lease_s)
            blob = bytes(self._buffer[:size])
            del self._buffer[:size]
            if message["do"] != "beat":
                return message, blob

    def listen(self, seconds: float) -> None:
        """Take in what has come, and wait so long for something. Raises `Gone`."""
        if select.select([0], [], [], seconds)[0]:
            data = os.read(0, 1 << 20)
            if not data:
                raise Gone
            self._heard = time.monotonic()
            self._buffer += data
        elif time.monotonic() - self._heard > self.lease_s:
            raise Gone


def answer(message: dict[str, Any]) -> None:
    """Raises `Gone`."""
    data = memoryview(json.dumps(message).encode() + b"\n")
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        raise Gone from None


def look() -> dict[str, Any]:
    """What the lab has to know before it sends anything."""
    # "client address, its port, server address, its port"; see ssh(1).
    connection = os.environ.get("SSH_CONNECTION", "").split()
    return {
        "version": list(sys.version_info[:3]),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "address": connection[2] if len(connection) == 4 else "",
    }


def keep(request: dict[str, Any], files: bytes, lab: Input) -> dict[str, Any]:
    """Bring the lab's files and the requirements here, if they are not yet. Raises `Refused` and `Gone`."""
    base = Path(os.path.expanduser(request["directory"] or "~/.cache/nearcall-lab"))
    place = base / request["digest"]
    missing = [each for each in request["requirements"] if not is_here(each)]
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Held for as long as this process lives.
        lock = (base / f"{request['digest']}.lock").open("a")
    except OSError as error:
        raise refused("copy", error, base) from None
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, (fcntl.LOCK_SH if (place / _COMPLETE).exists() else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            break
        lab.listen(_LOOK_S)
    made = not (place / _COMPLETE).exists()
    if made:
        forget_others(base, request["digest"])
        shutil.rmtree(place, ignore_errors=True)
        try:
            make(place, files, missing, lab)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        fcntl.flock(lock, fcntl.LOCK_SH)
    held.append(lock)
    python = str(place / "venv" / "bin" / "python") if missing else sys.executable
    return {"python": python, "source": str(place / "source"), "made": made}


held: list[IO[str]] = []
"""Locks of what this process uses."""


def is_here(requirement: str) -> bool:
    """Whether this Python has a distribution in that version: ``name==version``."""
    name, _, version = requirement.partition("==")
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False


def forget_others(base: Path, digest: str) -> None:
    """Remove what other versions of the lab left, unless it is in use."""
    for file in base.glob("*.lock"):
        if file.stem == digest:
            continue
        with contextlib.suppress(OSError), file.open("a") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(base / file.stem, ignore_errors=True)
            file.unlink()


def make(place: Path, files: bytes, missing: list[str], lab: Input) -> None:
    """Unpack the files and install what is missing. Raises `Refused` and `Gone`."""
    try:
        place.mkdir(mode=0o700)
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(place / "source")
    except (OSError, tarfile.TarError) as error:
        raise refused("copy", error, place.parent) from None
    if missing:
        try:
            venv.create(place / "venv", with_pip=False)
        except (OSError, subprocess.CalledProcessError) as error:
            raise refused("install", error, place.parent) from None
        python = str(place / "venv" / "bin" / "python")
        pip = [sys.executable, "-m", "pip", "--python", python]
        if importlib.util.find_spec("pip") is None:
            if importlib.util.find_spec("ensurepip") is None:
                what = f"{sys.executable} has no pip, and {', '.join(missing)} must be installed"
                raise Refused("install", what, "install python3-venv there, or name a Python that has them, ?python=…")
            run([python, "-m", "ensurepip"], place, lab)
            pip = [python, "-m", "pip"]
        run([*pip, "install", "-q", "--disable-pip-version-check", "--no-input", *missing], place, lab)
    try:
        (place / _COMPLETE).touch()
    except OSError as error:
        raise refused("copy", error, place.parent) from None


def run(command: list[str], place: Path, lab: Input) -> None:
    """A step of the installation, which ends at once when the lab does. Raises `Refused` and `Gone`."""
    try:
        with (place / "install.log").open("w+b") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            try:
                while process.poll() is None:
                    lab.listen(_LOOK_S)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
    except OSError as error:
        raise refused("install", error, place.parent) from None
    if process.returncode:
        errors = [line for line in said if "error" in line.lower() or "No space" in line] or said[-1:]
        what = errors[-1] if errors else f"{command[0]} ended with status {process.returncode}"
        if "No space left" in what:
            raise refused("install", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), place.parent)
        todo = "can pip reach an index there? Otherwise name a Python that has what it needs, ?python=…"
        raise Refused("install", what, todo)


def refused(step: str, error: BaseException, place: Path) -> Refused:
    """What the system refused."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    what = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    todo = f"{'make room there' if full else 'is it writable?'} or name another place, ?directory=…"
    return Refused(step, f"{place}: {what}", todo)


def interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """For signals that end a process."""
    raise Gone


def main() -> None:
    """Answer until the lab is gone."""
    for kind in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, interrupted)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lab = Input()
    try:
        os.write(1, MARK)
        while True:
            request, blob = lab.request()
            try:
                if request["do"] == "look":
                    lab.lease_s = float(request["lease_s"])
                    answer(look())
                else:
                    answer(keep(request, blob, lab))
            except Refused as reason:
                step, what, todo = reason.args
                answer({"error": what, "step": step, "todo": todo})
    except Gone:
        pass


if __name__ == "__main__":
    main()
