"""grpc-go's server of the typed call, built here with the Go toolchain."""

from __future__ import annotations

from pathlib import Path

from nearcall_lab.grpc_load import program

_TOOLS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")


def build(folder: Path) -> Path:
    """Build the program in `folder`: takes seconds, the first time a minute. Raises `NoServer`."""
    program.source("go", "go", folder)
    program.run(["go", "build", "-o", "bin/", *_TOOLS], folder)
    made = [flag for kind in ("go", "go-grpc") for flag in (f"--{kind}_out=.", f"--{kind}_opt=Mlab.proto=./pb")]
    program.protoc(folder, *(f"--plugin=bin/{tool.rpartition('/')[2]}" for tool in _TOOLS), *made)
    program.run(["go", "build", "-o", "bin/lab", "."], folder)
    return folder / "bin/lab"
