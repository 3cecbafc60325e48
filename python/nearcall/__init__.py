"""Typed RPC for Python on a Rust core."""
