"""Which keys go together, and which mechanism can run which cell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from nearcall_lab.contract import Mechanism, Operation
from nearcall_lab.scenario.cell import Cell, ModeKind, Network

DEFAULT_MODE: Mapping[Operation, ModeKind] = {
    "echo": "closed",
    "quote": "closed",
    "wait": "closed",
    "count": "stream",
    "send": "one-way",
}

_CALLS: tuple[ModeKind, ...] = ("closed", "open", "burst")
_MODES_OF: Mapping[Operation, tuple[ModeKind, ...]] = {
    "echo": (*_CALLS, "connect", "mixed"),
    "quote": (*_CALLS, "connect"),
    "wait": _CALLS,
    "count": ("stream",),
    "send": ("one-way",),
}

_OPERATIONS_WITH: Mapping[str, tuple[Operation, ...]] = {
    "size": ("echo", "send"),
    "items": ("count",),
    "delay_s": ("wait",),
}

_MODES_WITH: Mapping[str, tuple[ModeKind, ...]] = {
    "sizes": ("mixed",),
    "rate": ("open", "one-way"),
    "arrivals": ("open", "one-way"),
    "outstanding": ("closed", "open", "burst", "stream", "mixed"),
    "extra_copy": ("one-way",),
    "callers": ("closed", "open"),
}

SMALLEST_MESSAGE = 16
"""Bytes that the receiving side of the lab reads of each message; see `Spec.receive`."""

MOST_BEHIND_RELAY = 400
"""Connections that the relay of a network waits for at once: select(2) knows 1024 descriptors."""

_TRACK_OF: Mapping[Operation, str] = {"echo": "raw", "send": "raw", "quote": "objects"}
"""Operations that are not listed carry only numbers and belong to both tracks."""


def _listed(names: Collection[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def contradiction(given: Mapping[str, Any], operation: Operation, mode: ModeKind, track: str) -> tuple[str, str]:
    """The key at fault and why the combination cannot be; two empty texts where it can.

    `given` has the keys that are in the table, each with one value.
    """
    if mode not in _MODES_OF[operation]:
        can = ", ".join(f"{kind} takes {_listed(ops)}" for kind, ops in _operations_by_mode().items() if kind == mode)
        return "mode", f'mode "{mode}" cannot run operation "{operation}"; {can}'
    if track != "both" and _TRACK_OF.get(operation, track) != track:
        return "operation", f'operation "{operation}" is not of the track "{track}" that [run] names'
    for key, operations in _OPERATIONS_WITH.items():
        if key in given and (operation not in operations or mode == "mixed"):
            where = f'mode "{mode}"' if operation in operations else f'operation "{operation}"'
            return key, f"{key} means nothing to {where}; it belongs to {_listed(operations)}"
    for key, modes in _MODES_WITH.items():
        if key in given and mode not in modes:
            return key, f'{key} means nothing in mode "{mode}"; it belongs to {_listed(modes)}'
    for required in _required(operation, mode):
        if required not in given:
            return required, f'{required} is missing; operation "{operation}" in mode "{mode}" needs it'
    if operation == "send" and given["size"] < SMALLEST_MESSAGE:
        return "size", f"size is {given['size']}; one-way messages carry number and time, {SMALLEST_MESSAGE} bytes"
    if mode == "burst" and given.get("outstanding", 1) * given.get("connections", 1) == 1:
        return (
            "outstanding",
            'a burst over one connection with one call outstanding is one by one; mode "closed" does that',
        )
    if given.get("client_processes", 1) > given.get("connections", 1):
        return "client_processes", (
            f"client_processes is {given['client_processes']} for {given.get('connections', 1)} connection(s); "
            "it can be at most as many"
        )
    if "callers" in given and given.get("outstanding", 1) > 1:
        return "outstanding", "outstanding means nothing with callers, each of which has one call under way"
    if given.get("callers", given.get("client_processes", 1)) < given.get("client_processes", 1):
        return "callers", (
            f"callers is {given['callers']} for {given['client_processes']} client processes; each needs one"
        )
    if given.get("network", Network()) != Network() and given.get("same_process"):
        return "network", "network means nothing where server and client are in one process"
    if given.get("network", Network()) != Network() and given.get("connections", 1) > MOST_BEHIND_RELAY:
        return "connections", f"connections is {given['connections']}; a network carries {MOST_BEHIND_RELAY} at most"
    if given.get("hosts") and given.get("same_process"):
        return "hosts", "hosts means nothing where server and client are in one process"
    if "arrivals" in given and mode == "one-way" and "rate" not in given:
        return "arrivals", "arrivals means nothing without rate: messages go as fast as they can"
    return "", ""


def _required(operation: Operation, mode: ModeKind) -> list[str]:
    of_mode = {"open": ["rate"], "burst": ["calls"], "mixed": ["sizes"]}.get(mode, [])
    of_operation = {"count": ["items"], "wait": ["delay_s"], "send": ["size"], "echo": ["size"]}.get(operation, [])
    return of_mode if mode in ("connect", "mixed") else of_mode + of_operation


def _operations_by_mode() -> dict[ModeKind, list[Operation]]:
    found: dict[ModeKind, list[Operation]] = {}
    for operation, modes in _MODES_OF.items():
        for mode in modes:
            found.setdefault(mode, []).append(operation)
    return found


def unsupported(cell: Cell, mechanism: Mechanism) -> tuple[str, str]:
    """The key at fault and why this mechanism cannot run the cell; two empty texts where it can."""
    work, mode = cell.work, cell.mode
    if work.operation not in mechanism.operations:
        return "operation", f"has no {work.operation}, only {', '.join(mechanism.operations)}"
    if mode.outstanding > 1 and not mechanism.concurrent_calls:
        return "outstanding", (
            f"takes one call at a time on a connection, so outstanding cannot be {mode.outstanding}; "
            "give it more connections"
        )
    if cell.network != Network() and (mechanism.transport not in ("TCP", "") or mechanism.same_process):
        return "network", f"goes by {mechanism.transport or 'no transport'}, and a network is put in the way of TCP"
    if mode.client_processes > 1 and (mechanism.same_process or cell.same_process):
        return "client_processes", "is served in the client's process, of which there is one"
    return "", ""
