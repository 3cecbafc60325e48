"""A reader with plugins. One of them hangs, and the reader goes on.

It prints::

    speaks: HELLO
    speaks: THE KEY IS ENTER
    speaks: GOODBYE
    late: org.example.hangs
"""

from __future__ import annotations

import logging
from pathlib import Path

from reader_api import Speech, key_pressed, spoken_text

from nearcall.plugin import PluginEvent, PluginHost

HERE = Path(__file__).parent


class Reader(Speech):
    """Speaks through the filters of all plugins, to whoever reads this program's output."""

    def __init__(self) -> None:
        self.host = PluginHost(
            HERE / "plugins",
            services={"speech": self},
            points=[spoken_text, key_pressed],
            paths=[HERE],
            budget=1.0,
            on_event=self.tell,
        )
        self.late: list[str] = []
        self.spoken_text = self.host.extension(spoken_text)
        self.key_pressed = self.host.extension(key_pressed)

    def speak(self, text: str) -> None:
        print("speaks:", self.spoken_text(text, "en"))

    def tell(self, event: PluginEvent) -> None:
        if event.kind == "late":
            self.late.append(event.plugin)


def main() -> None:
    logging.getLogger("nearcall").setLevel(logging.ERROR)  # what late plugins do is printed below
    reader = Reader()
    with reader.host:
        reader.speak("hello")
        reader.key_pressed("enter")
        reader.speak("goodbye")
    print("late:", *reader.late)


if __name__ == "__main__":
    main()
