"""Buffers that are handed over, for builds that can."""

from __future__ import annotations

import numpy as np
from exchanged import Numbers

import nearcall


@nearcall.service
class Lent:
    def made(self, n: int) -> Numbers:
        values = nearcall.empty((n,), np.float64)
        values[:] = np.arange(n)
        return values

    def total(self, values: Numbers) -> float:
        return float(values.sum())

    def same(self, values: Numbers) -> Numbers:
        return values
