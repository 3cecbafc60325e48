"""What must be an error: each line that ends in ``error`` has one, and no other line has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import nearcall
from tests.typing.calculator import (
    Animals,
    AsyncCalculator,
    AsyncRoom,
    Calculator,
    CalculatorForThreads,
    Ear,
    Pages,
    Room,
)


def arguments() -> None:
    with nearcall.connect("shm://calc", Calculator) as calc:
        calc.add("1")  # error
        calc.add()  # error
        calc.add(1, 2, 3)  # error
        calc.add(1, c=3)  # error
        calc.subtract(1, 2)  # error
        calc.total(3)  # error
        calc.log(3)  # error


def published() -> None:
    topic = nearcall.Topic[int](when_full="block")  # error
    topic.publish("1")  # error
    text: Iterator[str] = topic.subscribe()  # error
    del text


def started() -> None:
    with nearcall.connect("shm://calc", Calculator) as calc:
        nearcall.start(calc.add, "1")  # error
        nearcall.start(calc.add)  # error
        text: str = nearcall.start(calc.add, 1).result()  # error
        del text


def results() -> None:
    with nearcall.connect("shm://calc", Calculator) as calc, nearcall.connect("shm://zoo", Animals) as animals:
        text: str = calc.add(1)  # error
        names: list[int] = animals.names()  # error
        del text, names


def connecting() -> None:
    nearcall.connect(7000, Calculator)  # error
    nearcall.connect("shm://calc", Calculator())  # error
    nearcall.connect("shm://calc", Calculator, timeout="1")  # error
    nearcall.connect("shm://calc", Calculator, spin="never")  # error
    nearcall.connect("shm://calc", Calculator, speed=1)  # error
    nearcall.timeout("1")  # error


def several_services() -> None:
    with nearcall.Channel("shm://calc", speed=1) as channel:  # error
        channel.client(Calculator())  # error
        channel.client(Calculator).service.subtract(1, 2)  # error
    nearcall.aio.Channel("shm://calc", timeout="1")  # error


def hooks() -> None:
    nearcall.Server(Calculator(), on_connect=lambda: None)  # error
    nearcall.Server(Calculator(), on_disconnect=3)  # error
    nearcall.service(instance="client")  # error


def clients() -> None:
    client: nearcall.Client[Animals] = nearcall.connect("shm://calc", Calculator)  # error
    client.service.add(1)  # error
    nearcall.Server(Calculator(), "shm://calc").urls = []  # error


def references() -> None:
    with nearcall.connect("shm://room", Room) as room:
        room.join(Calculator())  # error
        number: int = room.join(Ear())  # error
        del number


def streams() -> None:
    with nearcall.connect("shm://calc", CalculatorForThreads) as calc:
        text: nearcall.Stream[str] = calc.countdown(3)  # error
        with calc.countdown(3) as items:
            items[0]  # error
        with calc.count(3):  # error
            pass
        calc.countdown(3).send(1)  # error
        del text


async def streams_in_loops() -> None:
    with nearcall.connect("shm://calc", CalculatorForThreads) as in_threads:
        async with in_threads.countdown(3):  # error
            pass
    async with nearcall.aio.connect("shm://calc", AsyncCalculator) as calc:
        with calc.countdown(3):  # error
            pass
        for item in calc.countdown(3):  # error
            del item
        calc.countdown(3).close()  # error


async def event_loops() -> None:
    async with nearcall.aio.connect("shm://calc", AsyncCalculator) as calc:
        await calc.add("1")  # error
        await calc.add(1, c=3)  # error
        await calc.subtract(1, 2)  # error
        await calc.total(["1"])  # error
        calc.log("line")  # error
        number: int = calc.add(1)  # error
        text: str = await calc.add(1)  # error
        await calc.count(3)  # error
        list(calc.count(3))  # error
        del number, text
    with nearcall.aio.connect("shm://calc", AsyncCalculator) as calc:  # error
        pass
    async with nearcall.aio.Channel("shm://calc") as channel:
        await channel.client(AsyncCalculator).service.add("1")  # error
    async with nearcall.aio.spawn(["calc"], AsyncCalculator) as calc:
        await calc.add("1")  # error
    async with nearcall.aio.connect("shm://pages", Pages) as pages:
        await pages.fetch("1")  # error
    async with nearcall.aio.connect("shm://room", AsyncRoom) as room:
        await room.join(Ear())  # error
    nearcall.aio.connect("shm://calc", Calculator())  # error


def of_event_loops_in_threads() -> None:
    with nearcall.connect("shm://calc", AsyncCalculator):  # error
        pass
    with nearcall.spawn(["calc"], AsyncCalculator):  # error
        pass
    with nearcall.Channel("shm://calc") as channel:
        channel.client(AsyncCalculator).service.add(1, 2)  # error
    nearcall.connect("shm://pages", Pages).service.fetch(1)  # error


async def threads() -> None:
    with nearcall.connect("shm://calc", CalculatorForThreads) as calc:
        await calc.add(1)  # error
        calc.add_in_loop("1", 2)  # error
        text: str = calc.add_in_loop(1, 2)  # error
        del text
        async for number in calc.count(3):  # error
            del number
        calc.total(["1"])  # error


class BothColours(nearcall.aio.Interface):
    async def add(self, a: int) -> int:
        return a


class NotAsDeclared(BothColours):
    def add(self, a: int) -> int:  # error
        return a


def numbers() -> int:
    return 1


@nearcall.service
class Depending:
    def get(self, n: int, *, text: str = nearcall.depends(numbers)) -> int:  # error
        return n

    def add(self, n: int, *, by: int = nearcall.depends(numbers)) -> int:
        return n + by


def dependencies() -> None:
    with nearcall.connect("shm://calc", Depending) as depending:
        depending.add(1, 2)  # error
    nearcall.depends(3)  # error
    nearcall.Server(Depending(), lifespan=numbers)  # error
    nearcall.Server(Depending(), error_handlers={KeyError: numbers})  # error


def attributes() -> None:
    nearcall.conect("shm://calc")  # error
    nearcall.NotFound(3)  # error


class OnlyMethods(Protocol):
    def size(self) -> int: ...


def attributes_of_services(service: OnlyMethods) -> int:
    return service.size + 1  # error


def told(call: nearcall.StartedCall[str]) -> None: ...


def callbacks_of_started_calls(call: nearcall.StartedCall[int]) -> None:
    call.add_done_callback(told)  # error


@nearcall.route.message(1)
class Asked:
    pass


@nearcall.route.message(2)
class Answered:
    pass


def routed(node: nearcall.route.Node) -> None:
    nearcall.route.Node("shm://node", tabel="routes.toml")  # error
    node.call(Asked(), timout=3)  # error
    node.send(1, b"", subscripton=3)  # error
    node.direct("shm://other").call(1, entitty="x")  # error

    @node.on(Asked)  # error
    def take(message: nearcall.route.Message[Answered]) -> None:
        del message

    @node.on(Asked)
    def take_any(message: nearcall.route.Message[object]) -> None:
        message.reply(b"", typ=2)  # error


def carried_types() -> None:
    nearcall.register_type(3, to=str)  # error
    nearcall.service(types=[KeyError])  # error
