"""The calling side for threads: channels, the clients they carry, their proxies and streams, and spawned children.

The parts that :mod:`nearcall.aio` shares, such as options and agreements with the server, are here as well.
"""
