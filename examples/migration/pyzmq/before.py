"""A collector of measurements with pyzmq: sensors push, screens subscribe, and anybody may ask.

    python before.py serve
    python before.py

It prints::

    berlin: mean 10.0 of 1
    berlin: mean 15.0 of 2
    berlin: mean 20.0 of 3
    oslo: mean -2.0 of 2
    refused: no station 'rome'
"""

import json
import sys

import zmq

PUSHED = "tcp://127.0.0.1:7105"
ASKED = "tcp://127.0.0.1:7106"
WATCHED = "tcp://127.0.0.1:7107"
TIMEOUT = 10_000
"""How long to wait for an answer, milliseconds."""


class Collector:
    def __init__(self, watched):
        self._watched = watched
        self._values = {}

    def measured(self, message):
        try:
            station, value = json.loads(message)
            value = float(value)
        except (ValueError, TypeError):
            return  # nobody would hear of it
        self._values.setdefault(station, []).append(value)
        self.publish(station)

    def publish(self, station):
        values = self._values.get(station)
        if values:
            mean = {"mean": sum(values) / len(values), "count": len(values)}
            self._watched.send_multipart([station.encode(), json.dumps(mean).encode()])

    def answer(self, message):
        try:
            station = json.loads(message)["latest"]
        except (ValueError, KeyError, TypeError):
            return {"error": "not understood"}
        if station not in self._values:
            return {"error": f"no station {station!r}"}
        return {"mean": sum(self._values[station]) / len(self._values[station]), "count": len(self._values[station])}


def serve():
    context = zmq.Context()
    pushed, asked, watched = context.socket(zmq.PULL), context.socket(zmq.ROUTER), context.socket(zmq.XPUB)
    watched.set(zmq.XPUB_VERBOSE, 1)  # we want to hear of each subscriber, to send him the last value
    pushed.bind(PUSHED)
    asked.bind(ASKED)
    watched.bind(WATCHED)
    collector = Collector(watched)
    poller = zmq.Poller()
    for each in (pushed, asked, watched):
        poller.register(each, zmq.POLLIN)
    while True:  # a handler that takes long delays everybody: there is one thread
        ready = dict(poller.poll())
        if pushed in ready:
            collector.measured(pushed.recv())
        if asked in ready:
            sender, _, message = asked.recv_multipart()
            asked.send_multipart([sender, b"", json.dumps(collector.answer(message)).encode()])
        if watched in ready:
            event = watched.recv()
            if event[:1] == b"\x01":
                collector.publish(event[1:].decode())


def ask(socket, station):
    socket.send_json({"latest": station})
    if not socket.poll(TIMEOUT):
        raise TimeoutError("no answer; the socket must be closed and made again")
    reply = socket.recv_json()
    if "error" in reply:
        raise LookupError(reply["error"])
    return reply


def watch(socket):
    if not socket.poll(TIMEOUT):
        raise TimeoutError("nothing published")
    station, mean = socket.recv_multipart()
    mean = json.loads(mean)
    print(f"{station.decode()}: mean {mean['mean']} of {mean['count']}")


def main():
    with (
        zmq.Context() as context,
        context.socket(zmq.PUSH) as sensor,
        context.socket(zmq.REQ) as asking,
        context.socket(zmq.SUB) as screen,
    ):
        for socket, url in ((sensor, PUSHED), (asking, ASKED), (screen, WATCHED)):
            socket.setsockopt(zmq.LINGER, 0)  # otherwise the program may never end
            socket.connect(url)
        sensor.send_json(["berlin", 10.0])
        screen.subscribe(b"berlin")
        watch(screen)
        for measurement in (["berlin", 20.0], ["oslo", -1.0], ["oslo", -3.0], ["berlin", 30.0]):
            sensor.send_json(measurement)
        watch(screen)
        watch(screen)
        oslo = ask(asking, "oslo")
        print(f"oslo: mean {oslo['mean']} of {oslo['count']}")
        try:
            ask(asking, "rome")
        except LookupError as error:
            print("refused:", error.args[0])


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
