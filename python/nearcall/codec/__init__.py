"""How values become bytes: msgpack through msgspec, with raw buffers and numpy arrays beside the message."""
