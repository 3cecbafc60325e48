"""What synthesiser drivers derive from."""

from __future__ import annotations

from typing import Any

from extensionPoints import Action

synthDoneSpeaking = Action()


class SynthDriver:
    """A synthesiser. Methods ``_get_rate`` and ``_set_rate`` make a property ``rate``, for any name."""

    name = ""
    description = ""
    rate: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in [name[5:] for name in dir(cls) if name.startswith("_get_")]:
            setattr(cls, name, property(getattr(cls, f"_get_{name}"), getattr(cls, f"_set_{name}", None)))

    @classmethod
    def check(cls) -> bool:
        """Whether it works here."""
        return True

    def speak(self, speechSequence: list[str]) -> None:
        """Begins to speak; :data:`synthDoneSpeaking` says when it has ended."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Stops speaking."""

    def terminate(self) -> None:
        """The program ends."""
