"""``python -m nearcall``: the same as the ``nearcall`` command."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
