"""An instrument, simulated. The notebook starts it in a process of its own, so that a crash here is none there."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import nearcall

Spectrum = NDArray[np.float64]


@dataclass
class Peak:
    wavelength: float
    """In nanometres."""
    height: float


@nearcall.service
class Spectrometer:
    def __init__(self) -> None:
        self._chance = np.random.default_rng(1)
        self.wavelengths = np.linspace(400.0, 700.0, 1024)

    def axis(self) -> Spectrum:
        """The wavelengths that are measured, in nanometres."""
        return self.wavelengths

    def measure(self, milliseconds: int = 10) -> Spectrum:
        """One spectrum; the longer the shutter is open, the less noise is in it."""
        if milliseconds <= 0:
            raise nearcall.InvalidArgument("the shutter needs at least a millisecond")
        time.sleep(milliseconds / 1000)
        lines = [(486.1, 0.4), (656.3, 1.0)]  # of hydrogen
        spectrum = sum(height * np.exp(-(((self.wavelengths - at) / 3) ** 2)) for at, height in lines)
        return spectrum + self._chance.normal(0, 0.3 / milliseconds**0.5, self.wavelengths.size)

    def watch(self, count: int) -> Iterator[Spectrum]:
        """Spectra, one after the other."""
        for _ in range(count):
            yield self.measure()

    def average(self, count: int, progress: Callable[[float], None]) -> Spectrum:
        """The mean of many spectra; `progress` is called with the share that is done."""
        total = np.zeros(self.wavelengths.size)
        for number in range(count):
            total += self.measure()
            progress((number + 1) / count)
        return total / count

    def peaks(self, spectrum: Spectrum, above: float = 0.3) -> list[Peak]:
        """The highest point of each part of a spectrum that is above a value."""
        edges = np.flatnonzero(np.diff(np.concatenate(([False], spectrum > above, [False])).astype(int))).tolist()
        parts = zip(edges[::2], edges[1::2], strict=True)
        tops = [start + int(spectrum[start:end].argmax()) for start, end in parts]
        return [Peak(round(float(self.wavelengths[top]), 1), round(float(spectrum[top]), 1)) for top in tops]
