"""speech.extensions for plugins: made from extensions.pyi by 'nearcall plugin shim'."""

from __future__ import annotations

import speech_extensions_api as _api

from nearcall.plugin import shims as _shims

__all__ = ["filter_speechSequence"]
filter_speechSequence = _shims.Registered(_api.filter_speechSequence)
