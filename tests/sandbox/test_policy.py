"""Policies with mistakes, what they say in plain English, and what a host makes of a process's last words."""

from __future__ import annotations

import dataclasses
import json
import pickle
import signal
from typing import Any

import pytest

from nearcall.sandbox import LAYERS, Layer, Policy, Report, SandboxError, available, confine, explain, violation


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"read": ["relative/path"]}, "read names 'relative/path': write the whole path"),
        ({"write": ["~/mine"]}, "write names '~/mine'"),
        ({"proc": ["self/mem"]}, "proc names 'self/mem'"),
        ({"proc": ["../etc/passwd"]}, "proc names"),
        ({"required": ["seccomp"]}, "required names 'seccomp'"),
        ({"abstract_sockets": True}, "unix_sockets"),
    ],
)
def test_contradictions(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(SandboxError, match=named):
        Policy(**fields)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"read": "/usr"}, "read must be a tuple"),
        ({"read": [b"/usr"]}, "read must hold paths as text"),
        ({"read": ["/usr\0/etc"]}, "read must hold paths"),
        ({"read": [5]}, "PathLike"),
        ({"network": "some"}, "network must be"),
        ({"network": [70000]}, "network must hold numbers from 0 to 65535"),
        ({"network": [True]}, "network must hold numbers"),
        ({"memory": -1}, "memory must be a whole number"),
        ({"memory": "1G"}, "memory must be a whole number"),
        ({"tasks": 0}, "tasks must be a whole number"),
        ({"cpu_share": 0}, "cpu_share must be a number"),
        ({"cpu_share": float("nan")}, "cpu_share must be a number"),
        ({"signals": "no"}, "signals must be True or False"),
        ({"environment": "PATH"}, "environment must be a tuple"),
        ({"descriptors": [-1]}, "descriptors must hold numbers"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_mistakes(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(TypeError, match=named):
        Policy(**fields)


def test_values_are_made_plain(tmp_path: Any) -> None:
    policy = Policy(read=[tmp_path], network=[80, 443])  # type: ignore[arg-type]
    assert policy.read == (str(tmp_path),)
    assert policy.network == (80, 443)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert hash(policy) == hash(Policy(read=(tmp_path,), network=(80, 443)))


def test_only_policies_confine() -> None:
    for function in (confine, explain):
        with pytest.raises(TypeError, match=r"nearcall\.sandbox\.Policy"):
            function({"read": []})  # type: ignore[arg-type]


def test_what_is_available() -> None:
    """Found out in another process: this one is as before."""
    report = available()
    assert [layer.name for layer in report.layers] == list(LAYERS)
    assert report.provides("no_new_privs")
    assert all(layer.detail for layer in report.layers)
    assert json.loads(json.dumps(dataclasses.asdict(report)))["layers"][0]["name"] == LAYERS[0]
    assert str(report).count("\n") == len(LAYERS) - 1
    with open("/etc/passwd", encoding="utf-8") as file:
        assert file.read()


def test_missing_layers_of_a_report() -> None:
    layers = [Layer("files", "refused", "no"), Layer("tcp", "not_asked", "all"), Layer("limits", "provided", "yes")]
    report = Report(tuple(layers))
    assert [layer.name for layer in report.missing()] == ["files"]
    assert not report.provides("files")


def test_a_policy_in_plain_english() -> None:
    nothing = explain(Policy())
    for line in ("use a network", "start programs", "make processes", "look into other processes"):
        assert f"- {line}" in nothing.partition("It may not:")[2], nothing
    much = explain(
        Policy(
            read=("/srv/in",),
            write=("/srv/out",),
            execute=("/usr/bin/espeak-ng",),
            subprocesses=True,
            network=(443,),
            unix_sockets=True,
            abstract_sockets=True,
            signals=True,
            proc=("meminfo",),
            cpu_share=0.5,
            memory=None,
        )
    )
    may, _, may_not = much.partition("It may not:")
    for line in (
        "read /srv/in",
        "read and write /srv/out",
        "start /usr/bin/espeak-ng",
        "connect by TCP to port 443 of any host",
        "use Unix sockets, also abstract ones of others",
        "signal other processes of this user",
        "make processes",
        "read /proc/meminfo",
        "use up to 0.5 processors at a time",
        "use any number of bytes of memory",
    ):
        assert f"- {line}\n" in may, much
    assert "start programs" not in may_not
    assert "use TCP and UDP" in explain(Policy(network="all"))


def test_missing_layers_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    from nearcall.sandbox import explaining

    report = Report((Layer("files", "not_available", "this kernel is old"), Layer("proc", "refused", "no mounts")))
    monkeypatch.setattr(explaining, "available", lambda: report)
    said = explain(Policy())
    assert "files: this kernel is old; and so it is not started" in said
    assert "proc: no mounts; and it is started without" in said


@pytest.mark.parametrize(
    ("returncode", "output", "said"),
    [
        (0, "", None),
        (1, "Traceback\nPermissionError", None),
        (None, "nearcall sandbox: refused mount\n", "the sandbox refused mount"),
        (
            0,
            "x\nnearcall sandbox: refused mount\nnearcall sandbox: refused chroot\n",
            "the sandbox refused mount, chroot",
        ),
        (-signal.SIGSYS, "nearcall sandbox: killed for ptrace\n", "the sandbox ended it for ptrace"),
        (-signal.SIGSYS, "", "the sandbox ended it for a system call for another kind of processor"),
        (-signal.SIGXCPU, "", "it used up its processor time"),
        (0, "nearcall sandbox: refused system call 999\n", "the sandbox refused system call 999"),
        (0, "nearcall sandbox: refused \x1b[31m\n", None),
        (0, "I say: nearcall sandbox: refused mount\n", None),
    ],
)
def test_what_a_host_is_told(returncode: int | None, output: str, said: str | None) -> None:
    assert violation(returncode, output) == said


def test_what_a_process_invents_is_short() -> None:
    output = "".join(f"nearcall sandbox: refused invented_{number}\n" for number in range(100_000))
    assert len(violation(0, output) or "") < 1000
