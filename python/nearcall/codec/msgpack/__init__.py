"""msgpack: the codec of nearcall's own transports, with buffers, arrays and references beside it.

``docs/protocol.md`` has the format.
"""
