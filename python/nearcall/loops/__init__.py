"""Runs coroutine handlers in an event loop in a thread of its own, for a server or for a client's own objects."""
