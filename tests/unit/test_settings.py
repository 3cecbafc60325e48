"""What ``nearcall serve`` is told by flags, by the environment and by a file: which counts, and what is refused."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall.cli import UsageError
from nearcall.cli.settings import SETTINGS, Settings, add_setting_flags, read_settings

Read = Callable[..., Settings]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Settings from flags, from the text of a file in this directory, and from variables."""
    monkeypatch.chdir(tmp_path)

    def read(*flags: str, file: str | None = None, name: str = "nearcall.toml", **variables: str) -> Settings:
        if file is not None:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(file)
        parser = argparse.ArgumentParser()
        add_setting_flags(parser)
        return read_settings(parser.parse_args(flags), variables)

    return read


def test_nothing(read: Read) -> None:
    assert read() == Settings({}, {})
    assert read(OTHER="1", file="[serve]") == Settings({}, {})


def test_a_flag_goes_before_the_environment_and_that_before_the_file(read: Read) -> None:
    file = "[serve]\nworkers = 2\nmax_pending = 3\ngrace = 1\n"
    read_all = read("--workers", "4", file=file, NEARCALL_SERVE_WORKERS="3", NEARCALL_SERVE_MAX_PENDING="7")
    assert read_all.values == {"workers": 4, "max_pending": 7, "grace": 1}
    assert read_all.sources == {"max_pending": "NEARCALL_SERVE_MAX_PENDING", "grace": "nearcall.toml: serve.grace"}


def test_every_kind_from_the_file_and_from_the_environment(read: Read) -> None:
    expected = {
        "services": ["shop:Shop", "shop:Desk"],
        "urls": ["shm://shop", "unix:///a b"],
        "max_pending": 5,
        "grace": 0.5,
        "spin": "auto",
        "introspection": False,
        "compression": "gzip",
        "allow_users": ["ada", 7],
        "lifespan": "shop:lifespan",
        "interceptors": ["shop:one", "shop:two"],
    }
    from_file = read(
        file="""
        [serve]
        services = ["shop:Shop", "shop:Desk"]
        urls = ["shm://shop", "unix:///a b"]
        max_pending = 5
        grace = 0.5
        spin = "auto"
        introspection = false
        compression = "gzip"
        allow_users = ["ada", 7]
        lifespan = "shop:lifespan"
        interceptors = ["shop:one", "shop:two"]
        """
    )
    assert from_file.values == expected
    (Path.cwd() / "nearcall.toml").unlink()
    from_environment = read(
        NEARCALL_SERVE_SERVICES="shop:Shop shop:Desk",
        NEARCALL_SERVE_URLS="shm://shop 'unix:///a b'",
        NEARCALL_SERVE_MAX_PENDING="5",
        NEARCALL_SERVE_GRACE="0.5",
        NEARCALL_SERVE_SPIN="auto",
        NEARCALL_SERVE_INTROSPECTION="no",
        NEARCALL_SERVE_COMPRESSION="gzip",
        NEARCALL_SERVE_ALLOW_USERS="ada 7",
        NEARCALL_SERVE_LIFESPAN="shop:lifespan",
        NEARCALL_SERVE_INTERCEPTORS="shop:one shop:two",
    )
    assert from_environment.values == expected


def test_flags(read: Read) -> None:
    flags = ["--no-reflection", "--tracebacks", "--allow-user", "7", "--allow-user", "ada", "--spin", "0.1"]
    chosen = read(*flags, "--interceptor", "a:b", "--grace", "2", NEARCALL_SERVE_REFLECTION="yes")
    assert chosen.values == {
        "reflection": False,
        "tracebacks": True,
        "allow_users": [7, "ada"],
        "spin": 0.1,
        "interceptors": ["a:b"],
        "grace": 2.0,
    }
    with pytest.raises(UsageError, match="--spin must be a number of seconds, or \"auto\", not 'fast'"):
        read("--spin", "fast")


def test_paths_in_a_file_are_meant_from_there(read: Read, tmp_path: Path) -> None:
    file = '[serve]\ntoken_file = "tokens"\ntls_cert = "/etc/cert.pem"\ncompression = "gzip"'
    chosen = read("--config", "conf/server.toml", file=file, name="conf/server.toml", NEARCALL_SERVE_TLS_KEY="key.pem")
    assert chosen.values == {
        "token_file": "conf/tokens",
        "tls_cert": "/etc/cert.pem",
        "tls_key": "key.pem",
        "compression": "gzip",
    }


def test_which_file(read: Read) -> None:
    read(file="[serve]\nworkers = 2", name="other.toml")
    assert read(file="[serve]\nworkers = 1").values == {"workers": 1}
    assert read(NEARCALL_CONFIG="other.toml").values == {"workers": 2}
    assert read("--config", "other.toml", NEARCALL_CONFIG="nearcall.toml").values == {"workers": 2}
    assert read(NEARCALL_CONFIG="").values == {}


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("[serve", "nearcall.toml is no TOML: "),
        ("workers = 1", "nearcall.toml: 'workers' is no table of this file: settings stand in [serve]"),
        ("serve = 1", "nearcall.toml: 'serve' must be a table: write [serve]"),
        ("[server]", "nearcall.toml: 'server' is no table of this file: settings stand in [serve]"),
        ("[serve]\nworker = 1", "nearcall.toml: 'serve.worker' is no setting (did you mean 'serve.workers'?)"),
        ("[serve]\nworkers = true", "nearcall.toml: serve.workers must be a whole number, not True"),
        ('[serve]\nworkers = "4"', "nearcall.toml: serve.workers must be a whole number, not '4'"),
        ("[serve]\nworkers = 4.0", "nearcall.toml: serve.workers must be a whole number, not 4.0"),
        ('[serve]\nurls = "shm://x"', "nearcall.toml: serve.urls must be a list of texts, not 'shm://x'"),
        ("[serve]\nurls = [1]", "nearcall.toml: serve.urls must be a list of texts, not [1]"),
        ("[serve]\nallow_users = [1.5]", "nearcall.toml: serve.allow_users must be a list of names or ids, not [1.5]"),
        ("[serve]\nreflection = 0", "nearcall.toml: serve.reflection must be true or false, not 0"),
        ("[serve]\nspin = 'fast'", "nearcall.toml: serve.spin must be a number of seconds, or \"auto\", not 'fast'"),
        ("[serve]\ntls_key = 1", "nearcall.toml: serve.tls_key must be the path of a file, not 1"),
        ("[serve]\nlifespan = 1", "nearcall.toml: serve.lifespan must be MODULE:NAME, not 1"),
    ],
)
def test_mistakes_in_a_file(read: Read, file: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(file=file)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("WORKERS", "four", "NEARCALL_SERVE_WORKERS must be a whole number, not 'four'"),
        ("WORKERS", "", "NEARCALL_SERVE_WORKERS must be a whole number, not ''"),
        ("REFLECTION", "maybe", "NEARCALL_SERVE_REFLECTION must be true or false, not 'maybe'"),
        ("URLS", "'", 'NEARCALL_SERVE_URLS must be a list of texts, separated by spaces, not "\'"'),
        ("WORKRS", "1", "'NEARCALL_SERVE_WORKRS' is no setting (did you mean 'NEARCALL_SERVE_WORKERS'?)"),
    ],
)
def test_mistakes_in_the_environment(read: Read, variable: str, value: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(**{f"NEARCALL_SERVE_{variable}": value})
    assert str(caught.value) == message


def test_all_mistakes_are_named_at_once(read: Read) -> None:
    with pytest.raises(
        UsageError, match=r"serve.a' is no setting.*; .*serve.grace must be.*; NEARCALL_SERVE_SPIN must"
    ):
        read(file='[serve]\na = 1\ngrace = "x"', NEARCALL_SERVE_SPIN="x")


@pytest.mark.parametrize("config", ["missing.toml", "."])
def test_a_file_that_cannot_be_read(read: Read, config: str) -> None:
    with pytest.raises(UsageError, match=r"^(missing\.toml|\.) cannot be read: (No such file|Is a directory)"):
        read("--config", config)


def test_every_option_of_a_server_is_a_setting() -> None:
    """But for what only a test needs, what is spelt in several settings, and what a service manager passes."""
    options: dict[str, Any] = dict(signature(nearcall.Server).parameters)
    del options["services_and_urls"], options["overrides"], options["tls"], options["nats"], options["sockets"]
    of_serve = {"services", "urls", "workers", "grace", "tls_cert", "tls_key", "tls_client_ca", "token_file"}
    of_serve |= {"nats_credentials", "nats_ca"}
    of_serve |= {"register_token_file", "register_ca"}
    of_serve |= {"log_level", "access_log"}
    assert {setting.name for setting in SETTINGS} == options.keys() | of_serve
