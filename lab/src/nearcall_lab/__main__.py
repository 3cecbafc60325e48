"""`python -m nearcall_lab …` is the same as the `nearcall-lab` command."""

import sys

from nearcall_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
