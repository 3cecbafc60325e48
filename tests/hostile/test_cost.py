"""Peers whose messages take far more time than bytes to decode or to answer: nobody else waits for them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from .colliding import argument, extension, ints, packed_list, packed_map, tuples
from .frames import CALL, ERROR, ITEM, NAMED, REPLY, Ext, encode, frame
from .raw import Peer
from .target import Attack, Scene, Table, every

TABLE = Table()
INVALID_ARGUMENT = 3


@functools.cache
def colliding_ints(bits: int = 14) -> bytes:
    return packed_map([encode(key) for key in ints(bits)])


@functools.cache
def colliding_tuples(length: int = 13) -> tuple[bytes, ...]:
    return tuple(encode(key) for key in tuples(length))


def refused(scene: Scene, peer: Peer, method: str, body: bytes, *, call: int = 1, why: str = "collide") -> None:
    flags, parts = (NAMED, []) if body[0] >> 4 == 8 else (0, [])
    peer.send(scene.call(peer, method, body, call=call, flags=flags, parts=parts))
    answer = peer.receive(20)
    assert (answer.kind, answer.rest[0]) == (ERROR, INVALID_ARGUMENT), f"{method}: {answer.kind} {answer.rest[:200]!r}"
    assert why.encode() in answer.rest, f"{method}: {answer.rest[:200]!r}"


@TABLE.add(terminate=True)
def ints_that_collide(scene: Scene) -> None:
    peer = scene.connect()
    for number in range(scene.amount(1, 20)):
        refused(scene, peer, "anything", argument(colliding_ints()), call=number)
        refused(scene, peer, "numbered", argument(colliding_ints()), call=number)


@TABLE.add()
def ints_that_collide_in_a_call_by_name(scene: Scene) -> None:
    peer = scene.connect()
    for method, name in (("anything", "value"), ("numbered", "values")):
        refused(scene, peer, method, b"\x81" + encode(name) + colliding_ints())


@TABLE.add()
def ints_that_collide_deep_inside(scene: Scene) -> None:
    peer = scene.connect()
    inner = colliding_ints()
    for number, body in enumerate([b"\x91" + inner, b"\x81\x05" + inner, extension(4, b"\x91" + inner)]):
        refused(scene, peer, "anything", argument(body), call=number)
        refused(scene, peer, "numbered", argument(b"\x81\x01" + body), call=number)


@TABLE.add(terminate=True)
def tuples_of_one_hash(scene: Scene) -> None:
    peer = scene.connect()
    keys = list(colliding_tuples())
    for number in range(scene.amount(1, 5)):
        refused(scene, peer, "members", argument(packed_list(keys)), call=number)
        refused(scene, peer, "anything", argument(packed_map(keys)), call=number)
        sets = extension(5, packed_list([extension(4, key) for key in keys]))
        refused(scene, peer, "anything", argument(sets), call=number)


@TABLE.add()
def tuples_of_one_hash_before_a_fault(scene: Scene) -> None:
    """A decoder makes of a message what comes before its fault."""
    peer = scene.connect()
    keys = list(colliding_tuples())
    for number, body in enumerate([packed_map(keys)[:-1], packed_map([*keys, b"\xc1"]), packed_map([*keys, b"\x80"])]):
        refused(scene, peer, "anything", argument(body), call=number)


@TABLE.add()
def decimals_that_collide(scene: Scene) -> None:
    peer = scene.connect()
    refused(scene, peer, "prices", argument(packed_map([encode(str(key)) for key in ints(14)])))
    packed = [encode(Ext(7, encode(["decimal", str(key)]))) for key in ints(14)]
    refused(scene, peer, "anything", argument(packed_map(packed)))


@TABLE.add()
def just_as_many_collisions_as_are_allowed(scene: Scene) -> None:
    """What is let through costs milliseconds."""
    peer = scene.connect()
    body = argument(packed_map(list(colliding_tuples(9))))
    for number in range(scene.amount(3, 50)):
        peer.send(scene.call(peer, "anything", body, call=number, parts=[]))
        peer.receive(20)


@TABLE.add()
def items_that_are_none(scene: Scene) -> None:
    """A method whose types have no keys looks at none, and refuses them anyway."""
    peer = scene.connect()
    peer.send(scene.call(peer, "total"), frame(ITEM, colliding_ints()))
    peer.send(frame(CALL, argument(colliding_ints()), method=peer.methods["nap"], call=2))
    assert all(one.kind in (ERROR, REPLY) for one in peer.received_all())


@TABLE.add(terminate=True)
def looks_at_the_server_without_a_pause(scene: Scene) -> None:
    """The core answers them by itself, and the others get the interpreter meanwhile."""
    peers = [scene.connect() for _ in range(4)]
    end = time.monotonic() + scene.seconds
    while time.monotonic() < end:
        for peer in peers:
            peer.send(*[scene.call(peer, "read", call=number) for number in range(100)])
        for peer in peers:
            assert all(peer.receive(20).kind == REPLY for _ in range(100))


@every(TABLE)
def test_nobody_waits_for_a_decoder(attack: Attack, transport: str, attempt: Callable[[Attack, str], None]) -> None:
    attempt(attack, transport)
