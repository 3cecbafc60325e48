"""The log. In a plugin's process it is the standard error, which is in the host's log."""

import logging

log = logging.getLogger("addon")
