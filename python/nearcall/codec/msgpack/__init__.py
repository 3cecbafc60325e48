"""msgpack: the codec of nearcall's own transports, with buffers, arrays and references beside it.

What travels is in ``docs/protocol.md``.
"""
