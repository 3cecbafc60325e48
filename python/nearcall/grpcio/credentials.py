"""Certificates and keys as grpcio's users write them, and what to write for other names of grpcio's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..options.tls import TLS
from .peer import grpc

__all__ = ["name_of_grpc", "ssl_channel_credentials", "ssl_server_credentials", "tls_of_channel", "tls_of_server"]

_CHANNEL = "nearcall.grpcio.ssl_channel_credentials(...), or nearcall.TLS(ca=...)"
_SERVER = "nearcall.grpcio.ssl_server_credentials(...), or nearcall.TLS(cert=..., key=...)"
_TOKENS = (
    "send the metadata 'authorization' with each call, stub.Method(..., metadata=[('authorization', 'Bearer x')]), "
    "or give interceptors to nearcall.grpcio.channel(url, interceptors=[...])"
)
_INSTEAD = {
    "access_token_call_credentials": _TOKENS,
    "metadata_call_credentials": _TOKENS,
    "composite_call_credentials": _TOKENS,
    "composite_channel_credentials": f"encrypt with {_CHANNEL}; for the tokens, {_TOKENS}",
    "insecure_server_credentials": "call server.add_insecure_port(address)",
    "local_server_credentials": "call server.add_insecure_port(address), or server.add_url('shm://name')",
    "local_channel_credentials": "call nearcall.grpcio.insecure_channel(target), or channel('shm://name')",
    "alts_channel_credentials": f"write {_CHANNEL}",
    "alts_server_credentials": f"write {_SERVER}",
    "compute_engine_channel_credentials": f"write {_CHANNEL}",
    "dynamic_ssl_server_credentials": f"write {_SERVER}; start the server again for new certificates",
    "ssl_server_certificate_configuration": f"write {_SERVER}; start the server again for new certificates",
    "xds_channel_credentials": f"nearcall knows no xDS: give the address, and {_CHANNEL}",
    "xds_server_credentials": f"nearcall knows no xDS: give the address, and {_SERVER}",
}
"""What to write for names of grpcio's that have no counterpart."""


def name_of_grpc(name: str, own: str, of_grpc: Any) -> Any:
    """What a name of grpcio's stands for here: the same, because it works with channels and servers of nearcall's, too.

    Args:
        name: The name.
        own: The module that was asked for it.
        of_grpc: The module of grpcio that has it.

    Raises:
        AttributeError: grpcio has no such name, or it has no counterpart; the message says what to write.
    """
    if (instead := _INSTEAD.get(name)) is not None:
        raise AttributeError(f"{own}.{name} does not exist, for nearcall has nothing like it: {instead}")
    if name.startswith("_") or name not in of_grpc.__all__:
        raise AttributeError(f"module '{own}' has no attribute '{name}'")
    return getattr(of_grpc, name)


def ssl_channel_credentials(
    root_certificates: bytes | None = None, private_key: bytes | None = None, certificate_chain: bytes | None = None
) -> TLS:
    """What ``secure_channel`` takes: the arguments are those of ``grpc.ssl_channel_credentials``.

    Args:
        root_certificates: The authorities that may have signed the server's certificate, in PEM; those that the system
            trusts if not given.
        private_key: The client's private key, in PEM, if the server asks for a certificate.
        certificate_chain: The client's certificate, in PEM.
    """
    return TLS(ca=root_certificates, key=private_key, cert=certificate_chain)


def ssl_server_credentials(
    private_key_certificate_chain_pairs: Sequence[tuple[bytes, bytes]],
    root_certificates: bytes | None = None,
    require_client_auth: bool = False,
) -> TLS:
    """What ``add_secure_port`` takes: the arguments are those of ``grpc.ssl_server_credentials``.

    Args:
        private_key_certificate_chain_pairs: One pair of a private key and a certificate, in PEM.
        root_certificates: The authorities that may have signed clients' certificates; without effect unless these are
            required.
        require_client_auth: Whether every client must show a certificate.

    Raises:
        ValueError: there are several pairs, or none, or nobody who may sign clients' certificates.
    """
    pairs = list(private_key_certificate_chain_pairs)
    if len(pairs) != 1:
        raise ValueError(f"give one pair of a private key and a certificate, not {len(pairs)}")
    if require_client_auth and root_certificates is None:
        raise ValueError("require_client_auth needs root_certificates, which say who may sign clients' certificates")
    [(key, chain)] = pairs
    return TLS(cert=chain, key=key, client_ca=root_certificates if require_client_auth else None)


def _tls_of(credentials: object, how: str, options: Iterable[tuple[str, Any]] | None = None) -> TLS:
    """The certificates in credentials.

    Args:
        credentials: What the user gave.
        how: What to write for credentials of grpcio's own.
        options: Options of a channel; one of them may name the server.

    Raises:
        TypeError: they are none of nearcall's.
    """
    if isinstance(credentials, TLS):
        names = [value for name, value in options or () if name == "grpc.ssl_target_name_override"]
        if not names:
            return credentials
        return TLS(credentials.ca, credentials.cert, credentials.key, names[-1], credentials.client_ca)
    if isinstance(credentials, (grpc.ChannelCredentials, grpc.ServerCredentials)):
        raise TypeError(f"grpcio's own credentials cannot be read by others: write {how}")
    raise TypeError(f"credentials are what {how.partition('(')[0]}() makes, not {credentials!r}")


def tls_of_channel(credentials: object, options: Iterable[tuple[str, Any]] | None) -> TLS:
    """The certificates in a channel's credentials."""
    return _tls_of(credentials, _CHANNEL, options)


def tls_of_server(credentials: object) -> TLS:
    """The certificates in a server's credentials."""
    return _tls_of(credentials, _SERVER)
