"""A synthesiser driver: audio from espeak-ng's library goes to the host as it is made."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from screen_api import SAMPLE_RATE, Synth, Voice

from nearcall import plugin

# From espeak-ng/speak_lib.h.
SYNCHRONOUS = 2
"""Audio comes by a callback, in the thread that asks."""
RATE = 1
"""The parameter: words in a minute."""
UTF_8 = 1
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Espeak(Synth):
    def __init__(self) -> None:
        self._library: Any = None
        self._one_at_a_time = threading.Lock()
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._stopped = False
        self._callback = CALLBACK(self._take)

    def load(self) -> None:
        """Loads the library, which is only allowed to read what the sandbox lets it read."""
        try:
            library: Any = ctypes.CDLL("libespeak-ng.so.1")
        except OSError as error:
            print(f"there is no espeak-ng here: {error}")
            return
        if library.espeak_Initialize(SYNCHRONOUS, 100, None, 1 << 15) != SAMPLE_RATE:
            print("espeak-ng cannot be used here")
            return
        library.espeak_SetSynthCallback(self._callback)
        library.espeak_SetVoiceByName(b"en")
        self._library = library

    def voice(self) -> Voice:
        return Voice("espeak-ng", 100 if self._library else 0)

    def render(self, text: str, rate: int) -> Iterator[bytes]:
        with self._one_at_a_time:
            self._queue = SimpleQueue()
            self._stopped = False
            speaking = threading.Thread(target=self._speak, args=(text, rate))
            speaking.start()
            try:
                while (data := self._queue.get()) is not None:
                    yield data
            finally:
                self._stopped = True
                speaking.join()

    def _speak(self, text: str, rate: int) -> None:
        words = text.encode()
        self._library.espeak_SetParameter(RATE, 80 + int(rate * 1.9), 0)
        self._library.espeak_Synth(words, len(words) + 1, 0, 0, 0, UTF_8, None, None)
        self._queue.put(None)

    def _take(self, samples: Any, count: int, _events: object) -> int:
        if samples and count > 0:
            self._queue.put(ctypes.string_at(samples, 2 * count))
        return 1 if self._stopped else 0


synth = Espeak()
plugin.offer(synth)


def start() -> None:
    synth.load()
