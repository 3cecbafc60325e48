"""Protobuf: the messages that stand for Python types, their ``.proto``, and the compiled codec for them.

The rules are in ``docs/adr/0033-protobuf.md``. Clients and servers import it only when they use gRPC or HTTP.
"""
