"""``nearcall check OLD NEW``"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

import nearcall

from ..errors import RpcError
from ..service.agreement import MALFORMED, Finding, Sides, service_findings
from ..service.describing import describe
from ..service.description import ServiceInfo
from ..service.reading import read_description
from ..service.service import is_service, plan_of
from . import FAILED, UsageError
from .flags import add_client_options, client_options
from .serve import find

__all__ = ["add_to", "run"]


class _Meeting(NamedTuple):
    """A client of one version and a server of the other."""

    name: str
    older: str
    """Which of them is the old one."""
    findings: list[Finding]

    def breaks(self, finding: Finding) -> bool:
        # What only the newer side uses is new: nobody has it in use.
        return finding.always or finding.user == self.older


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "check",
        help="say what an update of a service would break",
        description="Compare two versions of a service, and say what an update would break: for clients of the old "
        "version at servers of the new one, and the other way round. No method is called.",
        epilog="example: nearcall check shm://users users:Users. The exit status is 0 if nothing breaks, 1 if "
        "something does, 2 if the versions cannot be compared.",
    )
    what = "MODULE:CLASS, FILE.py:CLASS, a file written by `nearcall list URL --json`, or a server's URL"
    parser.add_argument("old", metavar="OLD", help=f"the version in use: {what}")
    parser.add_argument("new", metavar="NEW", help="the next version, given in one of the same ways")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compares, and prints what was found; the exit status."""
    old, new = (_services(target, options) for target in (options.old, options.new))
    common = old.keys() & new.keys()
    if not common:
        raise UsageError(
            f"{options.old} serves {', '.join(old)} and {options.new} serves {', '.join(new)}: "
            "name two versions of one service"
        )
    if len(old) == 1 or len(new) == 1:  # one class beside a server of many
        old, new = ({name: each[name] for name in common} for each in (old, new))
    meetings = [
        _Meeting("old client, new server", "client", _findings(old, new, Sides("the old", "the new"))),
        _Meeting("new client, old server", "server", _findings(new, old, Sides("the new", "the old"))),
    ]
    print(_as_json(meetings) if options.json else "\n".join(_lines(meetings)))
    return FAILED if any(each.breaks(finding) for each in meetings for finding in each.findings) else 0


def _findings(client: dict[str, ServiceInfo], server: dict[str, ServiceInfo], sides: Sides) -> list[Finding]:
    found: list[Finding] = []
    for name, service in client.items():
        if name not in server:
            found.append(Finding(name, f"{sides.server} does not serve {name}", always=False, user="client"))
            continue
        try:
            found += service_findings(service, server[name], sides)
        except MALFORMED:
            raise UsageError(f"one of the two descriptions of {name} is malformed") from None
    return found


def _lines(meetings: list[_Meeting]) -> list[str]:
    lines: list[str] = []
    for meeting in meetings:
        lines.append(f"{meeting.name}:")
        lines += [
            f"  {'breaks' if meeting.breaks(finding) else 'refuses what is new'}: {finding.text}"
            for finding in meeting.findings
        ]
        if not meeting.findings:
            lines.append("  nothing breaks")
    return lines


def _as_json(meetings: list[_Meeting]) -> str:
    found = {
        meeting.name: [
            {"method": finding.method, "breaks": meeting.breaks(finding), "text": finding.text}
            for finding in meeting.findings
        ]
        for meeting in meetings
    }
    return msgspec.json.format(msgspec.json.encode(found)).decode()


def _services(target: str, options: argparse.Namespace) -> dict[str, ServiceInfo]:
    """The services that an argument stands for, by name.

    Raises:
        UsageError: it stands for none.
    """
    try:
        if "://" in target:
            client = cast(Any, nearcall).connect(target, **client_options(options))
            with client:
                description: Any = client.description
        elif target.endswith(".json"):
            description = _read(target)
        else:
            description = describe([plan_of(_load(target))])
        services = {service.name: service for service in read_description(description).services}
    except (RpcError, OSError, TypeError, ValueError) as error:
        raise UsageError(f"{target}: {error}") from None
    if not services:
        raise UsageError(f"{target} serves nothing")
    return services


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _load(target: str) -> type:
    path, _, name = target.partition(":")
    found = _in_file(path, name) if path.endswith(".py") else find(target)
    if not (inspect.isclass(found) and is_service(found)):
        raise UsageError(f"{target} is not a service's class: decorate it with @nearcall.service")
    return found


def _in_file(path: str, name: str) -> object:
    if not name:
        raise UsageError(f"name the class, too: {path}:CLASS")
    # Two versions of a file may be compared, so the module's name is its path.
    spec = importlib.util.spec_from_file_location(path.replace(".", "_"), path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UsageError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look for it there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise UsageError(f"{path} has no '{name}'")
    return getattr(module, name)
