"""What the workers of one server ask each other: their statistics, what they have for monitoring systems, and where
they publish (:mod:`.shared`).

A question goes to the parent, which passes it on to all other workers, with a socket. Each answers through that socket,
with a descriptor of memory, so that an answer may have any length. The end of the last copy of the socket tells the
asker that nothing more will come. A worker that has no answer is left out; one that is stuck costs the asker a second.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from .board import Question
from .kept import Kept

__all__ = ["Colleagues", "meet", "part", "when_met"]

PATIENCE = 1.0
"""Seconds that the workers have to answer."""
_LONGEST = 64
"""Bytes of a message with an answer: the worker's number."""


class _Board(Protocol):
    def ask(self, question: Question) -> None: ...


class Colleagues:
    """The other workers, as one of them sees them.

    Args:
        number: Which worker this is.
        count: How many workers there are.
        board: Where questions are asked.
        kept: What the workers keep together.
    """

    def __init__(self, number: int, count: int, board: _Board, kept: Kept) -> None:
        self.number = number
        self.count = count
        self.answers: dict[str, Callable[[float], bytes]] = {}
        """What this worker answers, by the topic of the question. The functions are called in threads of their own."""
        self.kept = kept
        self.leaving: list[Callable[[], object]] = []
        """Called when this worker is about to end, while calls may still be under way. They must not wait."""
        self._board = board
        self._asking = threading.Lock()

    def ask(self, topic: str, argument: float = 0.0) -> dict[int, bytes]:
        """The answers of all others that answer within a second, by their numbers.

        Args:
            topic: What is asked; the workers have a function for it in :attr:`answers`.
            argument: What that function gets.
        """
        answers: dict[int, bytes] = {}
        # One after the other: a client that asks again and again keeps the workers no busier than that.
        with self._asking:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours:
                try:
                    self._board.ask(Question(topic, argument, theirs))
                except OSError:  # the parent is gone
                    return answers
                finally:
                    theirs.close()
                end = time.monotonic() + PATIENCE
                while (left := end - time.monotonic()) > 0:
                    ours.settimeout(left)
                    try:
                        message, files, _, _ = socket.recv_fds(ours, _LONGEST, 1, socket.MSG_CMSG_CLOEXEC)
                    except TimeoutError:
                        break
                    if not message:
                        break
                    for file in files:
                        with open(file, "rb") as memory:
                            answers[int(message)] = memory.read()
        return answers

    def leave(self) -> None:
        """This worker is about to end."""
        for tell in self.leaving:
            tell()

    def hear(self, question: Question) -> None:
        """Answers a question, in a thread of its own: what answers may be the user's code, and take its time."""
        answer = self.answers.get(question.topic)
        if answer is None:
            question.reply.close()
            return
        try:
            threading.Thread(target=self._answer, args=(answer, question), name="nearcall-answer", daemon=True).start()
        except RuntimeError:  # no more threads
            question.reply.close()

    def _answer(self, answer: Callable[[float], bytes], question: Question) -> None:
        with question.reply as reply, contextlib.suppress(OSError):
            # Made anew for each answer: the asker maps nothing, and reads it once.
            memory = os.memfd_create("nearcall-answer", os.MFD_CLOEXEC)
            with open(memory, "w+b") as file:
                file.write(answer(question.argument))
                file.flush()
                file.seek(0)
                reply.settimeout(PATIENCE)
                socket.send_fds(reply, [str(self.number).encode()], [memory])


class _Met(NamedTuple):
    """The colleagues of this process, and who waits for them."""

    colleagues: list[Colleagues]
    waiting: list[Callable[[Colleagues], None]]
    parting: list[Callable[[], None]]


_met = _Met([], [], [])


def when_met(call: Callable[[Colleagues], None], at_end: Callable[[], None]) -> None:
    """Calls a function with the colleagues of this worker, as soon as it serves; and one when it has served. Neither in
    a process that is no worker.
    """
    _met.waiting.append(call)
    _met.parting.append(at_end)
    for colleagues in _met.colleagues:
        call(colleagues)


def meet(colleagues: Colleagues) -> None:
    """This process is a worker that serves."""
    _met.colleagues.append(colleagues)
    for call in _met.waiting:
        call(colleagues)


def part() -> None:
    """This worker has served."""
    for call in _met.parting:
        call()
