"""Who may connect, and by which way."""

from __future__ import annotations

import pytest

import nearcall

from .services import Basics


def test_plaintext_beyond_this_machine_has_to_be_asked_for() -> None:
    with pytest.raises(nearcall.InvalidArgument, match=r"other machines can reach 0\.0\.0\.0.*allow_plaintext=True"):
        nearcall.Server(Basics(), "tcp://0.0.0.0:0").start()
    with nearcall.Server(Basics(), "tcp://0.0.0.0:0", allow_plaintext=True) as server:
        with pytest.raises(nearcall.InvalidArgument, match=r"0\.0\.0\.0 is not this machine.*allow_plaintext=True"):
            nearcall.connect(server.urls[0])
        with nearcall.connect(server.urls[0], Basics, allow_plaintext=True) as basics:
            assert basics.add(1) == 6


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
def test_loopback_needs_no_permission(host: str) -> None:
    server = nearcall.Server(Basics(), f"tcp://{host}:0")
    try:
        server.start()
    except OSError as error:  # no IPv6 here
        pytest.skip(str(error))
    with nearcall.connect(server.urls[0], Basics) as basics:
        assert basics.add(1) == 6
    assert server.stop()
