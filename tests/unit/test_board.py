"""What workers and their parent tell each other, without the processes."""

from __future__ import annotations

import socket
import threading

from nearcall.server.board import Question, State, new_board


def test_a_worker_that_hears_nothing_still_listens() -> None:
    parents, workers = new_board()
    for serving in (True, False):
        parents.tell("calc", serving)
        assert list(workers.heard()) == [State("calc", serving)]
        assert list(workers.heard()) == []
        assert workers.open
    parents.close()
    assert list(workers.heard()) == []
    assert not workers.open
    workers.close()


def test_a_question_waits_for_a_parent_that_is_busy() -> None:
    parents, workers = new_board()
    ours, theirs = socket.socketpair()
    count = 5_000  # more than there is room for

    def ask() -> None:
        for number in range(count):
            workers.ask(Question("topic", number, theirs))

    thread = threading.Thread(target=ask)
    thread.start()
    heard: list[float] = []
    while len(heard) < count:
        for question in parents.heard():
            assert isinstance(question, Question)
            heard.append(question.argument)
            question.reply.close()
    thread.join()
    assert heard == list(range(count))
    for each in (ours, theirs):
        each.close()
    parents.close()
    workers.close()
