"""Put what a study wrote into its page: ``python tools/study_page.py out/studies/rmr-20261128-220000``.

A page may have an introduction by hand, which ends with the line `BELOW`: only what stands below it is replaced. A page
without that line is what the command wrote, all of it.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

PAGES = Path(__file__).parent.parent / "lab" / "docs" / "studies"
BELOW = "<!-- below: as nearcall-lab study wrote it -->"


def _public(command: list[str]) -> list[str]:
    """The command without what only the machine that measured knows: where its files are."""
    kept = []
    for before, word in zip(["", *command], command, strict=False):
        if "--out" not in (before, word):
            kept.append(word.partition("?")[0] if before == "--host" else word)
    return kept


def main() -> int:
    """Returns 1 where a directory cannot be used."""
    for directory in map(Path, sys.argv[1:]):
        try:
            study = json.loads((directory / "study.json").read_text(encoding="utf-8"))
            text = (directory / "study.md").read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            print(f"study_page: {directory} holds no study: {error}", file=sys.stderr)
            return 1
        if study["ended_early"]:
            print(f"study_page: {directory}: this study ended early: {study['ended_early']}", file=sys.stderr)
            return 1
        text = text.replace(shlex.join(study["command"]), shlex.join(_public(study["command"])))
        page = PAGES / f"{study['id']}.md"
        head, line, _ = page.read_text(encoding="utf-8").partition(f"{BELOW}\n")
        if line:  # the introduction has the title already
            text = f"{head}{line}{text.partition(chr(10))[2]}"
        page.write_text(text, encoding="utf-8")
        print(f"study_page: {page.relative_to(PAGES.parent.parent.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
