"""A speech filter that never comes back."""

import time

from reader_api import spoken_text


@spoken_text.handler
def hang(text: str) -> str:
    while True:
        time.sleep(1)
