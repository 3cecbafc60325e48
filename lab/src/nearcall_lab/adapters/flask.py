"""Flask's development server and requests.Session: what HTTP costs when nobody thinks about it."""

from __future__ import annotations

import logging
import time
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

MECHANISMS = (
    Mechanism(
        "flask",
        "Flask + requests.Session",
        "http",
        requires=("flask", "requests"),
        distribution="flask",
        settings="development server, threaded (it closes the connection after each reply), request log off",
        typed="JSON object, dataclass rebuilt on both sides",
        transport="TCP",
        operations=("echo", "quote", "wait"),
    ),
)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import flask
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    served = spec.served
    app = flask.Flask("lab")

    @app.post("/echo")  # type: ignore[untyped-decorator]
    def echo() -> Any:
        served.count()
        return flask.Response(flask.request.get_data(), mimetype="application/octet-stream")

    @app.post("/quote")  # type: ignore[untyped-decorator]
    def quote() -> Any:
        served.count()
        return flask.jsonify(vars(fill(Order(**flask.request.get_json()))))

    @app.post("/wait")  # type: ignore[untyped-decorator]
    def wait() -> Any:
        served.count()
        seconds = flask.request.get_json()
        time.sleep(seconds)
        return flask.jsonify(vars(named(seconds)))

    server = make_server(spec.host, 0, app, threaded=True)
    stop.on(server.shutdown)
    ready(f"http://{spec.host}:{server.server_port}")
    server.serve_forever()


def connect(spec: Spec) -> SimpleSession:
    import requests

    session = requests.Session()
    session.trust_env = False
    echo_url, quote_url = f"{spec.address}/echo", f"{spec.address}/quote"

    def echo(data: bytes) -> bytes:
        response = session.post(echo_url, data=data)
        response.raise_for_status()
        body: bytes = response.content
        return body

    def quote(order: Order) -> Fill:
        response = session.post(quote_url, json=vars(order))
        response.raise_for_status()
        return Fill(**response.json())

    def wait(seconds: float) -> Named:
        response = session.post(f"{spec.address}/wait", json=seconds)
        response.raise_for_status()
        return Named(**response.json())

    return SimpleSession({"echo": echo, "quote": quote, "wait": wait}, session.close)
