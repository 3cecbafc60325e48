"""Keys that Python's dicts and sets take long to hold, because each goes through all those before it."""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

SHIFT = 5


def tuples(length: int) -> list[tuple[int, ...]]:
    """2**length tuples with one hash: hash(-1) is hash(-2)."""
    return list(itertools.product((-1, -2), repeat=length))


@functools.cache
def ints(bits: int, wide: int = 6) -> list[int]:
    """Ints for a dict of 2**bits places, five eighths as many.

    A dict goes from place to place by i = 5 * i + perturb + 1. Perturb is the hash at first, and loses five bits a
    step. When it has none left, all keys go round in one circle. So the first keys lie side by side on the circle,
    and only such are added that find all their places taken until they come to the circle, and then have far to go.
    """
    size = 1 << bits
    mask = size - 1
    circle, at = [0] * size, [0] * size
    place = 0
    for number in range(size):
        circle[number], at[place] = place, number
        place = (5 * place + 1) & mask
    free = list(range(size + 1))

    def next_free(number: int) -> int:
        while free[number] != number:
            free[number] = free[free[number]]
            number = free[number]
        return number

    keys: list[int] = []
    for number in range(size * 3 // 8):
        keys.append(circle[number])
        free[number] = number + 1
    chance = random.Random(1)
    seen = set(keys)
    while len(keys) < size * 5 // 8:
        key = chance.randrange(1 << (bits + wide))
        place, perturb = key & mask, key
        while perturb and free[at[place]] != at[place]:
            perturb >>= SHIFT
            place = (5 * place + perturb + 1) & mask
        number = at[place]
        end = next_free(number)
        if end - number >= size // 16 and end < size and key not in seen:
            seen.add(key)
            keys.append(key)
            free[end] = end + 1
    return keys


def as_floats(keys: list[int]) -> list[float]:
    """Floats with the hashes of ints."""
    return [float(key) for key in keys]


def packed_map(keys: list[bytes], value: bytes = b"\xc0") -> bytes:
    """A msgpack map of keys that are encoded already."""
    return b"\xdf" + len(keys).to_bytes(4, "big") + b"".join([key + value for key in keys])


def packed_list(items: list[bytes]) -> bytes:
    return b"\xdd" + len(items).to_bytes(4, "big") + b"".join(items)


def extension(code: int, data: bytes) -> bytes:
    return b"\xc9" + len(data).to_bytes(4, "big") + bytes([code]) + data


def argument(encoded: bytes) -> Any:
    """The arguments of a call with one parameter."""
    return b"\x91" + encoded
