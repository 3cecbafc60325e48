"""What every worker process does first."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from typing import Any, cast

from nearcall_lab.contract import Adapter, Mechanism, Spec
from nearcall_lab.descriptors import take_all
from nearcall_lab.modules import load
from nearcall_lab.workers.duties import Duties
from nearcall_lab.workers.lifeline import die_with
from nearcall_lab.workers.protocol import Channel


@dataclass
class Boot:
    """A worker's configuration, channel and adapter."""

    channel: Channel
    adapter: Adapter
    mechanism: Mechanism
    directory: str
    token: str
    max_message: int
    host: str

    def spec(self, address: str = "", duties: Duties | None = None) -> Spec:
        """The cell's description for the adapter; `duties` where its server runs in this process."""
        spec = Spec(self.mechanism, self.directory, self.token, address, max_message=self.max_message, host=self.host)
        if duties is None:
            return spec
        return replace(spec, served=duties.served, receive=duties.receiver.receive)


def boot() -> Boot:
    """Tie this process to its parent, pin it, and load the adapter. Called before any peer is imported."""
    config: dict[str, Any] = json.loads(sys.argv[2])
    die_with(config["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the parent, which stops its workers in order
    take_all()
    os.sched_setaffinity(0, config["cpus"])  # before any thread starts, so that all of them inherit it
    os.environ["XDG_RUNTIME_DIR"] = config["directory"]  # removed with the launch's directory
    adapter = cast(Adapter, load(config["module"]))
    mechanism = next(m for m in adapter.MECHANISMS if m.name == config["mechanism"])
    channel = Channel(config["read_fd"], config["write_fd"])
    about = (config["directory"], config["token"], config["max_message"], config["host"])
    return Boot(channel, adapter, mechanism, *about)
