"""A speech filter."""

from reader_api import spoken_text


@spoken_text.handler
def louder(text: str) -> str:
    return text.upper()
