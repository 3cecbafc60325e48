"""What an adapter in another language is like: it imports nothing of the lab, only what docs/adapters.md describes."""

import array
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


def serve() -> None:
    path = os.path.join(config["directory"], "foreign.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def accept() -> None:
        global served
        while True:
            connection, _ = listener.accept()
            while data := connection.recv(65536):
                served += 1
                connection.sendall(data)

    threading.Thread(target=accept, daemon=True).start()
    answer({"ready": path})
    for line in requests:
        request = json.loads(line)
        if request["do"] == "stop":
            os._exit(0)
        answer({"served": served} if request["do"] == "served" else {"unsupported": request["do"]})


def call_until(connection: socket.socket, data: bytes, end: int, started: list, done: list) -> None:
    while not done or done[-1] < end:
        started.append(time.monotonic_ns())
        connection.sendall(data)
        reply = connection.recv(65536)
        done.append(time.monotonic_ns())
        if reply != data:
            raise ValueError("wrong reply")


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
            call_until(connection, b"x" * work["size"], time.monotonic_ns() + int(mode["warmup_s"] * 1e9), *warm)
            first = warm[1][0] - warm[0][0]
            answer({"first_call_ns": first, "warmup_calls": len(warm[0]), "warmed_up": False, "slots": 1})
        elif request["do"] == "go":
            while time.monotonic_ns() < request["begin_ns"]:
                time.sleep(0.0001)
            call_until(connection, b"x" * work["size"], request["begin_ns"] + int(mode["seconds"] * 1e9), *timed)
            answer({"ran": True})
        elif request["do"] == "results":
            rows = len(timed[0])
            requested += len(warm[0]) + rows
            blob = array.array("q", timed[0] + timed[1]).tobytes()
            answer({"columns": ["started", "done"], "rows": rows, "requests": requested}, blob)
        elif request["do"] == "stop":
            answer({"stopped": True})
            return
        else:
            answer({"unsupported": request["do"]})


serve() if role == "server" else drive()
