"""Begins the recording in each process of a profiled program: Python imports this when it starts, as the profiler has
put this folder before all others on ``PYTHONPATH``.

The folder leaves ``sys.path`` again, and a ``sitecustomize`` that the machine has runs as ever.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def _begin() -> None:
    here = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
    try:
        from nearcall.profile import importing
    except ImportError:
        return  # another Python, which has no nearcall: it is not profiled
    importing.begin()


_begin()
