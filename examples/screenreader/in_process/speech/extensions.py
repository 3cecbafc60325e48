"""Where add-ons may change what is spoken."""

from __future__ import annotations

from extensionPoints import Filter

filter_speechSequence: Filter[list[str]] = Filter()
