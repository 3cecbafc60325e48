"""Calls an interface whose implementation lives elsewhere.

    python examples/shared_interface/server.py
    python examples/shared_interface/client.py

It prints::

    Item(name='bolt', count=1, updated=datetime.datetime(2024, 2, 29, 0, 0, tzinfo=datetime.timezone.utc))
    ['nail', 'nut']
    without the class: nut 2
"""

from interface import URL, Inventory

import nearcall

if __name__ == "__main__":
    with nearcall.connect(URL, Inventory) as inventory:
        print(inventory.take("bolt", 2))
        print([item.name for item in inventory.find("n", limit=5)])
    # The server describes itself, so a client can do without the interface: values are plain data then.
    with nearcall.connect(URL) as anything:
        nut = anything.take(name="nut")
        print("without the class:", nut["name"], nut["count"])
