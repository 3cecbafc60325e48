"""asyncio: many calls at once over one connection, deadlines, cancellation, streams.

    python examples/fan_out.py serve
    python examples/fan_out.py

It prints::

    200 calls of 50 ms each, at once: less than a second
    three fastest: ['page 0', 'page 1', 'page 2']
    one was too slow
    upper case: ['A', 'B', 'C']
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator

import nearcall

URL = "shm://example-fan-out"


@nearcall.service
class Fetcher:
    """Coroutine handlers run on the server's event loop, and take no thread while they wait."""

    async def fetch(self, number: int, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return f"page {number}"

    async def shout(self, words: AsyncIterator[str]) -> AsyncIterator[str]:
        async for word in words:
            yield word.upper()


async def words() -> AsyncIterator[str]:
    for word in ("a", "b", "c"):
        await asyncio.sleep(0.001)
        yield word


async def main() -> None:
    async with nearcall.aio.connect(URL, Fetcher) as fetcher:
        begun = time.monotonic()
        pages = await asyncio.gather(*(fetcher.fetch(number, 0.05) for number in range(200)))
        quick = time.monotonic() - begun < 1
        print("200 calls of 50 ms each, at once:", "less than a second" if quick else "too long")
        print("three fastest:", pages[:3])
        try:
            with nearcall.timeout(0.05):  # asyncio.timeout() and Task.cancel() give the call up as well
                await fetcher.fetch(1, 30.0)
        except nearcall.DeadlineExceeded:
            print("one was too slow")
        print("upper case:", [word async for word in fetcher.shout(words())])


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Fetcher(), URL)
    else:
        asyncio.run(main())
