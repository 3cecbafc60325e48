"""Tensors between processes: over shared memory they are read where they lie, over sockets they arrive as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearcall

from .ports import own_port
from .process import ServerProcess

xp: Any = pytest.importorskip("array_api_strict")
tvm_ffi: Any = pytest.importorskip("tvm_ffi")

from .tensors import Batch, Model  # noqa: E402 - it needs both


@pytest.mark.parametrize("scheme", ["shm", "tcp"])
def test_tensors_between_processes(scheme: str, key: str, runtime_dir: Path) -> None:
    url = f"shm://tensors{key}" if scheme == "shm" else f"tcp://127.0.0.1:{own_port()}"
    with ServerProcess(url, services="tests.e2e.tensors:model"), nearcall.connect(url, Model) as model:
        mine = np.arange(300_000, dtype=np.float32).reshape(3, -1)
        sent = tvm_ffi.from_dlpack(mine)
        arrived = model.doubled(sent)
        assert type(arrived) is tvm_ffi.Tensor
        np.testing.assert_array_equal(np.from_dlpack(arrived), np.arange(300_000).reshape(3, -1) * 2)
        assert float(mine[0, 1]) == 1.0
        batch = Batch("b", [sent, tvm_ffi.from_dlpack(np.ones(5)), tvm_ffi.from_dlpack(np.zeros((0, 2)))])
        assert model.sums(batch) == [float(mine.sum()), 5.0, 0.0]
        assert model.where(xp.ones(100_000)) is (scheme == "shm")
