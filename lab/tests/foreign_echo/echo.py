"""What an adapter in another language is like: it imports nothing of the lab, only what docs/adapters.md describes."""

import array
import contextlib
import json
import os
import socket
import sys
import threading
import time

role, config = sys.argv[1], json.loads(sys.argv[2])
requests = os.fdopen(config["read_fd"], "rb")
answers = os.fdopen(config["write_fd"], "wb")
os.sched_setaffinity(0, config["cpus"])
served = 0


def answer(message: dict, blob: bytes = b"") -> None:
    if blob:
        message["blob"] = len(blob)
    answers.write(json.dumps(message).encode() + b"\n" + blob)
    answers.flush()


def send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(len(data).to_bytes(4, "little") + data)


def receive(connection: socket.socket) -> bytes:
    found = bytearray()
    size = 4
    while len(found) < size:
        more = connection.recv(65536)
        if not more:
            raise ConnectionResetError("the other side is gone")
        found += more
        if size == 4 and len(found) >= 4:
            size += int.from_bytes(found[:4], "little")
    return bytes(found[4:])


def serve() -> None:
    path = os.path.join(config["directory"], "foreign.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def accept() -> None:
        global served
        while True:
            connection, _ = listener.accept()
            with contextlib.suppress(OSError):
                while True:
                    data = receive(connection)
                    served += 1
                    send(connection, data)

    threading.Thread(target=accept, daemon=True).start()
    answer({"ready": path})
    for line in requests:
        request = json.loads(line)
        if request["do"] == "stop":
            os._exit(0)
        answer({"served": served} if request["do"] == "served" else {"unsupported": request["do"]})


def echo(connection: socket.socket, data: bytes) -> bytes:
    send(connection, data)
    return receive(connection)


def call_until(connection: socket.socket, data: bytes, end: int, most: int, started: list, done: list) -> dict:
    """Call at least once. What failed, by kind: a dead server fails a call, and the others that were due."""
    while not done or (done[-1] < end and len(done) < most):
        begun = time.monotonic_ns()
        try:
            reply = echo(connection, data)
        except OSError as error:
            return {type(error).__name__: 1}
        started.append(begun)
        done.append(time.monotonic_ns())
        if reply != data:
            raise ValueError("wrong reply")
    return {}


def drive() -> None:
    answer({"loaded": True})
    connection, requested = socket.socket(socket.AF_UNIX), 0
    for line in requests:
        request = json.loads(line)
        if request["do"] == "prepare":
            mode, work = request["cell"]["mode"], request["cell"]["work"]
            if mode["kind"] != "closed" or mode["connections"] > 1:
                answer({"unsupported": "only a closed loop over one connection"})
                continue
            connection.close()  # of the cell before this one
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(request["address"])
            warm: tuple = ([], [])
            timed: tuple = ([], [])
            warm_until, most = time.monotonic_ns() + int(mode["warmup_s"] * 1e9), mode["calls"] or 1 << 62
            call_until(connection, b"x" * work["size"], warm_until, most, *warm)
            first = warm[1][0] - warm[0][0]
            answer({"first_call_ns": first, "warmup_calls": len(warm[0]), "warmed_up": False, "slots": 1})
        elif request["do"] == "go":
            while time.monotonic_ns() < request["begin_ns"]:
                time.sleep(0.0001)
            length = 120.0 if mode["calls"] else mode["seconds"]
            end = request["begin_ns"] + int(length * 1e9)
            errors = call_until(connection, b"x" * work["size"], end, most, *timed)
            answer({"ran": True})
        elif request["do"] == "results":
            rows = len(timed[0])
            requested += len(warm[0]) + rows
            blob = array.array("q", timed[0] + timed[1]).tobytes()
            told = {"columns": ["started", "done"], "rows": rows, "requests": requested}
            answer({**told, "failed": sum(errors.values()), "errors": errors}, blob)
        elif request["do"] == "stop":
            answer({"stopped": True})
            return
        else:
            answer({"unsupported": request["do"]})


serve() if role == "server" else drive()
