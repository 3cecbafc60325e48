"""``nearcall call URL Service.method '{"a": 1}'``"""

from __future__ import annotations

import argparse
import base64
import contextlib
import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

import nearcall

from ..codec.protocol import NOTHING
from ..service.description import MethodInfo, ServiceInfo, StreamInfo
from ..service.plan import BIDI_STREAM, ONEWAY, SERVER_STREAM
from ..types.guards import is_dict, is_list
from ..types.shown import shown_json
from . import UsageError
from .flags import add_client_options
from .remote import connected, find_method, remote_method
from .standard_input import lines, named_text
from .values import example, from_json, has_fields, to_json

__all__ = ["add_to", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "call",
        usage="nearcall call [options] URL SERVICE.METHOD [JSON | @FILE | -]",
        help="call a method and print its result as JSON",
        description="Call a method and print its result as JSON; the items of a stream one per line.",
        epilog=(
            'example: nearcall call shm://calc Calculator.add \'{"a": 1, "b": 2}\'. A stream to the server is read '
            "from standard input, one JSON value per line, unless it is among the arguments as a list. Bytes are "
            'written as a string, or as {"base64": "..."}. At a URL of gRPC the JSON is the message, or a list of them.'
        ),
    )
    parser.add_argument("url", metavar="URL", help="where the server is")
    parser.add_argument("method", metavar="SERVICE.METHOD", help="what to call")
    parser.add_argument(
        "arguments",
        nargs="?",
        default="{}",
        metavar="JSON | @FILE | -",
        help="an object of arguments by name, or an array; a file with it, or standard input",
    )
    parser.add_argument("-t", "--timeout", type=float, metavar="S", help="give up after so many seconds")
    parser.add_argument(
        "-m",
        "--metadata",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="send this beside the arguments; repeatable; the value is base64 where the key ends in -bin",
    )
    parser.add_argument("--raw", action="store_true", help="write bytes as they are, not as JSON")
    parser.instead = "write all in one, as '[1, 2]' or '{\"a\": 1, \"b\": 2}'"
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Calls the method and prints its result."""
    arguments = read_arguments(options.arguments)
    if options.timeout is not None and options.timeout <= 0:
        raise UsageError(f"--timeout {options.timeout}: it must be more than 0 seconds")
    metadata = read_metadata(options.metadata)
    with connected(options) as (client, description):
        service, method = find_method(description, options.method)
        # A client of gRPC knows its messages by itself.
        dynamic = not hasattr(client, "arguments")
        args, kwargs = (_convert if dynamic else client.arguments)(arguments, service, method)
        function = remote_method(client, service, method)
        limit: Any = contextlib.nullcontext()
        if options.timeout is not None:
            limit = cast(Any, nearcall).timeout(options.timeout)
        with limit, nearcall.metadata(metadata) if metadata else contextlib.nullcontext():
            try:
                result = function(*args, **kwargs)
            except nearcall.InvalidArgument as error:
                # What the handler itself refuses is no matter of the shape.
                if dynamic and (hint := _shape(service, method)) and f"{method.name}(): " in error.message:
                    raise nearcall.InvalidArgument(f"{error.message}; {hint}", details=error.details) from error
                raise
            if method.kind in (SERVER_STREAM, BIDI_STREAM):
                for item in result:
                    _print(item, raw=options.raw)
            elif method.kind != ONEWAY and method.returns.form != NOTHING:
                _print(result, raw=options.raw)


def read_arguments(text: str) -> dict[str, Any] | list[Any]:
    """The arguments as written, in a file or at standard input: by name or by position.

    Raises:
        UsageError: there is no such file, the text is not JSON, or neither an object nor an array.
    """
    given, text = text, named_text(text)
    where = "" if given is text else f" in {'standard input' if given == '-' else given[1:]}"
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(
            f"the arguments{where} are not JSON ({error}): write them like '{{\"a\": 1}}' or '[1]'"
        ) from None
    if is_dict(value) or is_list(value):
        return value
    single = f"write [{text}]" if not where else "put brackets around it"
    raise UsageError(f"the arguments{where} are neither an object nor an array: {single} for a single argument")


def read_metadata(given: list[str]) -> list[tuple[str, str | bytes]]:
    """Metadata as written, ``KEY=VALUE``.

    Raises:
        UsageError: it is not of that form, cannot be sent, or is not base64 for a key of bytes.
    """
    pairs: list[tuple[str, str | bytes]] = []
    for each in given:
        key, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--metadata {each}: write KEY=VALUE")
        try:
            pairs.append((key, base64.b64decode(value, validate=True) if key.endswith("-bin") else value))
        except ValueError:
            raise UsageError(f"--metadata {each}: a key that ends in -bin takes bytes, written in base64") from None
    try:
        nearcall.metadata(pairs)
    except ValueError as error:
        raise UsageError(f"--metadata: {error}") from None
    return pairs


def _convert(
    arguments: dict[str, Any] | list[Any], service: ServiceInfo, method: MethodInfo
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as Python values. The call itself raises errors about missing or surplus arguments."""
    schemas = {parameter.name: parameter.schema for parameter in method.parameters}
    order = [parameter.name for parameter in method.parameters]
    stream = method.stream
    if isinstance(arguments, list):
        if stream is not None and len(arguments) < len(order) + 1:
            arguments.insert(stream.position, None)
        if stream is not None:
            order.insert(stream.position, stream.name)
        names: Iterable[str | None] = [*order, *([None] * len(arguments))]
        given = list(zip(names, arguments, strict=False))
    else:
        given = [(name, value) for name, value in arguments.items()]
        if stream is not None and stream.name not in arguments:
            given.append((stream.name, None))
    values: list[Any] = []
    for name, value in given:
        if stream is not None and name == stream.name:
            values.append(_stream(stream, value, service))
        else:
            try:
                values.append(from_json(value, schemas.get(name or "", "any"), service.types))
            except ValueError as error:
                raise UsageError(f"argument '{name}': {error}") from None
    if isinstance(arguments, list):
        return values, {}
    positional_only = [parameter.name for parameter in method.parameters if not parameter.by_name]
    if stream is not None and not stream.by_name:
        positional_only.insert(stream.position, stream.name)
    by_name = {cast(str, name): value for (name, _), value in zip(given, values, strict=True)}
    leading = [by_name.pop(name) for name in positional_only if name in by_name]
    return leading, by_name


def _shape(service: ServiceInfo, method: MethodInfo) -> str:
    """How to write the only argument of a method, if it has fields: these are easily taken for arguments."""
    if method.stream is not None or len(method.parameters) != 1:
        return ""
    (parameter,) = method.parameters
    if not has_fields(parameter.schema):
        return ""
    value = example(parameter.schema, service.types)
    written: Any = {parameter.name: value} if parameter.by_name else [value]
    return f"write for example {shlex.quote(msgspec.json.encode(written).decode())}"


def _stream(stream: StreamInfo, value: Any, service: ServiceInfo) -> Iterator[Any]:
    if value is None:
        return _from_stdin(stream, service)
    if not is_list(value):
        raise UsageError(f"argument '{stream.name}' is a stream: write a list, or leave it out to read standard input")
    return iter([from_json(item, stream.schema, service.types) for item in value])


def _from_stdin(stream: StreamInfo, service: ServiceInfo) -> Iterator[Any]:
    for number, line in lines():
        try:
            yield from_json(msgspec.json.decode(line), stream.schema, service.types)
        except (msgspec.DecodeError, ValueError) as error:
            raise UsageError(f"standard input, line {number}: {error}") from None


def _print(value: Any, *, raw: bool) -> None:
    if raw and isinstance(value, (bytes, bytearray, memoryview)):
        sys.stdout.buffer.write(cast(Any, value))
        sys.stdout.buffer.flush()
        return
    print(shown_json(to_json(value).decode()), flush=True)
