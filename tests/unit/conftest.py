"""How examples are made up: on a machine of any speed."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Hypothesis itself would give each example a fifth of a second, and calls it unreliable if that happens once.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
