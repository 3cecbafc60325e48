"""Install nearcall-lab and as many of its peers as this machine can take, one by one.

`make setup` falls back to this when they cannot be installed together. Prints one line for each peer left out.
"""

import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


def pip_install(*arguments: str) -> bool:
    """Run pip quietly; say whether it could."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def main() -> int:
    """Install the lab, then each peer."""
    manifest = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))
    if not pip_install("-e", str(ROOT / "lab")):
        print("setup: nearcall-lab itself cannot be installed: see `pip install -e lab`", file=sys.stderr)
        return 1
    for requirement in manifest["project"]["optional-dependencies"]["peers"]:
        if not pip_install(requirement):
            print(f"setup: left out {requirement}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
