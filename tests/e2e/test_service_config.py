"""gRPC's service configs: what says the same here counts, and what is wrong is refused, beside grpcio as a peer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from typing import Any

import grpc
import pytest

import nearcall
from nearcall.client.service_config import read_service_config

from .pushing import pushing

PATIENCE = 30.0


@nearcall.service(name="shop.v1.Shop")
class Shop:
    def __init__(self) -> None:
        self.failures = 0
        self.attempts: list[str] = []
        self.gate = threading.Event()

    @nearcall.idempotent
    def find_all(self) -> int:
        metadata = dict(nearcall.context().metadata.pairs())
        self.attempts.append(str(metadata.get("grpc-previous-rpc-attempts", "none")))
        if len(self.attempts) <= self.failures:
            raise nearcall.Unavailable("not yet")
        return len(self.attempts)

    def slow(self) -> int:
        self.gate.wait(PATIENCE)
        return 1

    def slower(self) -> int:
        return self.slow()


RETRY = {
    "maxAttempts": 4,
    "initialBackoff": "0.01s",
    "maxBackoff": "0.05s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
EVERYTHING = {
    "loadBalancingConfig": [{"newer_policy": {}}, {"round_robin": {}}],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
    "methodConfig": [
        {"name": [{}], "waitForReady": True, "retryPolicy": RETRY, "maxResponseMessageBytes": 1 << 20, "unknown": 1},
        {"name": [{"service": "shop.v1.Shop", "method": "Slow"}], "timeout": "0.1s", "waitForReady": True},
    ],
    "unknown": {},
}


def test_the_same_config_means_the_same_to_grpcio() -> None:
    """A call fails twice, is sent again by both clients, and the handler is told how often it has failed."""
    config = json.dumps({"methodConfig": [{"name": [{"service": "shop.v1.Shop"}], "retryPolicy": RETRY}]})
    told: list[list[str]] = []
    for ours in (True, False):
        shop = Shop()
        shop.failures = 2
        with nearcall.Server(shop, "grpc://127.0.0.1:0") as server:
            if ours:
                with nearcall.connect(server.urls[0], Shop, service_config=config) as client:
                    assert client.find_all() == 3
            else:
                options = [("grpc.service_config", config), ("grpc.enable_retries", 1)]
                with grpc.insecure_channel(server.urls[0].removeprefix("grpc://"), options) as channel:
                    call: Any = channel.unary_unary("/shop.v1.Shop/FindAll")
                    assert call(b"", timeout=PATIENCE) == b"\x08\x03"
        told.append([each.strip("b'") for each in shop.attempts])
    assert told == [["none", "1", "2"]] * 2


@pytest.mark.parametrize(("pushback", "pause", "attempts"), [("1", "1000s", 2), ("-1", "0.01s", 1)])
@pytest.mark.parametrize("client_by", ["nearcall", "grpcio"])
@pytest.mark.parametrize("server_by", ["nearcall", "grpcio"])
def test_servers_say_when_a_call_is_sent_again(
    server_by: str, client_by: str, pushback: str, pause: str, attempts: int
) -> None:
    """A second attempt after a pause that outlasts the deadline, or none after a short one: the server is obeyed."""
    policy = RETRY | {"initialBackoff": pause, "maxBackoff": pause}
    config = json.dumps({"methodConfig": [{"name": [{"service": "shop.v1.Shop"}], "retryPolicy": policy}]})
    asked: list[float] = []
    answer = 0
    with pushing(server_by, pushback, asked) as address:
        if client_by == "nearcall":
            with (
                nearcall.connect(f"grpc://{address}", Shop, service_config=config, timeout=PATIENCE) as client,
                contextlib.suppress(nearcall.Unavailable),
            ):
                answer = client.find_all()
        else:
            with grpc.insecure_channel(address, [("grpc.service_config", config)]) as channel:
                call: Any = channel.unary_unary("/shop.v1.Shop/FindAll")
                with contextlib.suppress(grpc.RpcError):
                    answer = call(b"", timeout=PATIENCE)[1]
    assert (len(asked), answer) == (attempts, attempts if attempts > 1 else 0)


@pytest.mark.parametrize("scheme", ["shm", "grpc"])
def test_timeouts_of_single_methods(scheme: str, key: str) -> None:
    url = f"shm://config{key}" if scheme == "shm" else "grpc://127.0.0.1:0"
    config = {
        "methodConfig": [
            {"name": [{"service": "shop.v1.Shop", "method": "Slow"}], "timeout": "0.05s"},
            {"name": [{"service": "shop.v1.Shop"}], "timeout": "0.06s"},
            {"name": [{}], "timeout": "1000s"},
        ]
    }

    async def run(url: str) -> None:
        async with nearcall.aio.connect(url, Shop, service_config=config) as client:
            for method in (client.slow, client.slower):
                with pytest.raises(nearcall.DeadlineExceeded):
                    await method()

    shop = Shop()
    with nearcall.Server(shop, url) as server:
        with nearcall.connect(server.urls[0], Shop, service_config=config) as client:
            for method in (client.slow, client.slower):
                with pytest.raises(nearcall.DeadlineExceeded):
                    method()
            assert client.find_all() == 1
        asyncio.run(run(server.urls[0]))
        shop.gate.set()


def test_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    found = read_service_config(json.dumps(EVERYTHING), "grpc://one")
    assert found.options == {
        "balancing": "round_robin",
        "wait_for_ready": True,
        "max_message_size": 1 << 20,
        "retry": nearcall.Retry(
            attempts=4, initial_backoff=0.01, max_backoff=0.05, multiplier=2.0, max_tokens=10.0, token_ratio=0.1
        ),
    }
    assert found.timeouts == {("shop.v1.Shop", "Slow"): 0.1}
    assert not caplog.records
    hedge = {"maxAttempts": 9, "hedgingDelay": "0.5s", "nonFatalStatusCodes": [14, "aborted"]}
    found = read_service_config({"methodConfig": [{"name": [{}], "hedgingPolicy": hedge}]}, "grpc://one")
    codes = (nearcall.StatusCode.UNAVAILABLE, nearcall.StatusCode.ABORTED)
    assert found.options == {"hedge": nearcall.Hedge(0.5, attempts=5, codes=codes, max_tokens=0.0)}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"healthCheckConfig": {"serviceName": "x"}}, "healthCheckConfig"),
        ({"methodConfig": [{"name": [{}], "maxRequestMessageBytes": 5}]}, "maxRequestMessageBytes"),
        ({"methodConfig": [{"name": [{"service": "a"}], "waitForReady": True}]}, "waitForReady of some methods"),
        ({"methodConfig": [{"name": [{"service": "a"}], "retryPolicy": RETRY}]}, "retryPolicy of some methods"),
        (
            {"methodConfig": [{"name": [{"service": "a"}], "hedgingPolicy": {"maxAttempts": 2}}]},
            "hedgingPolicy of some methods",
        ),
        (
            {"methodConfig": [{"name": [{"service": "a"}], "maxResponseMessageBytes": 5}]},
            "maxResponseMessageBytes of some methods",
        ),
        (
            {
                "methodConfig": [
                    {"name": [{}], "retryPolicy": RETRY},
                    {"name": [{"service": "a"}], "retryPolicy": {**RETRY, "maxAttempts": 2}},
                ]
            },
            "more than one retryPolicy",
        ),
    ],
)
def test_what_has_no_counterpart_is_told(config: Any, words: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nearcall"):
        read_service_config(config, "grpc://one")
    (message,) = caplog.messages
    assert message.startswith("the service config for grpc://one says what has no counterpart: ")
    assert words in message


def of_retry(**changes: Any) -> dict[str, Any]:
    return {"methodConfig": [{"name": [{}], "retryPolicy": {**RETRY, **changes}}]}


FIRST = "service_config.methodConfig[0]"
RETRIED = f"{FIRST}.retryPolicy"
WRONG: list[tuple[Any, str]] = [
    ("{", "service_config is no JSON: "),
    ("[]", "service_config must be an object, not []"),
    ({"methodConfig": {}}, "service_config.methodConfig must be a list, not {}"),
    ({"methodConfig": [{"name": [{"method": "M"}]}]}, FIRST + ".name[0] names a method without a service"),
    ({"methodConfig": [{"name": [{}, {}]}]}, FIRST + ".name[1] is there twice"),
    ({"methodConfig": [{"name": [{}]}, {"name": [{}]}]}, FIRST + ": the default has a config twice"),
    ({"methodConfig": [{"name": [{}], "timeout": 1}]}, FIRST + '.timeout must be a duration such as "1.5s", not 1'),
    (of_retry(maxAttempts=1), RETRIED + ".maxAttempts must be at least 2, not 1"),
    (of_retry(maxAttempts=None), RETRIED + ".maxAttempts is missing"),
    (of_retry(initialBackoff="0s"), RETRIED + ".initialBackoff must be more than 0"),
    (of_retry(backoffMultiplier="2"), RETRIED + ".backoffMultiplier must be a number, not '2'"),
    (of_retry(backoffMultiplier=0.5), RETRIED + ".backoffMultiplier must be 1 or more here, not 0.5"),
    (of_retry(retryableStatusCodes=[]), RETRIED + ".retryableStatusCodes must name a status"),
    (of_retry(retryableStatusCodes=["OK"]), "must be the status of a failure, such as UNAVAILABLE, not 'OK'"),
    ({"retryThrottling": {"maxTokens": 0, "tokenRatio": 1}}, "retryThrottling.maxTokens must be more than 0"),
    ({"loadBalancingConfig": [{"xds": {}}]}, "service_config.loadBalancingConfig names no policy that is known here"),
    ({"loadBalancingConfig": [{"a": {}, "b": {}}]}, "service_config.loadBalancingConfig[0] must name one policy"),
    ({"loadBalancingPolicy": "grpclb"}, "loadBalancingPolicy must be pick_first or round_robin here, not 'grpclb'"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "words"), WRONG)
def test_what_is_wrong_is_refused(config: Any, words: str) -> None:
    with pytest.raises(nearcall.InvalidArgument) as caught:
        nearcall.connect("grpc://127.0.0.1:1", Shop, service_config=config)
    assert words in str(caught.value)
    assert caught.value.option == "service_config"


def test_an_option_is_said_once() -> None:
    with pytest.raises(ValueError, match="retry is said by service_config, too: leave one of them out"):
        nearcall.connect("grpc://127.0.0.1:1", Shop, retry=nearcall.Retry(), service_config=of_retry())
