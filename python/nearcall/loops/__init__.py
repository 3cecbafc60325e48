"""What runs coroutine handlers: an event loop in a thread of its own, for a server or for a client's own objects."""
