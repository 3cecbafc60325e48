"""What plugins use of config: made from config.py by 'nearcall plugin shim'. Both sides import it."""

from __future__ import annotations

from typing import Protocol

import nearcall
from nearcall.plugin import shims


@nearcall.service(errors=[*shims.ERRORS])
class Config(Protocol):
    """The user's settings."""

    def find_conf(self, keys: list[str]) -> list[bool | int | str]: ...

    def put_conf(self, keys: list[str], value: bool | int | str) -> None: ...

    def remove_conf(self, keys: list[str]) -> bool: ...

    def keys_of_conf(self, keys: list[str]) -> list[str]: ...
