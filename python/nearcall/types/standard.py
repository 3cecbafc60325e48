"""Classes of Python's library and of others' that travel as another type without being registered.

They are known by name: nothing is imported.
"""

from __future__ import annotations

from .carried import CarriedType

__all__ = ["standard_type"]


def standard_type(cls: type) -> CarriedType | None:
    """How objects of a well-known class travel; ``None`` if the class is none of these."""
    return None
