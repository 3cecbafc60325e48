"""``nearcall profile``: a program that is profiled does what it does without, and its profile says what it did.

Each starts interpreters: what is tested is how they start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from nearcall.profile import Finding, Line, Profile
from nearcall.profile.model import schema

Run = Callable[..., tuple[subprocess.CompletedProcess[str], Profile]]


@pytest.fixture(scope="module")
def url(served: Callable[[str], str]) -> str:
    """One transport is enough: what is profiled is above them."""
    return served("shm")


@pytest.fixture
def write(tmp_path: Path, url: str) -> Callable[[str], Path]:
    def write(code: str) -> Path:
        script = tmp_path / "program.py"
        script.write_text(f"import nearcall, sys\nURL = {url!r}\n{textwrap.dedent(code)}", encoding="utf-8")
        return script

    return write


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "nearcall", "profile", *words]


@pytest.fixture
def profile(tmp_path: Path, write: Callable[[str], Path]) -> Run:
    def profile(
        code: str, *arguments: str, options: tuple[str, ...] = (), status: int = 0
    ) -> tuple[subprocess.CompletedProcess[str], Profile]:
        script = write(code)
        done = subprocess.run(
            command(*options, script.name, *arguments),
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        found = msgspec.json.decode((tmp_path / "nearcall-profile.json").read_bytes(), type=Profile, strict=True)
        assert (tmp_path / "nearcall-profile.html").read_text(encoding="utf-8").startswith("<!doctype html>")
        assert found.status == status
        return done, found

    return profile


def lines_of(found: Profile, name: str, kind: str = "call") -> list[Line]:
    return [line for line in found.lines if line.name == name and line.kind == kind]


def line_of(found: Profile, name: str, kind: str = "call") -> Line:
    (line,) = lines_of(found, name, kind)
    return line


def finding_of(found: Profile, rule: str) -> Finding:
    (finding,) = [finding for finding in found.findings if finding.rule == rule]
    return finding


CONNECT = "with nearcall.connect(URL) as server:\n"


def test_lines_and_what_is_found(profile: Run) -> None:
    done, found = profile(
        """
        def each(server):
            for number in range(300):
                server.add(number, b=1)

        with nearcall.connect(URL).service.Basics and nearcall.connect(URL) as server:
            each(server.Basics)
            for _ in range(300):
                server.Basics.echo_text("same")
            server.Basics.nothing()
            try:
                server.Errors.raised("ValueError")
            except nearcall.RpcError:
                print("failed")
        """
    )
    assert done.stdout == "failed\n"
    line = line_of(found, "Basics.add")
    assert (Path(line.file).name, line.line, line.function) == ("program.py", 6, "each")
    assert (line.library, line.calls, line.at_once, line.inside) == ("nearcall", 300, 1, 0)
    assert 0 < line.fastest <= line.median <= line.p99 <= line.slowest <= line.waited
    assert line.sent is not None
    assert 300 * 2 <= line.sent <= 300 * 6
    assert 0 < line.share <= 1
    (failure,) = line_of(found, "Errors.raised").failures
    assert (failure.error, failure.calls) == ("Unknown", 1)
    failed = finding_of(found, "failures")
    assert failed.name == "Errors.raised"
    rules = {(finding.rule, finding.name) for finding in found.findings}
    assert not ({("identical", "Basics.add"), ("loop", "Basics.echo_text")} & rules)
    (process,) = found.processes
    assert process.calls == process.recorded == sum(line.calls for line in found.lines)
    assert process.lanes == ["MainThread"]
    assert "program.py:6" in done.stderr
    assert "remote calls in" in done.stderr
    # The flame picture leads from the program's first line to the call.
    (module,) = [node for node in found.flame.children if any(child.label == "each" for child in node.children)]
    assert module.label == "<module>"
    assert found.flame.waited == sum(node.waited for node in found.flame.children)


def test_a_loop_and_equal_calls_are_found(profile: Run) -> None:
    _, found = profile(
        """
        with nearcall.connect(URL) as server:
            for number in range(3000):
                server.Basics.add(number)
            for number in range(3000):
                server.Basics.echo_text("same")
        """
    )
    loop, identical = finding_of(found, "loop"), finding_of(found, "identical")
    assert (loop.name, loop.calls, loop.line) == ("Basics.add", 3000, 6)
    assert "nearcall.start" in loop.advice
    assert (identical.name, identical.calls, identical.line) == ("Basics.echo_text", 3000, 8)
    usual = line_of(found, "Basics.add").median
    assert loop.saves == 2999 * usual


def test_threads_tasks_streams_and_started_calls(profile: Run) -> None:
    done, found = profile(
        """
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        def unused():
            pass

        with nearcall.connect(URL) as server:
            with ThreadPoolExecutor(3, thread_name_prefix="helper") as pool:
                print(sum(pool.map(lambda n: server.Basics.add(n, 1), range(30))))
            print(list(server.Streams.count(7)))
            started = [nearcall.start(server.Basics.add, n, n) for n in range(5)]
            print([each.result() for each in started])
            print(server.Streams.total(iter(range(4))))
            for item in server.Streams.count(1000):
                break
            del item

        async def main():
            async with nearcall.aio.connect(URL) as server:
                print(await asyncio.gather(*(server.Basics.add(n, 1) for n in range(10))))
                print([item async for item in server.Streams.count(3)])
                task = asyncio.create_task(server.Basics.add(1, 1), name="own name")
                print(await task)

        asyncio.run(main())
        """
    )
    assert done.stdout.splitlines() == [
        "465", "[0, 1, 2, 3, 4, 5, 6]", "[0, 2, 4, 6, 8]", "6", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "[0, 1, 2]", "2",
    ]  # fmt: skip
    by_line = {line.line: line for line in found.lines if line.name == "Basics.add"}
    assert by_line[12].calls == 30
    assert (by_line[14].kind, by_line[14].calls) == ("started", 5)
    assert by_line[23].calls == 10
    assert by_line[25].calls == 1
    streams = {line.line: line for line in lines_of(found, "Streams.count", "stream")}
    assert {13, 17, 24} == set(streams)
    assert not any(line.failures for line in streams.values())
    lanes = found.processes[0].lanes
    assert any(lane.startswith("helper") for lane in lanes)
    assert any(lane.startswith("MainThread: Task-") for lane in lanes)


def test_waiting_for_calls_that_were_started(profile: Run) -> None:
    """Each call is held at the server until another thread sees that it is waited for."""
    done, found = profile(
        """
        import threading

        def release(key):
            while not waits():
                pass
            server.Waiting.release(key)

        def waits():
            frame = sys._current_frames()[threading.main_thread().ident]
            return frame.f_code.co_name == "waited"  # the profiler's, which has begun a record

        def held(key):
            call = nearcall.start(server.Waiting.hold, key)
            threading.Thread(target=release, args=[key]).start()
            return call

        with nearcall.connect(URL) as server:
            first = held("a")
            print(first.result())
            print(first.result())
            second = nearcall.start(server.Waiting.hold, "b")
            try:
                second.result(timeout=0)
            except TimeoutError:
                print("late")
            threading.Thread(target=release, args=["b"]).start()
            print(second.exception())
            for each in nearcall.as_completed([held("c")]):
                print(each.result())
        """
    )
    assert done.stdout.splitlines()[2:4] == ["late", "None"]
    waits = {line.line: line for line in found.lines if line.kind == "wait"}
    assert {line: waits[line].name for line in waits} == {
        22: "Waiting.hold", 26: "Waiting.hold", 30: "Waiting.hold", 31: "nearcall.as_completed",
    }  # fmt: skip
    assert waits[22].calls == 1, "what has ended is not waited for"
    assert [failure.error for failure in waits[26].failures] == ["TimeoutError"]
    assert found.processes[0].calls == 7, "three are started, three release them, one connects; to wait is no call"


def test_processes(profile: Run) -> None:
    done, found = profile(
        """
        import multiprocessing, os, subprocess

        def call(count):
            with nearcall.connect(URL) as server:
                for number in range(count):
                    server.Basics.add(number)

        if __name__ == "__main__":
            call(2)
            for method, count in (("fork", 3), ("spawn", 4)):
                process = multiprocessing.get_context(method).Process(target=call, args=(count,))
                process.start()
                process.join()
                print(method, process.exitcode)
            code = f"import nearcall, os; nearcall.connect({URL!r}).service.Basics.nothing(); os._exit(5)"
            print(subprocess.run([sys.executable, "-c", code]).returncode)
            pid = os.fork()
            if not pid:
                call(6)
                os.kill(os.getpid(), 9)
            print(os.waitpid(pid, 0)[1])
        """
    )
    assert done.stdout.splitlines() == ["fork 0", "spawn 0", "5", "9"]
    counts = {line.process: line.calls for line in found.lines if line.name == "Basics.add"}
    assert sorted(counts.values()) == [2, 3, 4, 6]
    assert len(lines_of(found, "Basics.nothing")) == 1
    assert len(found.processes) == 5
    assert len({process.pid for process in found.processes}) == 5


def test_the_program_sees_what_it_sees_without(write: Callable[[str], Path], tmp_path: Path) -> None:
    script = write(
        """
        import os, pickle, threading, atexit

        class Own:
            pass

        atexit.register(print, "at exit")
        print(sys.argv, __name__, __file__, __spec__, sys.path[0], sys.flags.interactive)
        print(pickle.loads(pickle.dumps(Own())).__class__, sys.modules["__main__"].Own is Own)
        print(sorted(vars()), threading.active_count(), sys.stdin.read())
        print("sitecustomize" in sys.modules, [entry for entry in sys.path if "inject" in entry])
        """
    )
    plain, done = (
        subprocess.run(words, cwd=tmp_path, input="given", capture_output=True, text=True, timeout=60, check=False)
        for words in ([sys.executable, script.name, "-o", "--x", ""], command(script.name, "-o", "--x", ""))
    )
    assert plain.returncode == done.returncode == 0
    # `sitecustomize` is what has begun the recording.
    assert done.stdout.replace("True []", "False []") == plain.stdout.replace("True []", "False []")
    assert "no remote calls were seen" in done.stderr
    assert "calls by RPyC, grpcio, Pyro5, xmlrpc, requests and httpx are seen by: nearcall-lab profile" in done.stderr


def test_a_sitecustomize_of_the_machine_runs_as_ever(
    profile: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.customized = True\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{own}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    done, found = profile(
        f"{CONNECT}    server.Basics.nothing()\nprint(sys.customized, sys.modules['sitecustomize'].__file__)"
    )
    assert done.stdout == f"True {own}/sitecustomize.py\n"
    assert line_of(found, "Basics.nothing").calls == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("sys.exit(3)", 3),
        ("sys.exit('a word')", 1),
        ("sys.exit()", 0),
        ("raise ValueError('mine')", 1),
        ("import os; os._exit(7)", 7),
    ],
)
def test_ends(profile: Run, write: Callable[[str], Path], code: str, status: int) -> None:
    program = f"{CONNECT}    server.Basics.nothing()\n{code}\n"
    done, found = profile(program, status=status)
    assert line_of(found, "Basics.nothing").calls == 1
    plain = subprocess.run(
        [sys.executable, "program.py"],
        cwd=write(program).parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.startswith(plain.stderr)


# A signal that comes just before the main thread reads its input would wait for the input with it.
WAIT_FOR_A_SIGNAL = "for _ in range(6000): time.sleep(0.01)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGUSR1])
def test_a_signal_that_ends_it(write: Callable[[str], Path], tmp_path: Path, number: signal.Signals) -> None:
    script = write(
        f"""
        import os, time
        {CONNECT.strip()}
            server.Basics.nothing()
            print(os.getpid(), flush=True)
            {WAIT_FOR_A_SIGNAL}
        """
    )
    with subprocess.Popen(
        command(script.name), cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        # SIGKILL cannot be passed on.
        os.kill(pid if number == signal.SIGKILL else process.pid, number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == -number, said
    found = msgspec.json.decode((tmp_path / "nearcall-profile.json").read_bytes(), type=Profile)
    assert found.status == -number
    assert line_of(found, "Basics.nothing").calls == 1
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)


def test_a_signal_that_it_handles(write: Callable[[str], Path], tmp_path: Path) -> None:
    script = write(
        f"""
        import signal, time
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))
        print("ready", flush=True)
        {WAIT_FOR_A_SIGNAL}
        """
    )
    with subprocess.Popen(
        command("--quiet", script.name), cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGUSR1)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (9, "")


def test_a_sample(profile: Run) -> None:
    program = f"{CONNECT}    for number in range(5000):\n        server.Basics.add(number)\n"
    done, found = profile(program, options=("--sample", "10"))
    line = line_of(found, "Basics.add")
    # Chosen at random: fewer than 350 or more than 650 of 5,000 come up once in 10^11 runs.
    assert 350 <= found.processes[0].recorded <= 650
    assert 3500 <= line.calls <= 6500
    assert found.one_in == 10
    assert "about" in done.stderr
    assert "chosen at random" in done.stderr


def test_only_so_many_are_kept(profile: Run) -> None:
    program = f"{CONNECT}    for number in range(3000):\n        server.Basics.add(number)\n"
    _, found = profile(program, options=("--keep", "1000"))
    process = found.processes[0]
    assert process.recorded <= 1001
    assert process.calls == 3001


def test_modules_and_other_commands(profile: Run, write: Callable[[str], Path], tmp_path: Path) -> None:
    write(f"print(sys.argv[1:], __name__)\n{CONNECT}    server.Basics.nothing()\n")
    for words in (["-m", "program", "-q", "x"], [sys.executable, "program.py", "-q", "x"]):
        done = subprocess.run(command(*words), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "['-q', 'x'] __main__\n", done.stderr
        found = msgspec.json.decode((tmp_path / "nearcall-profile.json").read_bytes(), type=Profile)
        assert line_of(found, "Basics.nothing").calls == 1
        assert found.command == words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "profile takes a script"),
        (["-m"], "profile takes a script"),
        (["--sample", "0", "x.py"], "--sample 0: at least 1"),
        (["-o", "x.txt", "x.py"], "the page's name ends with .html"),
        (["-o", "none/x.html", "x.py"], "there is no directory none"),
    ],
)
def test_wrong_usage(tmp_path: Path, words: list[str], said: str) -> None:
    done = subprocess.run(command(*words), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    done = subprocess.run(
        command("no-such-program"), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "no-such-program" in done.stderr


def test_the_schema_has_a_description_of_everything() -> None:
    kinds = schema()["$defs"]
    assert isinstance(kinds, dict)
    assert {"Profile", "Line", "Finding", "FlameNode", "Call", "Process", "Failure"} <= set(kinds)


def test_who_is_not_profiled_imports_nothing_of_it() -> None:
    code = "import nearcall, nearcall.aio, sys; nearcall.connect; nearcall.serve; nearcall.aio.connect\n"
    code += "print([name for name in sys.modules if name.startswith('nearcall.profile')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
