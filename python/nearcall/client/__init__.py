"""The calling side for threads: channels, the clients they carry, their proxies and streams, and spawned children.

What :mod:`nearcall.aio` shares with it, such as options and agreements with the server, is here as well.
"""
