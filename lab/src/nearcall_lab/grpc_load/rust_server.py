"""tonic's server of the typed call, built here with the Rust toolchain."""

from __future__ import annotations

from pathlib import Path

from nearcall_lab.grpc_load import program


def build(folder: Path) -> Path:
    """Build the program in `folder`: takes minutes. Raises `NoServer`."""
    program.source("rust", "cargo", folder)
    program.protoc(folder, "--descriptor_set_out=descriptors")
    command = ["cargo", "build", "-q", "--release", "--locked", "--target-dir", "target"]
    program.run(command, folder, {"DESCRIPTORS": str(folder / "descriptors")})
    return folder / "target/release/lab"
