"""What a confined process of these tests runs: it confines itself, then does what the test says, and tells how it went.

Started as a program with one argument, in JSON: ``policy`` (fields of ``Policy``, or null for no confinement), ``code``,
``names`` (variables for the code), ``path`` (where modules are). The code leaves its result in ``result``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number: int, *arguments: Any) -> int:
    """A raw system call.

    Raises:
        OSError: it failed.
    """
    ctypes.set_errno(0)
    plain = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    done: int = libc.syscall(ctypes.c_long(number), *plain)
    if done == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return done


def run_machine_code(code: bytes) -> int:
    """Runs a function without arguments that is written in the processor's own language; what it returns."""
    import mmap

    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    returned: int = ctypes.CFUNCTYPE(ctypes.c_long)(address)()
    return returned


def tell(**what: Any) -> None:
    """To the test, as a line of its own."""
    os.write(1, json.dumps(what, default=str).encode() + b"\n")


def main() -> None:
    asked = json.loads(sys.argv[1])
    sys.path[:0] = asked["path"]
    if asked["policy"] is not None:
        from nearcall.sandbox import Policy, SandboxError, confine

        try:
            report = confine(Policy(**asked["policy"]))
        except SandboxError as error:
            tell(sandbox_error=str(error))
            return
        tell(layers={layer.name: [layer.state, layer.detail] for layer in report.layers})
    space = {"call": call, "libc": libc, "ctypes": ctypes, "run_machine_code": run_machine_code, "tell": tell, "os": os}
    space |= asked["names"]
    try:
        exec(compile(asked["code"], "attempt", "exec"), space)
    except OSError as error:
        tell(error=errno.errorcode.get(error.errno or 0, str(error)))
    except BaseException as error:
        tell(error=type(error).__name__, said=str(error))
    else:
        tell(result=space.get("result"))


if __name__ == "__main__":
    main()
