"""A warehouse with Pyro5: an object for each shopper, a batch, a callback, an exception and a class of its own.

    python before.py serve
    python before.py

It prints::

    pens: 10, paper: 4
    the basket has 1 line
    low: 2 paper left
    the basket has 2 lines
    refused: only 7 pens
    3 pens, 2 paper
    after checkout: 7 pens
"""

import sys
import threading

from Pyro5.api import (
    BatchProxy,
    Daemon,
    Proxy,
    behavior,
    callback,
    expose,
    oneway,
    register_class_to_dict,
    register_dict_to_class,
)

ADDRESS = "127.0.0.1:7101"


class Line:
    """What a basket holds. Serpent does not know the class: both sides have to be told."""

    def __init__(self, item, count):
        self.item = item
        self.count = count


class OutOfStock(Exception):
    def __init__(self, item, left):
        super().__init__(f"only {left} {item}")
        self.item = item
        self.left = left


register_class_to_dict(Line, lambda line: {"__class__": "Line", "item": line.item, "count": line.count})
register_dict_to_class("Line", lambda _, fields: Line(fields["item"], fields["count"]))
register_class_to_dict(OutOfStock, lambda e: {"__class__": "OutOfStock", "item": e.item, "left": e.left})
register_dict_to_class("OutOfStock", lambda _, fields: OutOfStock(fields["item"], fields["left"]))


@expose
class Basket:
    def __init__(self, warehouse):
        self._warehouse = warehouse
        self._lines = []

    def add(self, line):
        self._warehouse._reserve(line)
        self._lines.append(line)
        return len(self._lines)

    def lines(self):
        yield from self._lines  # the client fetches them one by one

    def checkout(self):
        self._lines.clear()
        self._pyroDaemon.unregister(self)  # nobody else does


@expose
@behavior(instance_mode="single")
class Warehouse:
    def __init__(self):
        self._lock = threading.Lock()
        self._stock = {"pens": 10, "paper": 4}
        self._watchers = []

    def stock(self, item):
        return self._stock[item]

    def basket(self):
        basket = Basket(self)
        self._pyroDaemon.register(basket)
        return basket  # arrives as a proxy

    @oneway
    def watch(self, watcher):
        self._watchers.append(watcher)

    def watching(self):
        return len(self._watchers)

    def _reserve(self, line):
        with self._lock:
            left = self._stock[line.item]
            if line.count > left:
                raise OutOfStock(line.item, left)
            self._stock[line.item] = left = left - line.count
        if left < 3:
            for watcher in self._watchers:
                watcher._pyroClaimOwnership()  # a proxy belongs to one thread
                watcher.low(line.item, left)


@expose
class Watcher:
    @callback
    def low(self, item, left):
        print(f"low: {left} {item} left")


def serve():
    host, _, port = ADDRESS.partition(":")
    with Daemon(host=host, port=int(port)) as daemon:
        daemon.register(Warehouse, "warehouse")
        daemon.requestLoop()


def shop():
    # To be called back a client needs a server of its own, and a thread that runs it.
    with Daemon() as daemon, Proxy(f"PYRO:warehouse@{ADDRESS}") as warehouse:
        watcher = Watcher()
        daemon.register(watcher)
        threading.Thread(target=daemon.requestLoop, daemon=True).start()
        warehouse.watch(watcher)
        while not warehouse.watching():  # a one-way call may be overtaken
            pass
        batch = BatchProxy(warehouse)
        batch.stock("pens")
        batch.stock("paper")
        print("pens: {}, paper: {}".format(*batch()))
        with warehouse.basket() as basket:
            print("the basket has", basket.add(Line("pens", 3)), "line")
            print("the basket has", basket.add(Line("paper", 2)), "lines")
            try:
                warehouse.basket().add(Line("pens", 99))
            except OutOfStock as error:
                print(f"refused: only {error.left} {error.item}")
            print(", ".join(f"{line.count} {line.item}" for line in basket.lines()))
            basket.checkout()
        print("after checkout:", warehouse.stock("pens"), "pens")
        daemon.shutdown()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else shop()
