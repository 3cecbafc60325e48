"""A topic, for builds that have them."""

from __future__ import annotations

from collections.abc import Iterator

import nearcall


@nearcall.service
class News:
    def __init__(self) -> None:
        self._topic: nearcall.Topic[list[int]] = nearcall.Topic(keep_last=True)
        self._topic.publish([0])

    def watch(self) -> Iterator[list[int]]:
        return self._topic.subscribe()

    def publish(self, n: int) -> None:
        for number in range(n):
            self._topic.publish([number])
