"""config as a service for plugins: made from config.py by 'nearcall plugin shim'."""

from __future__ import annotations

import config as _module
from config_api import Config

from nearcall.plugin import shims


class ConfigOfHost(Config):
    """Calls the module config. Give it to plugins: services={"config": ConfigOfHost()}.

    Args:
        run: Calls a function where the module's code may run, such as in the main thread.
    """

    def __init__(self, run: shims.Run = shims.at_once) -> None:
        self._run = run

    def find_conf(self, keys: list[str]) -> list[bool | int | str]:
        return self._run(lambda: shims.find(_module.conf, keys, 2))

    def put_conf(self, keys: list[str], value: bool | int | str) -> None:
        self._run(lambda: shims.put(_module.conf, keys, value, 2))

    def remove_conf(self, keys: list[str]) -> bool:
        return self._run(lambda: shims.remove(_module.conf, keys, 2))

    def keys_of_conf(self, keys: list[str]) -> list[str]:
        return self._run(lambda: shims.keys_of(_module.conf, keys, 2))
