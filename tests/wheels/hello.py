"""What a user writes first: run by the environments that the wheels are installed into."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import nearcall


@dataclass
class Point:
    x: float
    y: float
    name: str | None = None


@nearcall.service
class Hello:
    def hello(self, name: str) -> str:
        return f"Hello, {name}!"

    def move(self, point: Point, by: float) -> Point:
        return Point(point.x + by, point.y + by, point.name)

    def count(self, to: int) -> Iterator[int]:
        yield from range(to)

    def echo(self, data: bytes) -> bytes:
        return data


def main(urls: list[str]) -> None:
    for url in urls:
        with nearcall.connect(url, Hello, timeout=30) as hello:
            assert hello.hello("wheel") == "Hello, wheel!"
            assert hello.move(Point(1, 2, "a"), 0.5) == Point(1.5, 2.5, "a")
            assert list(hello.count(3)) == [0, 1, 2]
            assert hello.echo(bytes(200_000)) == bytes(200_000)
            try:
                hello.hello(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            except (TypeError, nearcall.RpcError):
                pass
            else:
                raise AssertionError("a wrong argument was sent")
        print("called", url)


if __name__ == "__main__":
    main(sys.argv[1:])
