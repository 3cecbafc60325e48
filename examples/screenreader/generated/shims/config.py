"""config for plugins: made from config.py by 'nearcall plugin shim'."""

from __future__ import annotations

import config_api as _api

from nearcall.plugin import shims as _shims

__all__ = ["conf"]

_host = _shims.use("config", _api.Config)
conf = _shims.Shared(_host, "conf", 2)
