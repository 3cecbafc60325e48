"""What global plugins derive from."""


class GlobalPlugin:
    """A plugin that is there as long as the program runs. Methods with ``@script`` are called for their gestures."""

    def terminate(self) -> None:
        """The program ends."""

    def execute(self, identifier: str) -> None:
        """Calls the scripts of a gesture."""
        for name in dir(self):
            script = getattr(self, name)
            if name.startswith("script_") and script.gesture == identifier:
                script(identifier)
