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
SOAKS = ("rpc_soak", "channel_soak")
"""Many large calls one after the other, on one connection or each on one of its own; clients of others have them."""
ALL = (*CORE, *MANY, *CLIENT_COMPRESSED, *SERVER_COMPRESSED, *SOAKS)
SOAK_CALLS = {"rpc_soak": 1000, "channel_soak": 200}
SOAK_SECONDS = 300


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
            timeout=SOAK_SECONDS if case in SOAKS else self.seconds,
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


def compile_proto(folder: Path, *flags: str) -> None:
    """Makes a .proto of our class in the folder, and runs protoc on it there."""
    folder.mkdir(parents=True, exist_ok=True)
    target = "tests.interop.service:TestService"
    proto = subprocess.run(
        [sys.executable, "-m", "nearcall", "proto", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (folder / "test_service.proto").write_text(proto.stdout, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", *flags, "test_service.proto"], cwd=folder, check=True
    )


class OurProgram(Peer):
    """An implementation that publishes no such programs: we have written one with its library.

    ``PROGRAM client CASE PORT [AUTHORITY]`` tries a case, and ``PROGRAM server PORT [CERTIFICATE KEY]`` serves
    until its input ends. It knows the service by the descriptors that protoc makes, if not by what its library brings.
    """

    client_cases = (*CORE, *MANY, *CLIENT_COMPRESSED, *SERVER_COMPRESSED)
    server_cases = client_cases
    program: tuple[str, ...]

    def descriptors(self) -> Path:
        """A file of them."""
        compile_proto(BUILT / self.name, "--descriptor_set_out=descriptors")
        return BUILT / self.name / "descriptors"

    def client(self, case: str, port: int, authority: str | None) -> list[str]:
        command = [*self.program, "client", case, str(port)]
        return command if authority is None else [*command, authority]

    def server(self, port: int, certificates: Certificates | None) -> list[str]:
        command = [*self.program, "server", str(port)]
        return command if certificates is None else [*command, certificates.certificate, certificates.key]


class Grpcio(OurProgram):
    """gRPC's library for Python, on the C core that PHP, Ruby and C++ have as well."""

    name = "grpcio"
    program = (sys.executable, str(HERE / "grpcio_peer.py"))

    def build(self) -> None:
        compile_proto(BUILT / self.name, "--python_out=.", "--grpc_python_out=.")

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(BUILT / self.name)}


class Tonic(OurProgram):
    """The library for Rust."""

    name = "tonic"
    needs = ("cargo",)
    program = (str(BUILT / "rust/release/tonic-peer"),)

    def build(self) -> None:
        environment = {"DESCRIPTORS": str(self.descriptors()), "CARGO_TARGET_DIR": str(BUILT / "rust")}
        command = ["cargo", "build", "-q", "--release", "--locked"]
        subprocess.run(command, cwd=HERE / "rust", env=os.environ | environment, check=True)


class ConnectGo(OurProgram):
    """Connect's library for Go, which speaks gRPC as well."""

    name = "connect-go"
    needs = ("go",)
    program = (str(BUILT / "go/connect"),)

    def build(self) -> None:
        build_go("./connect")


class InNode(OurProgram):
    """A library for Node."""

    needs = ("node", "npm")

    def __init__(self, name: str, server_cases: tuple[str, ...] = OurProgram.server_cases) -> None:
        self.name = name
        self.server_cases = server_cases
        self.program = ("node", str(HERE / f"node/{name}.mjs"))

    def build(self) -> None:
        self.descriptors()
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=HERE / "node", check=True)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"SERVICE": str(BUILT / self.name)}


def build_go(*packages: str) -> None:
    folder = BUILT / "go"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", f"{folder}/", *packages], cwd=HERE / "go", check=True)


class Go(Peer):
    """grpc-go, with the interoperability programs of its own repository."""

    name = "grpc-go"
    needs = ("go",)
    client_cases = (*CORE, *SOAKS)

    def build(self) -> None:
        build_go(*(f"google.golang.org/grpc/interop/{program}" for program in ("client", "server")))

    def client(self, case: str, port: int, authority: str | None) -> list[str]:
        command = [str(BUILT / "go/client"), "-server_host=127.0.0.1", f"-server_port={port}", f"-test_case={case}"]
        command += soak_flags(case)
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
    client_cases = (*CORE, *CLIENT_COMPRESSED, *SERVER_COMPRESSED, *SOAKS)
    server_cases = (*CORE, *MANY, *CLIENT_COMPRESSED, *SERVER_COMPRESSED)

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
        return self._run("TestServiceClient", *flags, *soak_flags(case))

    def server(self, port: int, certificates: Certificates | None) -> list[str]:
        return self._run("TestServiceServer", f"--port={port}", "--use_tls=false")


def soak_flags(case: str) -> list[str]:
    """How long a soak is; no call of it may fail. Both of gRPC's own clients have these flags."""
    if case not in SOAKS:
        return []
    return [
        f"--soak_iterations={SOAK_CALLS[case]}",
        "--soak_num_threads=4",
        "--soak_max_failures=0",
        f"--soak_per_iteration_max_acceptable_latency_ms={SOAK_SECONDS}000",
        f"--soak_overall_timeout_seconds={SOAK_SECONDS}",
    ]


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Grpcio(),
        Go(),
        Java(),
        InNode("grpc-node", (*CORE, *MANY, *CLIENT_COMPRESSED)),  # its server never compresses
        Tonic(),
        ConnectGo(),
        InNode("connect-node"),
    )
}
