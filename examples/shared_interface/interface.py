"""What client and server agree on. Neither needs the other's code, only this module."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import nearcall

URL = "shm://example-inventory"


@dataclass
class Item:
    name: str
    count: int
    updated: datetime


@nearcall.service
class Inventory(Protocol):
    def take(self, name: str, count: int = 1) -> Item: ...

    def find(self, prefix: str = "", *, limit: int = 10) -> list[Item]: ...
