"""Calls every method of app.py, at the URL that it is given."""

import asyncio
import sys
from collections.abc import AsyncIterator

from app import ChatMessage, Counter, DemoService, NewUser, ProfileService, SimpleService, UserService

import nearcall


async def numbers() -> AsyncIterator[Counter]:
    for number in range(1, 4):
        yield Counter(number)


async def chat() -> AsyncIterator[ChatMessage]:
    for text in ("hello", "goodbye"):
        yield ChatMessage(1, 2, text, "text")


async def main(url: str) -> None:
    async with nearcall.aio.Channel(url) as channel:
        users, profiles = channel.client(UserService).service, channel.client(ProfileService).service
        print([(await users.create_user(NewUser(name))).id for name in ("ada", "grace")])
        print([user.name async for user in users.iter_user()])
        try:
            await users.get_user(17)
        except nearcall.NotFound as error:
            print("not found:", error)
        with nearcall.metadata({"user": "ada"}):
            print((await profiles.get_profile()).name)
            print([each.name async for each in profiles.iter_profile_counter(Counter(2))])
        print((await profiles.sum_counter(numbers())).count)
        print([reply.message async for reply in profiles.simulated_chat(chat())])
        simple, demo = channel.client(SimpleService).service, channel.client(DemoService).service
        answers = await asyncio.gather(*(simple.get_simple_response() for _ in range(1000)))
        print(len(answers), "times", answers[0].result)
        print((await demo.app_uu_func()).id, [each.id async for each in demo.app_us_func()])


asyncio.run(main(sys.argv[1]))
