"""Systems that lack a layer: it is named, or an error if the policy requires it. Nothing is silently left out."""

from __future__ import annotations

import pytest

from .confined import run, run_free

LANDLOCK = ["files", "tcp", "signals", "abstract_sockets"]


def test_without_landlock(user: str) -> None:
    done = run("result = 1", {"required": []}, user=user, lacking=["landlock_create_ruleset"])
    assert done.result == 1
    for name in LANDLOCK:
        assert done.layers[name][0] == "not_available", name
    assert "no Landlock" in done.layers["files"][1]


def test_without_landlock_where_it_is_required(user: str) -> None:
    done = run("result = 1", user=user, lacking=["landlock_create_ruleset"])
    assert done.result is None
    assert done.sandbox_error is not None
    assert "files: this kernel has no Landlock" in done.sandbox_error


def test_without_seccomp(user: str) -> None:
    # The call is as the kernel's own filter hides it from this process.
    done = run("result = 1", user=user, lacking=["seccomp"])
    assert done.result is None
    assert done.sandbox_error is not None
    assert "system_calls" in done.sandbox_error
    done = run("result = 1", {"required": []}, user=user, lacking=["seccomp"])
    assert done.result == 1
    assert done.layers["system_calls"][0] == "not_available"


def test_without_namespaces(user: str) -> None:
    done = run("result = 1", user=user, lacking=["unshare"])
    assert done.result == 1
    assert done.layers["namespaces"][0] == done.layers["proc"][0] == "not_available"
    done = run("result = 1", {"required": ["namespaces"]}, user=user, lacking=["unshare"])
    assert "namespaces" in (done.sandbox_error or "")


@pytest.mark.parametrize("lacking", ["landlock_create_ruleset", "unshare"])
def test_the_other_layers_hold_alone(lacking: str, user: str) -> None:
    """No layer is trusted alone."""
    policy = {"required": ["system_calls"]}
    for code in ("os.kill(1, 0)", "import socket; socket.socket()", "os.chroot('/')", "os.chmod('/tmp', 0o777)"):
        run(code, policy, user=user, lacking=[lacking]).refused()
    run("call(N['ptrace'], 0, 0, 0, 0)", policy, user=user, lacking=[lacking]).killed("ptrace")


def test_several_threads() -> None:
    """The others would stay free. The process is as it was."""
    code = """
        import threading
        from nearcall.sandbox import Policy, SandboxError, confine
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        thread.start()
        try:
            confine(Policy())
        except SandboxError as error:
            result = str(error), open("/etc/passwd").read() != "", "PATH" in os.environ
        stop.set()
        thread.join()"""
    done = run_free(code)
    assert done.result[0].startswith("this process has 2 threads")
    assert done.result[1:] == [True, True]


def test_a_path_that_does_not_exist() -> None:
    done = run("result = 1", {"read": ["/does/not/exist"]})
    assert "/does/not/exist" in (done.sandbox_error or "")


def test_twice(user: str) -> None:
    """A second policy can only take away more. Most of what the first one needed is gone by then, and it says so."""
    code = """
        from nearcall.sandbox import Policy, SandboxError, confine
        try:
            confine(Policy())
        except SandboxError as error:
            result = str(error)"""
    done = run(code, user=user)
    assert "/proc/self/task" in done.result, done
