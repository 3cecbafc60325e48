"""``nearcall check OLD NEW``"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

import nearcall

from ..errors import RpcError
from ..service.agreement import MALFORMED, Finding, Sides, service_findings
from ..service.describing import describe
from ..service.description import Description, ServiceInfo
from ..service.reading import read_description
from ..service.references import passed_in, services_passed
from ..service.service import is_service, plan_of
from . import FAILED, UsageError
from .finding import find, in_module
from .flags import add_client_options, client_options

if TYPE_CHECKING:
    from ..codec.protobuf.service import ServiceMessages

__all__ = ["add_to", "run", "service_messages"]


class _Version(NamedTuple):
    """One version of a server."""

    description: Description
    services: dict[str, ServiceInfo]
    """The services that are compared, by name."""

    def passed(self) -> dict[str, ServiceInfo]:
        """The services whose objects travel as references, by name."""
        return {service.name: service for service in self.description.passed}


class _Meeting(NamedTuple):
    """A client of one version and a server of the other."""

    name: str
    older: str
    """Which of the two sides has the old version."""
    findings: list[Finding]

    def breaks(self, finding: Finding) -> bool:
        # A difference that only the newer side uses is new, so that nobody uses it yet.
        return finding.always or finding.user == self.older


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "check",
        usage="nearcall check [options] OLD NEW",
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
    parser.add_argument(
        "--proto",
        action="store_true",
        help="say what breaks over gRPC, for peers with the old version's .proto; both versions are given as classes",
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compares, and prints what was found; returns the exit status."""
    if options.proto:
        return _run_proto(options)
    old, new = (_version(target, options) for target in (options.old, options.new))
    common = old.services.keys() & new.services.keys()
    if not common:
        raise UsageError(
            f"{options.old} serves {', '.join(old.services)} and {options.new} serves {', '.join(new.services)}: "
            "name two versions of one service"
        )
    if len(old.services) == 1 or len(new.services) == 1:  # one class beside a server of many
        old, new = (
            each._replace(services={name: each.services[name] for name in each.services if name in common})
            for each in (old, new)
        )
    meetings = [
        _Meeting("old client, new server", "client", _findings(old, new, Sides("the old", "the new"))),
        _Meeting("new client, old server", "server", _findings(new, old, Sides("the new", "the old"))),
    ]
    print(_as_json(meetings) if options.json else "\n".join(_lines(meetings)))
    return FAILED if any(each.breaks(finding) for each in meetings for finding in each.findings) else 0


def _run_proto(options: argparse.Namespace) -> int:
    from ..codec.protobuf.changes import changes

    found = changes(*(service_messages(target) for target in (options.old, options.new)))
    if options.json:
        print(msgspec.json.format(msgspec.json.encode([change._asdict() for change in found])).decode())
    else:
        print("\n".join(f"breaks: {change.text}" for change in found) or "nothing breaks")
    return FAILED if found else 0


def service_messages(target: str) -> ServiceMessages:
    """The messages of a service's class over gRPC.

    Raises:
        UsageError: there is no such class, or it cannot be served over gRPC.
    """
    from ..codec.protobuf.service import ServiceMessages

    plan = plan_of(_load(target))
    try:
        types = [method.types for method in plan.methods if method.types is not None]
        return ServiceMessages(plan.name, types, plan.doc)
    except TypeError as error:
        raise UsageError(str(error)) from None


def _findings(client: _Version, server: _Version, sides: Sides) -> list[Finding]:
    found: list[Finding] = []
    for name, service in client.services.items():
        if name not in server.services:
            found.append(Finding(name, f"{sides.server} does not serve {name}", always=False, user="client"))
        else:
            found += _compare(service, server.services[name], sides)
    called, implemented = passed_in(client.description, client.services)
    ours, theirs = client.passed(), server.passed()
    # If only one side passes objects of a service, the methods that do so differ, and are found above.
    for name in called:
        if name in theirs:
            found += _compare(ours[name], theirs[name], sides)
    for name in implemented:
        if name in theirs:  # the server calls them, so that the roles are exchanged
            for finding in _compare(theirs[name], ours[name], Sides(sides.server, sides.client)):
                found.append(finding._replace(user="client" if finding.user == "server" else "server"))
    return list(dict.fromkeys(found))


def _compare(caller: ServiceInfo, called: ServiceInfo, sides: Sides) -> list[Finding]:
    try:
        return service_findings(caller, called, sides)
    except MALFORMED:
        raise UsageError(f"one of the two descriptions of {caller.name} is malformed") from None


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


def _version(target: str, options: argparse.Namespace) -> _Version:
    """The version that an argument of the command stands for.

    Raises:
        UsageError: there is no such version.
    """
    try:
        if "://" in target:
            client = cast(Any, nearcall).connect(target, **client_options(options))
            with client:
                description: Any = client.description
        elif target.endswith(".json"):
            description = _read(target)
        else:
            plan = plan_of(_load(target))
            description = describe([plan], None, services_passed([plan]))
        read = read_description(description)
    except (RpcError, OSError, TypeError, ValueError) as error:
        raise UsageError(f"{target}: {error}") from None
    if not read.services:
        raise UsageError(f"{target} serves nothing")
    return _Version(read, {service.name: service for service in read.services})


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _load(target: str) -> type:
    """The service's class that ``module:name`` or ``file.py:name`` stands for.

    Raises:
        UsageError: there is no such version.
    """
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
    if (folder := str(Path(path).absolute().parent)) not in sys.path:
        sys.path.insert(0, folder)  # for the modules beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return in_module(module, name, path)
