"""What the process with the server in it reports to the lab: requests handled, messages received, resources used.

The clocks are those that were here before any adapter was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from resource import RUSAGE_SELF, getrusage
from time import monotonic_ns
from typing import Any

from nearcall_lab.contract import Served
from nearcall_lab.load.one_way import Receiver
from nearcall_lab.workloads import keep_secret


@dataclass
class Duties:
    """Answers the lab's questions that do not depend on the mechanism."""

    served: Served = field(default_factory=Served)
    receiver: Receiver = field(default_factory=lambda: Receiver(monotonic_ns))

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes] | None:
        """The answer and its blob, or None for a request of another kind."""
        kind = request["do"]
        if kind == "served":
            return {"served": self.served.calls, **usage()}, b""
        if kind == "secret":
            keep_secret(request["value"])
            return {"secret": True}, b""
        if kind == "arm":
            self.receiver.arm(request["size"], request["capacity"])
            return {"armed": True}, b""
        if kind == "arrived":
            return {"seen": self.receiver.seen()}, b""
        if kind == "collect":
            stamps, heads = self.receiver.collect()
            wrong, beyond = self.receiver.refused()
            return {"stamps": len(stamps), "wrong": wrong, "beyond": beyond}, stamps + heads
        return None


def usage() -> dict[str, Any]:
    """What this process has used from its beginning: CPU seconds, and context switches of all its threads, also those
    that ended.
    """
    own = getrusage(RUSAGE_SELF)
    return {"cpu_s": own.ru_utime + own.ru_stime, "voluntary": own.ru_nvcsw, "involuntary": own.ru_nivcsw}
