"""The methods of a server in further codecs than msgpack, for the URLs that need them, and for clients that want them.

An entry of a server's methods is a method in one codec. Its place is the number that nearcall's own transports call it
by: those in msgpack come first, and the description says where those of another codec begin. What HTTP calls is found
by its path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from .._core import HealthMethod
from ..call.codecs import chosen_codec
from ..call.interceptors import Chain, intercept_handler
from ..codec.protocol import Codec
from ..codec.table import CodecName
from ..codec.values import ValueCodec
from ..errors import InvalidArgument
from ..options.checked import with_option
from ..options.schemes import speaks_http, speaks_protobuf
from ..service.making import in_codec
from ..service.plan import BIDI_STREAM, SERVER_STREAM, MethodPlan
from .instances import Served, handler_of

__all__ = ["Entry", "PathEntry", "check_codecs", "codecs_for", "coded_entries", "own_entries"]


class PathEntry(NamedTuple):
    """A method as the core finds it by its path."""

    number: int
    """Its place among the server's methods."""
    streams_in: bool
    """The client sends a stream."""
    arguments_first: bool
    """That stream begins with the arguments."""
    streams_out: bool
    """The server sends a stream."""
    no_side_effects: bool
    """It changes nothing: it may be called by GET."""


class Entry(NamedTuple):
    """A method in a codec."""

    path: str
    """``/package.Service/Method``; empty if it is called by its number."""
    plan: MethodPlan
    handler: Any
    """The handler, which is that of the same method in msgpack."""
    kind: str
    """The method's own kind. A one-way method answers over HTTP, and is still measured as the same method."""
    errors: tuple[type[Exception], ...]
    """The service's own exceptions."""
    measured: bool = True
    """Whether its calls are measured; those of the server's own services are not."""

    def numbered(self, number: int) -> PathEntry:
        """This entry for the core, with its number among the server's methods."""
        streams_in = self.plan.request_item is not None
        return PathEntry(
            number,
            streams_in=streams_in,
            arguments_first=streams_in and bool(self.plan.arguments.names),
            streams_out=self.kind in (SERVER_STREAM, BIDI_STREAM),
            no_side_effects=self.plan.no_side_effects,
        )


def codecs_for(urls: Sequence[str]) -> dict[str, Codec]:
    """The codecs besides msgpack that these URLs need, by the core's names for them."""
    if not any(map(speaks_protobuf, urls)):
        return {}
    from ..codec.protobuf.service import Protobuf  # only where it is needed

    if not any(map(speaks_http, urls)):
        return {"proto": Protobuf()}
    from ..codec.protobuf.json import Json

    # Programs write "json": they leave zeros out, and may know more names than the server. People write "plain json":
    # it is strict, because they misspell names.
    return {"proto": Protobuf(), "json": Json(), "plain json": Json(strict=True)}


def check_codecs(urls: Sequence[str], codecs: Sequence[CodecName | ValueCodec]) -> list[Codec]:
    """The option ``codecs``: those besides msgpack.

    Raises:
        InvalidArgument: there is none of that name, or two have one name.
        TypeError: one is no codec, or a single one was given in place of a list.
        ValueError: none of the URLs is nearcall's own.
    """
    if isinstance(codecs, str) or not isinstance(cast(object, codecs), Sequence):
        raise with_option(TypeError(f"codecs takes a list: write codecs=[{codecs!r}]"), "codecs")
    found = [chosen_codec("codecs", codec) for codec in codecs]
    names = [codec.name for codec in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise with_option(InvalidArgument(f"codecs: two have the name '{twice}'"), "codecs")
    if found and all(map(speaks_protobuf, urls)):
        raise with_option(ValueError("codecs is for nearcall's own URLs, and there is none"), "codecs")
    return [codec for codec in found if codec.name != "msgpack"]


def coded_entries(
    served: Sequence[Served],
    handlers: Sequence[tuple[MethodPlan, Any]],
    codec: Codec,
    *,
    by_path: bool = True,
) -> list[Entry]:
    """The entries of everything that is served, in a codec, in the order of its methods.

    Args:
        served: The services.
        handlers: The plans of their methods in msgpack, each with its handler; others may follow.
        codec: The codec.
        by_path: Whether they are found by their paths, and not by numbers.

    Raises:
        TypeError: a method has no counterpart in the codec; the message is one line that names the method and the
            parameter.
    """
    found = list[Entry]()
    rest = iter(handlers)
    for each in served:
        own = [next(rest) for _ in each.plan.methods]
        if by_path and each.plan.encoded and codec.name != "protobuf":
            continue  # the messages of such a service are Protobuf
        try:
            coded = in_codec(each.plan, codec, by_path=by_path)
        except TypeError as error:
            if by_path:
                raise
            raise with_option(TypeError(f"codecs: in {codec.name}, {error}"), "codecs") from None
        for plan, (method, handler) in zip(coded.methods, own, strict=True):
            found.append(Entry(plan.path or "", plan, handler, method.kind, each.plan.errors))
    return found


def own_entries(own: Sequence[Served], chain: Chain) -> list[Entry]:
    """The entries, in Protobuf, of the services that a server itself provides at its gRPC URLs.

    Args:
        own: The services. A method that the core answers has no interceptors around it.
        chain: The server's interceptors.
    """
    from ..codec.protobuf.service import Protobuf  # only where it is needed

    def handler(each: Served, method: MethodPlan) -> Any:
        found: Any = handler_of(each, method)
        return found if isinstance(found, HealthMethod) else intercept_handler(chain, method, found)

    handlers = [(method, handler(each, method)) for each in own for method in each.plan.methods]
    return [entry._replace(measured=False) for entry in coded_entries(own, handlers, Protobuf())]
