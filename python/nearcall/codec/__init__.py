"""How values become bytes: msgpack through msgspec, raw buffers and numpy arrays out of band."""
