"""The services of grpc-framework's example, as a nearcall application: see README.md beside this file."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import nearcall


@dataclass
class User:
    id: int
    name: str


@dataclass
class NewUser:
    name: str


@dataclass
class Profile:
    name: str


@dataclass
class Counter:
    counter: int


@dataclass
class Count:
    count: int


@dataclass
class ChatMessage:
    user_id: int
    to_user_id: int
    message: str
    message_type: str


@dataclass
class ChatReply:
    success: bool
    message: str


@dataclass
class SimpleResponse:
    result: str
    success: bool
    error_message: str


@dataclass
class Domain:
    id: int


@dataclass
class Store:
    """Stands for a database."""

    users: dict[int, User] = field(default_factory=dict[int, User])
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))


async def lifespan(server: nearcall.Server) -> AsyncIterator[Store]:
    print(f"serving at {len(server.urls)} URLs", file=sys.stderr)
    yield Store()
    print("served", file=sys.stderr)


async def caller() -> str:
    return str(nearcall.context().metadata.get("user", "somebody"))


def log_calls(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    print("received", call.method, file=sys.stderr)
    return proceed(call)


def no_user(error: KeyError) -> Exception:
    return nearcall.NotFound(f"there is no user {error}")


error_handlers = {KeyError: no_user}


@nearcall.service(name="demo.UserService")
class UserService:
    async def create_user(self, request: NewUser, *, store: Store = nearcall.depends(lifespan)) -> User:
        user = User(next(store.ids), request.name)
        store.users[user.id] = user
        return user

    async def iter_user(self, *, store: Store = nearcall.depends(lifespan)) -> AsyncIterator[User]:
        for user in list(store.users.values()):
            yield user

    async def get_user(self, id: int, *, store: Store = nearcall.depends(lifespan)) -> User:
        return store.users[id]


@nearcall.service(name="demo.ProfileService")
class ProfileService:
    async def get_profile(self, *, name: str = nearcall.depends(caller)) -> Profile:
        return Profile(name)

    async def iter_profile_counter(
        self, counter: Counter, *, name: str = nearcall.depends(caller)
    ) -> AsyncIterator[Profile]:
        for number in range(1, counter.counter + 1):
            yield Profile(f"{name} {number}")

    async def sum_counter(self, request: AsyncIterator[Counter]) -> Count:
        return Count(sum([item.counter async for item in request]))

    async def simulated_chat(self, request: AsyncIterator[ChatMessage]) -> AsyncIterator[ChatReply]:
        async for chat in request:
            yield ChatReply(True, f"{chat.user_id} to {chat.to_user_id}: {chat.message}")


@nearcall.service(name="demo.SimpleService")
class SimpleService:
    async def get_simple_response(self) -> SimpleResponse:
        await asyncio.sleep(0.1)
        return SimpleResponse("success", True, "")

    async def stream_responses(self) -> AsyncIterator[SimpleResponse]:
        await asyncio.sleep(0.1)
        yield SimpleResponse("success", True, "")


@nearcall.service(name="demo.GRPCFrameWorkDemoService")
class DemoService:
    async def app_uu_func(self) -> Domain:
        return Domain(1)

    async def app_us_func(self) -> AsyncIterator[Domain]:
        for number in range(1, 11):
            yield Domain(number)
