"""Authentication with tokens, as interceptors for both sides."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any, cast

from .call.interceptors import CallInfo, ClientCall, Proceed, ServerCall
from .errors import Unauthenticated
from .options.names import checks_names

__all__ = ["token"]

_KEY = "authorization"
_SCHEME = "Bearer"


@checks_names
def token(*tokens: str, check: Callable[[str], object] | None = None) -> Callable[[CallInfo, Proceed], Any]:
    """An interceptor that sends a token at a client, and demands one at a server::

        nearcall.Server(Calculator(), url, interceptors=[nearcall.auth.token(secret)])
        nearcall.connect(url, Calculator, interceptors=[nearcall.auth.token(secret)])

    The token is sent as the metadata ``authorization: Bearer TOKEN``, as in gRPC and HTTP. Use it where nobody can
    listen: on one machine, or over an encrypted connection.

    Args:
        tokens: A client sends the first. A server accepts each of them, so that an old one can be replaced without an
            interruption; comparing takes the same time, whether a token is right or wrong.
        check: For servers: called with any other token; a true result accepts it. It may also raise an error of its
            own, such as ``PermissionDenied``.

    Raises:
        ValueError: a token is empty, or has characters other than visible ASCII ones; or none is given.
    """
    if not tokens and check is None:
        raise ValueError("give a token, or a function with check=...")
    for each in cast("tuple[object, ...]", tokens):
        if not isinstance(each, str) or not each or not all("!" <= letter <= "~" for letter in each):
            raise ValueError("a token is a str of one or more visible ASCII characters")  # never show it
    accepted = [each.encode() for each in tokens]

    def authenticate(call: CallInfo, proceed: Proceed) -> Any:
        if isinstance(call, ClientCall):
            if not tokens:
                raise Unauthenticated(f"{call.method}: token(check=...) has no token to send; give a client one")
            call.metadata[_KEY] = f"{_SCHEME} {tokens[0]}"
        elif isinstance(call, ServerCall):
            _demand(call, accepted, check)
        return proceed(call)

    return authenticate


def _demand(call: ServerCall, accepted: list[bytes], check: Callable[[str], object] | None) -> None:
    sent = call.context.metadata.getall(_KEY)
    if not sent:
        raise Unauthenticated(
            f"{call.method} needs a token, and the metadata has no '{_KEY}'; send '{_SCHEME} TOKEN' there: a client of "
            "nearcall connects with interceptors=[nearcall.auth.token(...)]"
        )
    if len(sent) > 1:
        raise Unauthenticated(f"{call.method}: the metadata has '{_KEY}' {len(sent)} times; send it once")
    scheme, _, given = str(sent[0]).partition(" ")
    if scheme.lower() != _SCHEME.lower() or not given:
        raise Unauthenticated(f"{call.method}: '{_KEY}' in the metadata must be '{_SCHEME} TOKEN'")
    # All tokens are compared, so that the time does not tell which token matched.
    known = [hmac.compare_digest(given.encode(), each) for each in accepted]
    if not any(known) and not (check is not None and check(given)):
        raise Unauthenticated(f"{call.method}: the token is not valid")
