"""Protobuf's JSON: the same messages of the same types, as text.

The rules are in ``docs/adr/0037-json.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..protocol import MethodCoding, MethodTypes
from .service import Format, ServiceMessages

__all__ = ["Json"]


class Json:
    """The codec of JSON over HTTP: see :class:`nearcall.codec.protocol.Codec`.

    Args:
        strict: For JSON that people write by hand: what a peer sends must be complete and have no unknown names, like
            the arguments of a Python function. Otherwise unknown names are skipped and absence is zero, as generated
            clients expect. This does not change what is sent.
    """

    name = "json"

    def __init__(self, *, strict: bool = False) -> None:
        self._format: Format = "strict json" if strict else "json"

    def service(self, name: str, methods: Sequence[MethodTypes]) -> Mapping[str, MethodCoding]:
        """See :meth:`nearcall.codec.protocol.Codec.service`."""
        return ServiceMessages(name, methods).codings(self._format)
