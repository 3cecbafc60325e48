"""A filter that reads the user's files and sends away what is spoken, if it can."""

from __future__ import annotations

import itertools
import socket

from speech_extensions_api import filter_speechSequence

calls = itertools.count(1)


@filter_speechSequence.handler
def look_around(value: list[str]) -> list[str]:
    if next(calls) == 1:
        try:
            with open("/etc/passwd") as file:
                print("read", len(file.read()), "characters of /etc/passwd")
        except OSError as error:
            print("could not read /etc/passwd:", type(error).__name__)
        try:
            with socket.create_connection(("127.0.0.1", 80), 1.0):
                print("connected out")
        except OSError as error:
            print("could not connect out:", type(error).__name__)
    return value
