"""Threads that meet the same classes for the first time, all at once."""

from __future__ import annotations

import subprocess
import sys

import nearcall

from .services import Basics

FIRST_CONNECTIONS = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import nearcall

sys.setswitchinterval(1e-6)
gate = threading.Barrier(16)


def use(_):
    gate.wait(20)
    with nearcall.connect(sys.argv[1]) as client:
        assert client.echo(b"x") == b"x"


with ThreadPoolExecutor(16) as pool:
    list(pool.map(use, range(16)))
print("ended")
"""

MANY_CLASSES = """
from __future__ import annotations

import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import nearcall

sys.setswitchinterval(1e-6)
MODULE = '''
from __future__ import annotations
import dataclasses
from typing import Optional
import msgspec
import nearcall

@dataclasses.dataclass
class Leaf:
    a: int
    b: Optional[str]

class Middle(msgspec.Struct):
    leaves: list[Leaf]
    c: dict[str, Leaf]

@dataclasses.dataclass
class Root:
    middle: Middle
    more: list[Middle]

@nearcall.service
class Service:
    def echo(self, root: Root) -> Root:
        return root
'''


def use(module, url, gate):
    gate.wait(20)
    with nearcall.connect(url, module.Service) as client:
        root = module.Root(module.Middle([module.Leaf(1, None)], {"x": module.Leaf(2, "y")}), [])
        assert client.echo(root) == root


with ThreadPoolExecutor(8) as pool:
    for number in range(40):
        module = types.ModuleType(f"module{number}")
        sys.modules[module.__name__] = module
        exec(MODULE, vars(module))
        other = types.ModuleType(f"module{number}")  # the server has classes of its own
        sys.modules[module.__name__] = other
        exec(MODULE, vars(other))
        with nearcall.Server(other.Service(), f"inproc://types-{number}"):
            sys.modules[module.__name__] = module
            gate = threading.Barrier(8)
            for future in [pool.submit(use, module, f"inproc://types-{number}", gate) for _ in range(8)]:
                future.result()
print("ended")
"""


def run(program: str, *arguments: str) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "ended\n", ended.stderr[:3000]
    assert ended.returncode == 0


def test_a_program_whose_threads_all_connect_at_once(key: str) -> None:
    with nearcall.Server(Basics(), f"shm://{key}"):
        for _ in range(3):
            run(FIRST_CONNECTIONS, f"shm://{key}")


def test_classes_that_several_threads_meet_at_once() -> None:
    run(MANY_CLASSES)
