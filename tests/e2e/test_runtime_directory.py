"""Where the sockets of ``shm://`` are, if server and client have other variables."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearcall


@nearcall.service
class Hello:
    def hello(self) -> str:
        return "hello"


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, as those of sockets have to be."""
    with tempfile.TemporaryDirectory(prefix="nc-") as name:
        yield Path(name)


def test_one_variable_goes_before_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("NEARCALL_RUNTIME_DIR", str(folder / "mine"))
    with nearcall.Server(Hello(), f"shm://named{key}"):
        assert (folder / "mine" / f"named{key}.sock").is_socket()
        assert stat.S_IMODE((folder / "mine").stat().st_mode) == 0o700
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        with nearcall.connect(f"shm://named{key}", Hello) as hello:
            assert hello.hello() == "hello"


def test_an_error_names_both_places(folder: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    there = Path(os.environ["XDG_RUNTIME_DIR"], "nearcall", f"elsewhere{key}.sock")
    with nearcall.Server(Hello(), f"shm://elsewhere{key}"):
        monkeypatch.setenv("NEARCALL_RUNTIME_DIR", str(folder / "mine"))
        with pytest.raises(nearcall.Unavailable) as caught:
            nearcall.connect(f"shm://elsewhere{key}", Hello)
    message = str(caught.value)
    assert f"there is no {folder}/mine/elsewhere{key}.sock" in message
    assert f"there is {there}: set NEARCALL_RUNTIME_DIR to the same directory for server and clients" in message


def test_where_there_is_none_at_all(folder: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("NEARCALL_RUNTIME_DIR", str(folder / "mine"))
    with pytest.raises(nearcall.Unavailable, match="start the server first"):
        nearcall.connect(f"shm://nowhere{key}", Hello)


def test_a_directory_that_others_may_enter_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    folder.chmod(0o755)
    monkeypatch.setenv("NEARCALL_RUNTIME_DIR", str(folder))
    with pytest.raises(OSError, match="nobody else may enter"):
        nearcall.Server(Hello(), f"shm://open{key}").start()
