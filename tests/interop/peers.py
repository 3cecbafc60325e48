"""The other implementations: how their programs of the interoperability suite are built and started."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILT = ROOT / "target" / "interop"
"""Where peers are built, and found again by the next run."""

CORE = (
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
)
CLIENT_COMPRESSED = ("client_compressed_unary", "client_compressed_streaming")
SERVER_COMPRESSED = ("server_compressed_unary", "server_compressed_streaming")
MANY = ("concurrent_large_unary",)
"""The suite names it, and says no more than that it is a thousand calls at a time."""
ALL = (*CORE, *MANY, *CLIENT_COMPRESSED, *SERVER_COMPRESSED)


class Certificates(NamedTuple):
    """Paths, for a server at 127.0.0.1."""

    authority: str
    certificate: str
    key: str


class Peer(ABC):
    """Another implementation of gRPC, with a client and a server of the test service."""

    name: str
    needs: tuple[str, ...] = ()
    """Programs without which it cannot be built."""
    seconds = 60
    """How long its client may take for a case, start included."""
    speaks_tls = True
    client_cases: tuple[str, ...] = CORE
    """What its client can try."""
    server_cases: tuple[str, ...] = (*CORE, *MANY)
    """What its server has the features for."""

    @property
    def lacks(self) -> str | None:
        """The program that would have to be installed first."""
        return next((program for program in self.needs if shutil.which(program) is None), None)

    @abstractmethod
    def build(self) -> None:
        """Makes its programs, unless they are there."""

    @abstractmethod
    def client(self, case: str, port: int, authority: str | None) -> list[str]:
        """The command that tries a case at a port of this machine; with an authority, over TLS."""

    @abstractmethod
    def server(self, port: int, certificates: Certificates | None) -> list[str]:
        """The command that serves at a port of this machine."""

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def try_case(self, case: str, port: int, authority: str | None) -> None:
        """Fails, with what its client says, if the case does not hold."""
        done = subprocess.run(
            self.client(case, port, authority),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=self.seconds,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}'s client, {case}:\n{done.stdout}{done.stderr}"

    @contextlib.contextmanager
    def serving(self, certificates: Certificates | None) -> Iterator[int]:
        """Its server, from when it listens until the block is left: the port."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
        log = BUILT / f"{self.name}-server.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = self.server(port, certificates)
        with (
            log.open("wb") as output,
            subprocess.Popen(
                command, env=self.environment, stdin=subprocess.PIPE, stdout=output, stderr=output
            ) as server,
        ):
            try:
                end = time.monotonic() + 60
                while not _listens(port):
                    assert server.poll() is None, f"{self.name}'s server has ended:\n{log.read_text()}"
                    assert time.monotonic() < end, f"{self.name}'s server does not listen:\n{log.read_text()}"
                    time.sleep(0.05)
                yield port
            finally:
                server.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Grpcio(Peer):
    """gRPC's library for Python, on the C core that PHP, Ruby and C++ have as well."""

    name = "grpcio"
    client_cases = ALL
    server_cases = ALL

    def build(self) -> None:
        """Makes a .proto of our class, and lets protoc make Python of it."""
        folder = BUILT / "grpcio"
        folder.mkdir(parents=True, exist_ok=True)
        target = "tests.interop.service:TestService"
        proto = subprocess.run(
            [sys.executable, "-m", "nearcall", "proto", target], cwd=ROOT, capture_output=True, text=True, check=True
        )
        (folder / "test_service.proto").write_text(proto.stdout, encoding="utf-8")
        out = [f"-I{folder}", f"--python_out={folder}", f"--grpc_python_out={folder}", "test_service.proto"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *out], check=True)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(BUILT / "grpcio")}

    def client(self, case: str, port: int, authority: str | None) -> list[str]:
        command = [sys.executable, str(HERE / "grpcio_peer.py"), "client", case, str(port)]
        return command if authority is None else [*command, authority]

    def server(self, port: int, certificates: Certificates | None) -> list[str]:
        command = [sys.executable, str(HERE / "grpcio_peer.py"), "server", str(port)]
        return command if certificates is None else [*command, certificates.certificate, certificates.key]


class Go(Peer):
    """grpc-go, with the interoperability programs of its own repository."""

    name = "grpc-go"
    needs = ("go",)

    def build(self) -> None:
        folder = BUILT / "go"
        folder.mkdir(parents=True, exist_ok=True)
        packages = [f"google.golang.org/grpc/interop/{program}" for program in ("client", "server")]
        subprocess.run(["go", "build", "-o", f"{folder}/", *packages], cwd=HERE / "go", check=True)

    def client(self, case: str, port: int, authority: str | None) -> list[str]:
        command = [str(BUILT / "go/client"), "-server_host=127.0.0.1", f"-server_port={port}", f"-test_case={case}"]
        return command if authority is None else [*command, "-use_tls", "-use_test_ca", f"-ca_file={authority}"]

    def server(self, port: int, certificates: Certificates | None) -> list[str]:
        command = [str(BUILT / "go/server"), f"-port={port}"]
        if certificates is None:
            return command
        files = [f"-tls_cert_file={certificates.certificate}", f"-tls_key_file={certificates.key}"]
        return [*command, "-use_tls", *files]


class Java(Peer):
    """grpc-java, with the interoperability programs that it publishes."""

    name = "grpc-java"
    needs = ("java", "mvn")
    speaks_tls = False  # its programs know certificates of their own only
    client_cases = (*CORE, *CLIENT_COMPRESSED, *SERVER_COMPRESSED)
    server_cases = ALL

    def build(self) -> None:
        folder = BUILT / "java"
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        subprocess.run(command, cwd=HERE / "java", check=True)

    def _run(self, program: str, *flags: str) -> list[str]:
        # A start of a quarter of a second rather than of one: nothing here runs long enough to be compiled well.
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return ["java", *options, "-cp", f"{BUILT}/java/*", f"io.grpc.testing.integration.{program}", *flags]

    def client(self, case: str, port: int, authority: str | None) -> list[str]:
        flags = [f"--server_port={port}", "--server_host=127.0.0.1", "--use_tls=false", f"--test_case={case}"]
        return self._run("TestServiceClient", *flags)

    def server(self, port: int, certificates: Certificates | None) -> list[str]:
        return self._run("TestServiceServer", f"--port={port}", "--use_tls=false")


PEERS: dict[str, Peer] = {peer.name: peer for peer in (Grpcio(), Go(), Java())}
