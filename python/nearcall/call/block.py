"""What the blocks around calls have in common: they nest, and apply to the thread or task that entered them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import _core

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Block"]

V = TypeVar("V")


class Block(ABC, Generic[V]):
    """A ``with`` statement that sets a variable for the calls inside it. It may be used again, but not inside itself.

    Raises:
        RuntimeError: it is entered while it is in use.
    """

    __slots__ = ("_token",)

    _variable: ContextVar[V | None]
    """Holds the value of the innermost block; the core reads it with every call."""

    def __init__(self) -> None:
        self._token: Token[V | None] | None = None

    @abstractmethod
    def _inside(self, outer: V | None) -> V:
        """The variable's value inside the block, from its value outside."""

    def __enter__(self) -> Self:
        if self._token is not None:
            name = type(self).__name__
            raise RuntimeError(f"this {name} block is in use already; make a new one with nearcall.{name}(...)")
        self._token = self._variable.set(self._inside(self._variable.get()))
        _core.note_block()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            self._variable.reset(self._token)
            self._token = None

    if not TYPE_CHECKING:  # a type checker refuses it by itself

        def __aenter__(self) -> Any:
            name = f"nearcall.{type(self).__name__}"
            raise TypeError(f"{name} is used with an ordinary 'with', in an event loop too: write 'with {name}(...):'")

        __aexit__ = __aenter__
