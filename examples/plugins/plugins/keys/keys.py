"""Says which key was pressed, through a service of the host."""

from reader_api import Speech, key_pressed

from nearcall import plugin

speech = plugin.use("speech", Speech)


@key_pressed.handler
def say(key: str) -> None:
    speech.speak(f"the key is {key}")
