"""Implements the interface; see client.py."""

from datetime import datetime, timezone

from interface import URL, Inventory, Item

import nearcall

EPOCH = datetime(2024, 2, 29, tzinfo=timezone.utc)


class Shelf(Inventory):
    """Served under the interface's name. A method that differs from its interface is an error when it is served."""

    def __init__(self) -> None:
        self._items = {name: Item(name, 3, EPOCH) for name in ("bolt", "nut", "nail")}

    def take(self, name: str, count: int = 1) -> Item:
        item = self._items.get(name)
        if item is None or item.count < count:
            raise nearcall.NotFound(f"there are not {count} of {name}")
        item.count -= count
        return item

    def find(self, prefix: str = "", *, limit: int = 10) -> list[Item]:
        return [item for name, item in sorted(self._items.items()) if name.startswith(prefix)][:limit]


if __name__ == "__main__":
    nearcall.serve(Shelf(), URL)
