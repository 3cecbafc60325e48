"""Protobuf: which messages Python types become, their ``.proto``, and the compiled codec for them.

The rules are in ``docs/adr/0033-protobuf.md``. Nothing here is imported unless a service is spoken to over gRPC.
"""
