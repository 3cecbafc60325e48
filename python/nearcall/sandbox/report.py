"""The report of :func:`nearcall.sandbox.confine`: the state of each layer of the sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, cast

from .._core import sandbox_names

__all__ = ["LAYERS", "Layer", "Report", "SandboxError", "State", "report_of"]

State = Literal["provided", "not_asked", "not_available", "refused"]

LAYERS: Final[tuple[str, ...]] = tuple(sandbox_names()[0])
"""Names of all layers, in the order in which they are applied."""


class SandboxError(RuntimeError):
    """A process could not be confined as its policy asks, or a policy contradicts itself; the message says why.

    If :func:`nearcall.sandbox.confine` raised it, the process may be confined in part: it should end.
    """


@dataclass(frozen=True)
class Layer:
    """One layer, and its state."""

    name: str
    """One of :data:`LAYERS`."""
    state: State
    """``provided``: the layer is in force. ``not_asked``: the policy does not need it. ``not_available``: this kernel
    lacks it. ``refused``: this system has it, and does not let this process use it.
    """
    detail: str
    """What the layer does here, or why it is missing."""


@dataclass(frozen=True)
class Report:
    """The states of all layers. ``dataclasses.asdict`` makes plain values of it; ``str`` a table for people."""

    layers: tuple[Layer, ...]
    """In the order in which they were applied."""

    def missing(self) -> tuple[Layer, ...]:
        """The layers that were asked for and are not in force, which a user should be told."""
        return tuple(layer for layer in self.layers if layer.state in ("not_available", "refused"))

    def provides(self, name: str) -> bool:
        """Whether the layer of that name is in force."""
        return any(layer.name == name and layer.state == "provided" for layer in self.layers)

    def __str__(self) -> str:
        wide = max((len(layer.name) for layer in self.layers), default=0)
        said = (f"{layer.name:{wide}}  {layer.state.replace('_', ' '):13}  {layer.detail}" for layer in self.layers)
        return "\n".join(said)


def report_of(rows: list[tuple[str, str, str]]) -> Report:
    """The report for rows that the core made, or that another process sent."""
    return Report(tuple(Layer(name, cast("State", state), detail) for name, state, detail in rows))
