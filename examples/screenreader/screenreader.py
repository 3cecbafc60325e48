"""A screen reader with plugins, three of which mean no good: see README.md.

It reads a text aloud into ``speech.wav``, shows it in braille, and draws what happened into ``timeline.svg``.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / name) for name in ("api", "in_process", "both", "generated")]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # one write: lines come from several threads


def main() -> None:
    parser = argparse.ArgumentParser(description="Reads a text aloud, through plugins.")
    parser.add_argument("document", type=Path, nargs="?", default=HERE / "document.txt", help="the text")
    parser.add_argument("--plugins", type=Path, default=HERE / "addons", help="their directory")
    parser.add_argument("--output", type=Path, default=Path("out"), help="where to (default: out)")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times faster than a clock")
    parser.add_argument("--budget", type=float, default=0.2, help="seconds that a plugin may take for a question")
    parser.add_argument("--start", type=float, default=10.0, help="seconds that plugins may take to start")
    options = parser.parse_args()
    logging.getLogger("nearcall").setLevel(logging.CRITICAL)  # what happens to plugins is told below

    from parts.reading import Reader
    from parts.sound import SoundCard
    from parts.timeline import Timeline

    options.output.mkdir(parents=True, exist_ok=True)
    texts = [line.strip() for line in options.document.read_text(encoding="utf-8").splitlines() if line.strip()]
    timeline = Timeline()
    with SoundCard(options.output / "speech.wav", options.speed) as card:
        reader = Reader(options.plugins, card, timeline, say, options.budget, options.start)
        reader.read(texts, lambda number: reader.press("kb:NVDA+shift+d") if number == len(texts) - 1 else None)
    longest = max((gap.seconds for gap in card.gaps), default=0.0)
    summary = f"{len(texts)} texts, {card.seconds:.1f} s of sound; gaps: {len(card.gaps)}, the longest {longest:.3f} s"
    timeline.draw(options.output / "timeline.svg", f"A screen reader and its plugins: {summary}")
    print(f"spoken by {', '.join(dict.fromkeys(reader.speaker.voices))}; braille by {reader.braille.name}")
    print(summary)
    print(f"listen to {options.output / 'speech.wav'}, look at {options.output / 'timeline.svg'}")


if __name__ == "__main__":
    main()
