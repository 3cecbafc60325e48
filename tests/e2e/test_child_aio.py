"""``nearcall.aio.spawn``: a child that an event loop calls."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import pytest

import nearcall

from .children import Workshop
from .process import ROOT
from .test_child import children, command, open_files


def test_it_is_called_as_any_other() -> None:
    async def main() -> None:
        async with nearcall.aio.spawn(command("serve"), Workshop, cwd=ROOT) as workshop:
            assert await workshop.pid() not in (0, os.getpid())
            assert await workshop.echo(bytes(5_000_000)) == bytes(5_000_000)
            assert [n async for n in workshop.count(100)] == list(range(100))

    asyncio.run(main())


def test_leaving_ends_it_and_leaves_nothing() -> None:
    async def main() -> None:
        child = nearcall.aio.spawn(command("serve"), Workshop, cwd=ROOT)
        async with child as workshop:
            assert await workshop.echo(b"x") == b"x"
            assert child.process.poll() is None
        assert child.process.returncode == 0
        with pytest.raises(nearcall.Cancelled):
            await child

    asyncio.run(main())
    before = open_files()
    asyncio.run(main())
    assert open_files() == before


def test_it_may_be_awaited_and_closed() -> None:
    async def main() -> None:
        child = await nearcall.aio.spawn(command("serve"), cwd=ROOT)
        assert await child.service.echo(b"x") == b"x"
        child.close()
        await child.close()
        assert child.process.returncode == 0

    asyncio.run(main())


def test_one_that_dies_is_told() -> None:
    async def main() -> None:
        async with nearcall.aio.spawn(command("serve"), Workshop, cwd=ROOT) as workshop:
            os.kill(await workshop.pid(), signal.SIGKILL)
            # The first call may meet the end of the connection, and what comes before that of the process.
            told = ""
            while "was lost" in told or "hung up" in told or not told:
                with pytest.raises(nearcall.Unavailable) as caught:
                    await workshop.echo(b"x")
                told = caught.value.message
            assert told.endswith("serve ended by signal 9: spawn another one")

    asyncio.run(main())


def test_nothing_is_left_of_one_that_could_not_be_reached() -> None:
    before, alive = open_files(), children()

    async def main() -> None:
        with pytest.raises(nearcall.Unavailable, match=r"^false ended with status 1 before it served"):
            await nearcall.aio.spawn(["false"], Workshop)
        with pytest.raises(nearcall.DeadlineExceeded, match=r"^sleep 60 did not serve within"):
            await nearcall.aio.spawn(["sleep", "60"], Workshop, handshake_timeout=0.2)
        wrong: dict[str, Any] = {"no_such_option": 1}
        with pytest.raises(TypeError, match="no_such_option"):
            nearcall.aio.spawn([sys.executable, "-c", "input()"], Workshop, **wrong)

    asyncio.run(main())
    assert open_files() <= before
    assert children() <= alive


def test_the_wrong_with_says_what_to_write() -> None:
    async def main() -> None:
        wrong: Any = nearcall.aio.spawn(command("serve"), Workshop, cwd=ROOT)
        with pytest.raises(TypeError, match=r"write 'async with nearcall\.aio\.spawn\(\.\.\.\)'"), wrong:
            pass
        await wrong.close()
        threads: Any = nearcall.spawn(command("serve"), Workshop, cwd=ROOT)
        with pytest.raises(TypeError, match=r"'async with nearcall\.aio\.spawn\(\.\.\.\)' in an event loop"):
            async with threads:
                pass

    asyncio.run(main())
