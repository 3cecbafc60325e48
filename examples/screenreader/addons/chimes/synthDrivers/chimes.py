# A synthesiser driver in NVDA's style: written for the screen reader's own process, and not changed.
import array
import math

import nvwave
import synthDriverHandler
from synthDriverHandler import synthDoneSpeaking

SAMPLE_RATE = 22050


class SynthDriver(synthDriverHandler.SynthDriver):
    name = "chimes"
    description = "chimes"

    def __init__(self):
        super().__init__()
        self._rate = 50
        self._stopped = False
        self._player = nvwave.WavePlayer(channels=1, samplesPerSec=SAMPLE_RATE, bitsPerSample=16)

    @classmethod
    def check(cls):
        return True

    def _get_rate(self):
        return self._rate

    def _set_rate(self, value):
        self._rate = value

    def speak(self, speechSequence):
        self._stopped = False
        length = int(SAMPLE_RATE * 0.1 * 50 / max(10, self._rate))
        for letter in "".join(speechSequence).lower():
            if self._stopped:
                break
            pitch = 220 * 2 ** ((ord(letter) - ord("a")) % 26 / 12) if letter.isalnum() else 0
            step = 2 * math.pi * pitch / SAMPLE_RATE
            chime = (int(9000 * math.sin(step * at) * (1 - at / length)) for at in range(length))
            self._player.feed(array.array("h", chime).tobytes())
        synthDoneSpeaking.notify(synth=self)

    def cancel(self):
        self._stopped = True
        self._player.stop()

    def terminate(self):
        self.cancel()
