"""The user's settings."""

from __future__ import annotations

from collections.abc import MutableMapping

conf: MutableMapping[str, MutableMapping[str, bool | int | str]] = {"speech": {"rate": 50, "language": "en"}}
