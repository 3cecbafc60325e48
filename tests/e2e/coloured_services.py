"""A service with handlers of both kinds, and with all kinds of values, from which interfaces are written."""

from __future__ import annotations

import builtins
import datetime
import decimal
import enum
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

import nearcall

Price = NewType("Price", int)


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class OutOfStock(Exception):
    pass


@dataclass
class Item:
    name: str
    size: Size = Size.SMALL
    tags: list[str] = field(default_factory=list[str])
    since: datetime.datetime | None = None
    day: datetime.date = datetime.date(2020, 1, 1)
    parent: Item | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    bark: str


class Place(NamedTuple):
    x: float
    y: float = 0.0


class Extra(TypedDict, total=False):
    colour: str


class Renamed(msgspec.Struct, rename="kebab"):
    first_name: str
    last_name: str = "?"


@nearcall.service
class Listener(Protocol):
    def sold(self, item: Item) -> str:
        """Called when it was sold."""
        ...

    def wishes(self) -> Iterator[str]: ...

    @nearcall.oneway
    def bye(self) -> None: ...


@nearcall.service
class Basket(Protocol):
    def add(self, item: Item) -> int: ...
    def names(self) -> Iterator[str]: ...


@nearcall.service
class BigBasket(Basket, Protocol):
    def weigh(self) -> float: ...


class OwnBasket(BigBasket):
    def add(self, item: Item) -> int:
        return len(item.name)

    def names(self) -> Iterator[str]:
        yield "pen"

    def weigh(self) -> float:
        return 1.5


@nearcall.service(name="shops.Shop", errors=[OutOfStock])
class Shop:
    """Sells
    "things", such as a \\ and a ''' and a "pen"
    """

    def find(
        self, name: str, size: Size = Size.LARGE, *, limit: int = 1, price: Price | None = None
    ) -> builtins.list[Item]:
        """Finds "items"."""
        return [Item(name, size)] * limit

    @nearcall.idempotent
    def price(self, item: Item, /, at: datetime.datetime | None = None) -> decimal.Decimal:
        return decimal.Decimal(len(item.name))

    @nearcall.no_side_effects
    def mode(self, which: Literal["a", "b"] = "a") -> Literal["a", "b"]:
        return which

    async def feed(self, animal: Cat | Dog, n: Annotated[int, msgspec.Meta(gt=0)] = 1) -> Cat | Dog:
        return animal

    def move(self, place: Place, extra: Extra | None = None) -> tuple[Place, ...]:
        return (place,)

    def rename(self, person: Renamed) -> Renamed:
        return person

    def picture(self, data: NDArray[np.uint8], raw: bytes = b"") -> NDArray[np.float64]:
        return data.astype(float)

    def view(self, raw: memoryview) -> memoryview:
        return raw

    def anything(self, x: Any, ids: dict[uuid.UUID, set[int]]) -> Any:
        return x

    def sold(self, since: int) -> Generator[Item, None, None]:
        yield from (Item(str(number)) for number in range(since))

    async def sold_in_loop(self, since: int) -> AsyncIterator[int]:
        for number in range(since):
            yield number

    async def total(self, xs: AsyncIterator[int], by: int = 1) -> int:
        return sum([x async for x in xs]) * by

    def each(self, xs: Iterator[int]) -> Iterator[int]:
        yield from xs

    @nearcall.oneway
    def log(self, line: str) -> None: ...

    def listen(self, listener: Listener) -> str:
        return listener.sold(Item("pen"))

    def basket(self) -> BigBasket:
        return OwnBasket()

    def given(self, n: int, *, more: int = nearcall.depends(lambda: 3)) -> int:
        return n + more

    def list(self, names: builtins.list[str]) -> builtins.list[str]:
        return names

    def fail(self) -> None:
        raise OutOfStock("pen")
