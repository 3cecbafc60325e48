"""Run h2spec against the echo server of crates/http.

Usage: python tools/run_h2spec.py SERVER [options of h2spec]
Ends with h2spec's status; with 0 and a line that says so if h2spec is not installed.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

SECONDS_TO_START = 10


def find_h2spec() -> str | None:
    """The program on the PATH, or where `go install` puts it."""
    places = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / "go" / "bin")])
    return shutil.which("h2spec", path=places)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Return when the server accepts connections; raise TimeoutError if it does not."""
    end = time.monotonic() + SECONDS_TO_START
    while server.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError("the server does not start")


def main() -> int:
    """Start the server, run h2spec, stop the server."""
    h2spec = find_h2spec()
    if h2spec is None:
        print("h2spec: skipped, it is missing (go install github.com/summerwind/h2spec/cmd/h2spec@latest)")
        return 0
    port = free_port()
    with subprocess.Popen([sys.argv[1], f"127.0.0.1:{port}"]) as server:
        try:
            wait_for(port, server)
            return subprocess.run([h2spec, "-h", "127.0.0.1", "-p", str(port), *sys.argv[2:]], check=False).returncode
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
