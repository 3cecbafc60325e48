"""Tokens that a server demands, over every transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import nearcall


@nearcall.service
class Vault:
    def open(self) -> str:
        return "open"

    async def open_in_loop(self) -> str:
        return "open"

    def coins(self) -> Iterator[int]:
        yield 1

    async def coins_in_loop(self) -> AsyncIterator[int]:
        yield 1


def use(vault: Any) -> None:
    assert vault.open() == "open"
    assert vault.open_in_loop() == "open"
    assert list(vault.coins()) == [1]
    assert list(vault.coins_in_loop()) == [1]


@pytest.fixture
def url(new_url: str) -> Iterator[str]:
    with nearcall.Server(Vault(), new_url, interceptors=[nearcall.auth.token("new", "old")]) as server:
        yield server.urls[0]


@pytest.mark.parametrize("token", ["new", "old"])
def test_each_accepted_token(url: str, token: str) -> None:
    with nearcall.connect(url, Vault, interceptors=[nearcall.auth.token(token)]) as vault:
        use(vault)

    async def main() -> None:
        async with nearcall.aio.connect(url, Vault, interceptors=[nearcall.auth.token(token)]) as vault:
            assert await vault.open() == "open"
            assert [coin async for coin in vault.coins_in_loop()] == [1]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ((), r"Vault\.{} needs a token, and the metadata has no 'authorization'; send 'Bearer TOKEN' there"),
        ([("authorization", "Bearer ne")], r"Vault\.{}: the token is not valid"),
        ([("authorization", "Bearer newer")], r"Vault\.{}: the token is not valid"),
        ([("authorization", "Bearer n\u00e9w")], r"Vault\.{}: the token is not valid"),
        ([("authorization", "Bearer ")], r"Vault\.{}: 'authorization' in the metadata must be 'Bearer TOKEN'"),
        ([("authorization", "Basic new")], r"Vault\.{}: 'authorization' in the metadata must be 'Bearer TOKEN'"),
        ([("authorization", "new")], r"Vault\.{}: 'authorization' in the metadata must be 'Bearer TOKEN'"),
        ([("authorization", "Bearer x"), ("authorization", "Bearer new")], "2 times; send it once"),
    ],
)
def test_everything_else_is_refused(url: str, metadata: Any, message: str) -> None:
    with nearcall.connect(url, Vault) as service, nearcall.metadata(metadata):
        vault: Any = service
        for method in ("open", "open_in_loop"):
            with pytest.raises(nearcall.Unauthenticated, match=message.format(method)):
                getattr(vault, method)()
        for method in ("coins", "coins_in_loop"):
            with pytest.raises(nearcall.Unauthenticated, match=message.format(method)):
                next(getattr(vault, method)())


def test_the_scheme_is_read_in_any_case(url: str) -> None:
    with nearcall.connect(url, Vault) as vault, nearcall.metadata({"authorization": "bearer new"}):
        assert vault.open() == "open"


def test_a_function_of_ones_own(new_url: str) -> None:
    asked: list[str] = []

    def check(token: str) -> bool:
        asked.append(token)
        if token == "expired":
            raise nearcall.PermissionDenied("expired yesterday")
        return token == "mine"

    with nearcall.Server(Vault(), new_url, interceptors=[nearcall.auth.token("static", check=check)]) as server:
        for token in ("static", "mine"):
            with nearcall.connect(server.urls[0], Vault, interceptors=[nearcall.auth.token(token)]) as vault:
                assert vault.open() == "open"
        for token, error in (("yours", nearcall.Unauthenticated), ("expired", nearcall.PermissionDenied)):
            with (
                nearcall.connect(server.urls[0], Vault, interceptors=[nearcall.auth.token(token)]) as vault,
                pytest.raises(error),
            ):
                vault.open()
    assert asked == ["mine", "yours", "expired"]


def test_wrong_use() -> None:
    anything: Any = None
    for tokens in ((), ("",), ("two words",), ("line\n",), ("\u00e9",), (anything,)):
        with pytest.raises(ValueError, match="token") as caught:
            nearcall.auth.token(*tokens)
        assert "two words" not in str(caught.value)
    with nearcall.Server(Vault(), "inproc://wrong-use") as server:
        checking = nearcall.auth.token(check=bool)
        with (
            nearcall.connect(server.urls[0], Vault, interceptors=[checking]) as vault,
            pytest.raises(nearcall.Unauthenticated, match="has no token to send"),
        ):
            vault.open()
