"""What a confined process of these tests runs: it confines itself, then does what the test says, and tells how it went.

Started as a program with one argument, in JSON: ``policy`` (fields of ``Policy``, or null for no confinement),
``code``, ``names`` (variables for the code), ``path`` (where modules are), ``lacking`` (numbers of system calls that
the kernel shall seem not to have). The code leaves its result in ``result``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
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
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))
    return done


def run_machine_code(code: bytes) -> int:
    """Runs a function without arguments that is written in the processor's own language; what it returns."""
    import mmap

    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    returned: int = ctypes.CFUNCTYPE(ctypes.c_long)(address)()
    return returned


def take_away(numbers: list[int]) -> None:
    """Lets these system calls fail as on a system that does not have them, or forbids them."""
    if not numbers:
        return
    load, jump_if_equal, answer, allow, fail = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000 | errno.ENOSYS
    program = [(load, 0, 0, 0)]
    for number in numbers:
        program += [(jump_if_equal, 0, 1, number), (answer, 0, 0, fail)]
    program.append((answer, 0, 0, allow))
    text = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    filters = ctypes.create_string_buffer(text, len(text))
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(filters))
    no_new_privs, set_seccomp, by_filter = 38, 22, 2
    assert libc.prctl(no_new_privs, 1, 0, 0, 0) == 0
    assert libc.prctl(set_seccomp, by_filter, ctypes.c_char_p(head), 0, 0) == 0


def tell(**what: Any) -> None:
    """To the test, as a line of its own."""
    os.write(1, json.dumps(what, default=str).encode() + b"\n")


def main() -> None:
    asked = json.loads(sys.argv[1])
    sys.path[:1] = asked["path"]  # not the directory of this file
    take_away(asked["lacking"])
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
