"""An adapter whose server says what its process looks like, as its address."""

from __future__ import annotations

import json
import os
import random
import signal
import sys

from nearcall_lab.contract import Mechanism, Ready, Spec, Stop

MECHANISMS = (Mechanism("looks-around", "looks around", "rpc"),)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    main = sys.modules["__main__"]
    open_now = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
    seen = {
        "parent": os.getppid(),
        "leads its session": os.getsid(0) == os.getpid(),
        "descriptors": len(open_now),
        "input and outputs": [os.readlink(f"/proc/self/fd/{number}") for number in range(3)],
        "arguments": sys.argv[:-1],
        "main": [main.__name__, main.__spec__ and main.__spec__.name],
        "path": sys.path,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "interrupt": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "pipe": signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN,
        "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": len(os.listdir("/proc/self/task")),
        "random": random.random(),
    }
    print("said", flush=True)
    ready(json.dumps(seen))
    stop.wait()


def connect(spec: Spec) -> object:
    raise NotImplementedError
