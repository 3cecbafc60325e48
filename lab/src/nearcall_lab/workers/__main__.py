"""``python -m nearcall_lab.workers server|client CONFIG``: one worker process."""

from __future__ import annotations

import sys


def main() -> None:
    """Become the worker that the first argument names; nothing else is loaded."""
    if sys.argv[1] == "server":
        from nearcall_lab.workers.server import main as run
    else:
        from nearcall_lab.workers.client import main as run
    run()


if __name__ == "__main__":
    main()
