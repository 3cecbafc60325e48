"""Connect's conformance runner, at our server and at our client: no case may fail, and none is said to be known to.

``make conformance`` runs all cases. Otherwise the groups that say most in the shortest time are run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import building
from .building import BUILT, RUNNER

HERE = Path(__file__).parent
IS_WHOLE = bool(os.environ.get("NEARCALL_CONFORMANCE"))
"""``make conformance``."""
BASIC = "Basic/HTTPVersion:2/**/TLS:false/**"
SHORT: dict[tuple[str, str], list[str]] = {
    ("server", "proto"): [
        BASIC,
        "Connect Unexpected Requests/**",
        "gRPC Unexpected Requests/**",
        "gRPC-Web Unexpected Requests/**",
    ],
    ("server", "json"): [BASIC],
    ("client", "proto"): [
        BASIC,
        "Connect Error and End-Stream/**",
        "Connect Unexpected Responses/**",
        "gRPC Unexpected Responses/**",
    ],
    ("client", "json"): [BASIC],
}
"""The groups of ``make test``: the runner refuses one that has no case for the features."""

# What our client does not speak is left out here, and said in docs/http.md: gRPC-Web, and gRPC with JSON. Our server
# speaks all of it. HTTP/3 is spoken by neither.
_CONNECT, _GRPC, _WEB = "PROTOCOL_CONNECT", "PROTOCOL_GRPC", "PROTOCOL_GRPC_WEB"
PROTOCOLS: dict[tuple[str, str], list[str]] = {
    ("server", "proto"): [_CONNECT, _GRPC, _WEB],
    ("server", "json"): [_CONNECT, _GRPC, _WEB],
    ("client", "proto"): [_CONNECT, _GRPC],
    ("client", "json"): [_CONNECT],
}


def features(side: str, codec: str) -> dict[str, Any]:
    """What the runner is to try, as its configuration has it."""
    return {
        "versions": ["HTTP_VERSION_1", "HTTP_VERSION_2"],
        "protocols": PROTOCOLS[side, codec],
        "codecs": [f"CODEC_{codec.upper()}"],
        "compressions": ["COMPRESSION_IDENTITY", "COMPRESSION_GZIP", "COMPRESSION_ZSTD"],
        "supportsH2c": True,
        "supportsTls": True,
        "supportsTlsClientCerts": True,
        "supportsHalfDuplexBidiOverHttp1": True,
    }


@pytest.fixture(scope="session")
def built() -> None:
    lacks = building.what_lacks()
    if lacks is not None:
        pytest.skip(f"the conformance runner needs {lacks}, which is not installed")
    if not building.is_built():
        pytest.skip("the conformance runner is not built: python -m tests.conformance.building")


def _groups(side: str, codec: str) -> Iterator[str]:
    for group in () if IS_WHOLE else SHORT[side, codec]:
        yield from ("--run", group)


@pytest.mark.timeout(1800 if IS_WHOLE else 170)
@pytest.mark.parametrize("codec", ["proto", "json"])
@pytest.mark.parametrize("side", ["server", "client"])
def test_every_case_of_the_conformance_runner_passes(
    built: None, side: str, codec: str, tmp_path: Path, record_property: Any
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"features": features(side, codec)}), encoding="utf-8")  # YAML holds JSON
    program = [sys.executable, str(HERE / f"{side}.py"), str(BUILT)]
    # Few at a time: the runner gives a server ten seconds to start.
    options = ["--conf", str(config), "--mode", side, "--max-servers", "2", *_groups(side, codec)]
    command = [str(RUNNER), *options, "--", *program]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-20_000:]
    passed = re.search(r"^(\d+) passed, 0 failed$", said, re.MULTILINE)
    assert passed is not None, said[-20_000:]
    record_property("cases", int(passed[1]))
    if IS_WHOLE:
        print(f"{side}, {codec}: {passed[1]} cases passed")
