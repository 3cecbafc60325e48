"""A chat room: a guest passes an object that the room calls, and gets an object that is its place there.

    python examples/chat.py serve
    python examples/chat.py

It prints::

    bob hears ada: hello
    ada hears bob: hello yourself
    bob hears that ada has left
"""

import sys
import threading
from queue import SimpleQueue
from typing import Protocol

import nearcall

URL = "shm://example-chat"


@nearcall.service
class Listener(Protocol):
    """What a guest passes."""

    def said(self, who: str, text: str) -> None: ...
    @nearcall.oneway
    def left(self, who: str) -> None: ...


@nearcall.service
class Seat(Protocol):
    """What a guest gets."""

    def say(self, text: str) -> int: ...


@nearcall.service
class Room(Protocol):
    def join(self, name: str, listener: Listener) -> Seat: ...


class ChatRoom(Room):
    def __init__(self) -> None:
        self._change = threading.Lock()
        self._listeners: dict[str, Listener] = {}

    def join(self, name: str, listener: Listener) -> Seat:
        with self._change:
            if name in self._listeners:
                raise nearcall.AlreadyExists(f"{name} is here already")
            self._listeners[name] = listener
        return ChatSeat(self, name)

    def others(self, name: str) -> list[Listener]:
        with self._change:
            return [listener for other, listener in self._listeners.items() if other != name]

    def leave(self, name: str) -> None:
        with self._change:
            del self._listeners[name]
        for listener in self.others(name):
            listener.left(name)


class ChatSeat(Seat):
    def __init__(self, room: ChatRoom, name: str) -> None:
        self._room = room
        self._name = name

    def say(self, text: str) -> int:
        others = self._room.others(self._name)
        for listener in others:
            listener.said(self._name, text)  # returns when the other guest has heard it
        return len(others)

    def close(self) -> None:
        """The guest has let go of the seat, or is gone."""
        self._room.leave(self._name)


class Printer(Listener):
    """A guest's ears."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.gone: SimpleQueue[str] = SimpleQueue()

    def said(self, who: str, text: str) -> None:
        print(f"{self._name} hears {who}: {text}")

    def left(self, who: str) -> None:
        self.gone.put(who)


def main() -> None:
    with nearcall.connect(URL, Room) as room:
        bobs_ears = Printer("bob")
        ada, bob = room.join("ada", Printer("ada")), room.join("bob", bobs_ears)
        ada.say("hello")
        bob.say("hello yourself")
        nearcall.release(ada)  # or 'del ada', or the end of the connection
        print("bob hears that", bobs_ears.gone.get(), "has left")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(ChatRoom(), URL)
    else:
        main()
