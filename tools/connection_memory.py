"""What an idle connection costs in memory, at the server and at the client, each a process of its own.

Usage: python tools/connection_memory.py [--connections N] [scheme ...]     # of: tcp unix tls grpc http grpcio

Each connection carries one call of 1 KiB there and back, and is idle then. The number is the private memory (in
/proc/PID/smaps_rollup) that a process gains from the 100th connection to the last, for each of them. The memory that
the kernel has for sockets is in no process. A process needs as many descriptors as connections, or three times as many.
"""

from __future__ import annotations

import argparse
import gc
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import nearcall

SCHEMES = ("tcp", "unix", "tls", "grpc", "http", "grpcio")
FIRST = 100
DATA = bytes(1024)


@nearcall.service
class Echo:
    """What is called."""

    def echo(self, data: bytes) -> bytes:
        """The same."""
        return data


def private_kb(pid: int | str) -> int:
    """Memory that is this process's alone."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def serve(scheme: str, directory: str) -> None:
    """The server's process: until its input ends."""
    if scheme == "grpcio":
        from concurrent.futures import ThreadPoolExecutor

        import grpc

        method = grpc.unary_unary_rpc_method_handler(lambda data, _: data)
        grpcio = grpc.server(ThreadPoolExecutor(4))
        grpcio.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", {"echo": method}),))
        print(f"127.0.0.1:{grpcio.add_insecure_port('127.0.0.1:0')}", flush=True)
        grpcio.start()
        sys.stdin.read()
        return

    url = f"unix://{directory}/socket" if scheme == "unix" else f"{scheme}://127.0.0.1:0"
    tls = (
        nearcall.TLS(cert=f"{directory}/certs/server.pem", key=f"{directory}/certs/server.key")
        if scheme == "tls"
        else None
    )
    with nearcall.Server(Echo(), url, tls=tls) as server:
        print(server.urls[0], flush=True)
        sys.stdin.read()


def connect(scheme: str, directory: str, url: str) -> object:
    """Opens a connection and makes a call; what it returns keeps the connection."""
    if scheme == "grpcio":
        import grpc

        # Channels to one address share a connection otherwise.
        channel = grpc.insecure_channel(url, options=[("grpc.use_local_subchannel_pool", 1)])
        echo = channel.unary_unary("/Echo/echo")
        echo(DATA)
        return echo

    tls = nearcall.TLS(ca=f"{directory}/certs/ca.pem") if scheme == "tls" else None
    client = nearcall.connect(url, Echo, tls=tls)
    client.echo(DATA)
    return client


def call(scheme: str, directory: str, url: str, connections: int, server: int) -> None:
    """The client's process. Prints what a connection costs at both sides."""
    kept, before = [], (0, 0)
    for number in range(connections):
        if number == FIRST:
            gc.collect()
            before = private_kb(server), private_kb("self")
        kept.append(connect(scheme, directory, url))
    gc.collect()
    gained = private_kb(server) - before[0], private_kb("self") - before[1]
    each = [kb / (connections - FIRST) for kb in gained]
    print(f"{scheme:8}{each[0]:10.1f}{each[1]:10.1f}", flush=True)


def main() -> None:
    """Prints a row for each scheme."""
    if sys.argv[1:2] == ["serve"]:
        serve(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["call"]:
        scheme, directory, url, *numbers = sys.argv[2:]
        call(scheme, directory, url, *map(int, numbers))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("schemes", nargs="*", default=SCHEMES, metavar="scheme", help=" ".join(SCHEMES))
    asked = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"KB for each of {asked.connections - FIRST} connections\n{'':8}{'server':>10}{'client':>10}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        if "tls" in asked.schemes:
            subprocess.run(
                [sys.executable, "-m", "nearcall", "dev-certs", f"{directory}/certs", "127.0.0.1"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        for scheme in asked.schemes:
            program = [sys.executable, __file__]
            with subprocess.Popen(
                [*program, "serve", scheme, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as server:
                assert server.stdout is not None
                url = server.stdout.readline().strip()
                numbers = [str(asked.connections), str(server.pid)]
                subprocess.run([*program, "call", scheme, directory, url, *numbers], check=True)
                server.communicate()


if __name__ == "__main__":
    main()
