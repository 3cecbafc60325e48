"""A certificate for the servers of one launch, which its clients trust and nobody else."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from nearcall_lab.contract import Spec

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
_USAGE = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files in the launch's directory."""

    ca: Path
    """Who has signed the certificate: what clients trust."""
    cert: Path
    key: Path


def of(spec: Spec) -> Certificates:
    """Where they are: both sides of a launch have one directory."""
    directory = Path(spec.directory)
    return Certificates(directory / "ca.pem", directory / "server.pem", directory / "server.key")


def make(spec: Spec) -> Certificates:
    """Makes them for the server's address. Raises `FileNotFoundError` where there is no ``openssl``."""
    if shutil.which("openssl") is None:
        raise FileNotFoundError("openssl is not on the PATH: sudo apt install openssl")
    made = of(spec)
    ca_key = made.ca.with_suffix(".key")
    _openssl(*_KEY, "-subj", "/CN=nearcall-lab", *_USAGE, "-keyout", str(ca_key), "-out", str(made.ca))
    _openssl(
        *(*_KEY, "-subj", "/CN=nearcall-lab server", "-CA", str(made.ca), "-CAkey", str(ca_key)),
        *("-addext", f"subjectAltName=IP:{spec.host}", "-addext", "basicConstraints=critical,CA:FALSE"),
        *("-keyout", str(made.key), "-out", str(made.cert)),
    )
    return made


def _openssl(*words: str) -> None:
    done = subprocess.run(["openssl", "req", "-x509", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"openssl makes no certificate: {done.stderr.strip()[-200:]}")
