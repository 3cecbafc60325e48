"""Where add-ons may change what is spoken."""

from nearcall.plugin.shims import filter

@filter
def filter_speechSequence(value: list[str]) -> list[str]:
    """The texts that are about to be spoken, one after the other."""
