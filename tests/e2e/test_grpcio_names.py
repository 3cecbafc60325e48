"""Names of the module ``grpc``, asked for at ``nearcall.grpcio``: each works, or says what to write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

import nearcall
import nearcall.grpcio

ported: Any = nearcall.grpcio
"""As a user who has changed ``import grpc`` to ``import nearcall.grpcio as grpc``."""


def _echo(request: str, _context: Any) -> str:
    return request


@pytest.fixture
def handlers() -> Any:
    method = ported.unary_unary_rpc_method_handler(_echo, bytes.decode, str.encode)
    return [ported.method_handlers_generic_handler("example.Echo", {"Say": method})]


@pytest.fixture
def port(handlers: Any, certificates: Path) -> Iterator[int]:
    key, chain = (certificates / "server.key").read_bytes(), (certificates / "server.pem").read_bytes()
    server = ported.server(ThreadPoolExecutor(max_workers=2), handlers)
    port = server.add_secure_port("127.0.0.1:0", ported.ssl_server_credentials([(key, chain)]))
    with server:
        yield port


def _say(channel: Any) -> Any:
    return channel.unary_unary("/example.Echo/Say", str.encode, bytes.decode)


def test_encrypted_channels_and_servers(port: int, certificates: Path) -> None:
    ca = (certificates / "ca.pem").read_bytes()
    with ported.secure_channel(f"127.0.0.1:{port}", ported.ssl_channel_credentials(ca)) as channel:
        ported.channel_ready_future(channel).result(timeout=20)
        assert _say(channel)("hello") == "hello"
    with nearcall.grpcio.secure_channel(f"127.0.0.1:{port}", nearcall.TLS(ca=ca)) as channel:
        assert _say(channel)("hello") == "hello"
    own = grpc.ssl_channel_credentials(ca)
    with grpc.secure_channel(f"127.0.0.1:{port}", own) as theirs:
        assert _say(theirs)("hello", timeout=20) == "hello"
    named = [("grpc.ssl_target_name_override", "elsewhere")]
    with (
        ported.secure_channel(f"127.0.0.1:{port}", ported.ssl_channel_credentials(ca), named) as channel,
        pytest.raises(grpc.RpcError, match="is not for elsewhere"),
    ):
        _say(channel)("hello")

    async def main() -> None:
        aio = ported.aio
        async with aio.secure_channel(f"127.0.0.1:{port}", ported.ssl_channel_credentials(ca)) as channel:
            assert await _say(channel)("hello") == "hello"
        with pytest.raises(ValueError, match=r"interceptors of grpc\.aio's clients are not run"):
            aio.secure_channel("a:1", ported.ssl_channel_credentials(ca), interceptors=[object()])

    asyncio.run(main())


def test_credentials_that_cannot_be_read() -> None:
    with pytest.raises(
        TypeError, match=r"^grpcio's own credentials cannot be read by others: write nearcall\.grpcio\."
    ):
        ported.secure_channel("localhost:1", grpc.ssl_channel_credentials())
    with pytest.raises(
        TypeError, match=r"^credentials are what nearcall\.grpcio\.ssl_channel_credentials\(\) makes, n"
    ):
        ported.secure_channel("localhost:1", None)
    server = ported.server()
    with pytest.raises(
        TypeError, match=r"^grpcio's own .* write nearcall\.grpcio\.ssl_server_credentials\(\.\.\.\), or"
    ):
        server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(b"", b"")]))
    with pytest.raises(
        TypeError, match=r"^credentials are what nearcall\.grpcio\.ssl_server_credentials\(\) makes, not"
    ):
        server.add_secure_port("127.0.0.1:0")
    server.add_insecure_port("127.0.0.1:0")
    with pytest.raises(ValueError, match=r"^call add_secure_port\(\) before the other ports"):
        server.add_secure_port("127.0.0.1:0", ported.ssl_server_credentials([(b"", b"")]))
    server.stop(None).wait(20)
    with pytest.raises(ValueError, match="give one pair of a private key and a certificate, not 2"):
        ported.ssl_server_credentials([(b"", b"")] * 2)
    with pytest.raises(ValueError, match="require_client_auth needs root_certificates"):
        ported.ssl_server_credentials([(b"", b"")], require_client_auth=True)


def test_clients_that_must_show_a_certificate() -> None:
    tls = nearcall.grpcio.ssl_server_credentials([(b"key", b"chain")], b"ca", True)
    assert tls == nearcall.TLS(cert=b"chain", key=b"key", client_ca=b"ca")
    assert nearcall.grpcio.ssl_server_credentials([(b"key", b"chain")], b"ca").client_ca is None
    assert nearcall.grpcio.ssl_channel_credentials(b"ca", b"key", b"chain") == nearcall.TLS(b"ca", b"chain", b"key")


UNREADABLE = {name for name in grpc.__all__ if name.endswith("_credentials")} - {
    "ssl_channel_credentials",
    "ssl_server_credentials",
} | {"ssl_server_certificate_configuration"}


@pytest.mark.parametrize("name", sorted(grpc.__all__))
def test_every_name_of_grpc(name: str) -> None:
    if name not in UNREADABLE:
        found = getattr(ported, name)
        assert found is getattr(grpc, name) or name in nearcall.grpcio.__all__
        return
    with pytest.raises(AttributeError, match=rf"^nearcall\.grpcio\.{name} does not exist, for nearcall has"):
        getattr(ported, name)


@pytest.mark.parametrize("name", sorted(grpc.aio.__all__))
def test_every_name_of_grpc_aio(name: str) -> None:
    found = getattr(ported.aio, name)
    assert found is getattr(grpc.aio, name) or name in nearcall.grpcio.aio.__all__


def test_names_that_are_nobody_s() -> None:
    for module, name in ((ported, "secure_chanel"), (ported, "_channel"), (ported.aio, "nothing")):
        with pytest.raises(AttributeError, match=rf"^module '{module.__name__}' has no attribute '{name}'$"):
            getattr(module, name)


def test_interceptors_of_clients(handlers: Any) -> None:
    class Louder(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
            return continuation(details, f"{request}!")

    server = ported.server(None, handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    with server, ported.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert _say(ported.intercept_channel(channel, Louder()))("hello") == "hello!"


class _Sees(grpc.ServerInterceptor):  # type: ignore[misc]
    """Notes each call, and has a handler for one method that the server does not have."""

    def __init__(self, made: Callable[..., Any] = lambda request, _context: request + b"!") -> None:
        self._made = grpc.unary_unary_rpc_method_handler(made)
        self.seen: list[tuple[str, bool, dict[str, str]]] = []

    def intercept_service(self, continuation: Callable[..., Any], details: Any) -> Any:
        handler = continuation(details)
        self._note(details, handler)
        return self._made if details.method == "/example.Echo/Made" else handler

    def _note(self, details: Any, handler: Any) -> None:
        self.seen.append((details.method, handler is not None, dict(details.invocation_metadata)))


class _SeesInLoop(_Sees, grpc.aio.ServerInterceptor):  # type: ignore[misc]
    async def intercept_service(self, continuation: Callable[..., Any], details: Any) -> Any:  # type: ignore[override]
        handler = await continuation(details)
        self._note(details, handler)
        return self._made if details.method == "/example.Echo/Made" else handler


def _call_unknown(port: int, sees: _Sees) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert _say(channel)("hello", timeout=20) == "hello"
        for kind in ("unary_unary", "unary_stream"):
            with pytest.raises(grpc.RpcError) as caught:
                list(getattr(channel, kind)("/example.Echo/Nothing")(b"", timeout=20, metadata=[("who", "ada")]))
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        for kind in ("stream_unary", "stream_stream"):
            with pytest.raises(grpc.RpcError) as caught:
                list(getattr(channel, kind)("/other.Service/Method")(iter([b"a", b"b"]), timeout=20))
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert channel.unary_unary("/example.Echo/Made")(b"made", timeout=20) == b"made!"
    known = [(method, known) for method, known, _ in sees.seen]
    assert known == [
        ("/example.Echo/Say", True),
        ("/example.Echo/Nothing", False),
        ("/example.Echo/Nothing", False),
        ("/other.Service/Method", False),
        ("/other.Service/Method", False),
        ("/example.Echo/Made", False),
    ]
    metadata = sees.seen[1][2]
    assert metadata["who"] == "ada"
    assert not any(key.startswith(":") for key in metadata)


@pytest.mark.parametrize("module", [grpc, nearcall.grpcio], ids=["grpcio", "nearcall"])
def test_interceptors_see_unknown_methods(handlers: Any, module: Any) -> None:
    sees = _Sees()
    server = module.server(ThreadPoolExecutor(max_workers=2), handlers, interceptors=[sees])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        _call_unknown(port, sees)
    finally:
        server.stop(None).wait(20)


@pytest.mark.parametrize("module", [grpc.aio, nearcall.grpcio.aio], ids=["grpcio", "nearcall"])
def test_interceptors_in_a_loop_see_unknown_methods(module: Any) -> None:
    async def echo(request: bytes, _context: Any) -> bytes:
        return request

    async def made(request: bytes, _context: Any) -> bytes:
        return request + b"!"

    method = grpc.unary_unary_rpc_method_handler(echo)
    handlers = [grpc.method_handlers_generic_handler("example.Echo", {"Say": method})]

    async def main() -> None:
        sees = _SeesInLoop(made)
        server = module.server(interceptors=[sees])
        server.add_generic_rpc_handlers(handlers)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            await asyncio.to_thread(_call_unknown, port, sees)
        finally:
            await server.stop(None)

    asyncio.run(main())


def test_unknown_methods_without_interceptors_and_in_the_description(handlers: Any, key: str) -> None:
    for interceptors in ([], [_Sees()]):
        server = ported.server(None, handlers, interceptors=interceptors)
        port = server.add_insecure_port("127.0.0.1:0")
        url = server.add_url(f"inproc://{key}-{len(interceptors)}")
        with server, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary("/example.Echo/Sai")(b"", timeout=20)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert caught.value.details().startswith("the server has no method /example.Echo/Sai")
            with nearcall.Channel(url) as own:
                described = own.description
            assert [each["name"] for each in described["services"]] == ["example.Echo"]
