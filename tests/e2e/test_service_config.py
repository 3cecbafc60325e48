"""gRPC's service configs: what says the same here counts, and what is wrong is refused, beside grpcio as a peer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

import nearcall
from nearcall.client.service_config import MethodConfig, read_service_config

from .ports import own_port
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


@pytest.mark.parametrize("method", ["Slow", "slow"])
@pytest.mark.parametrize("scheme", ["shm", "grpc"])
def test_timeouts_of_single_methods(scheme: str, key: str, method: str) -> None:
    url = f"shm://config{key}" if scheme == "shm" else "grpc://127.0.0.1:0"
    config = {
        "methodConfig": [
            {"name": [{"service": "shop.v1.Shop", "method": method}], "timeout": "0.05s"},
            {"name": [{"service": "shop.v1.Shop", "method": "slower"}], "timeout": "0.06s"},
            {"name": [{"service": "shop.v1.Shop"}, {}], "timeout": "1000s"},
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


def names(*pairs: str) -> list[dict[str, str]]:
    """``"Service/Method"``, ``"Service"`` or ``""``, as an entry of ``methodConfig`` has them."""
    return [dict(zip(("service", "method"), filter(None, pair.split("/")), strict=False)) for pair in pairs]


def retrying(attempts: int) -> dict[str, Any]:
    return RETRY | {"maxAttempts": attempts}


SPECIFIC = {
    "methodConfig": [
        {"name": names(""), "retryPolicy": retrying(2)},
        {"name": names("fair.v1.Fair"), "retryPolicy": retrying(3)},
        {"name": names("fair.v1.Fair/Often"), "retryPolicy": retrying(5)},
        {"name": names("fair.v1.Fair/Once"), "timeout": "1000s"},
    ]
}
"""What grpcio makes of it, too: the most specific entry counts, and counts as a whole."""
ATTEMPTS = {"often": 5, "usual": 3, "once": 1, "elsewhere": 2}


@nearcall.service(name="fair.v1.Fair")
class Fair:
    """All its methods fail; the number of the attempt is in the message."""

    def __init__(self) -> None:
        self.attempts: dict[str, int] = {}

    def _fail(self, name: str) -> int:
        self.attempts[name] = self.attempts.get(name, 0) + 1
        raise nearcall.Unavailable("closed")

    @nearcall.idempotent
    def often(self) -> int:
        return self._fail("often")

    @nearcall.idempotent
    def usual(self) -> int:
        return self._fail("usual")

    @nearcall.idempotent
    def once(self) -> int:
        return self._fail("once")


@nearcall.service(name="fair.v1.Booth")
class Booth(Fair):
    @nearcall.idempotent
    def elsewhere(self) -> int:
        return self._fail("elsewhere")


@contextlib.contextmanager
def fairs_by_grpcio(attempts: dict[str, int]) -> Iterator[str]:
    def failing(name: str) -> Any:
        def fail(_body: bytes, context: Any) -> bytes:
            attempts[name] = attempts.get(name, 0) + 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "closed")

        return grpc.unary_unary_rpc_method_handler(fail)

    server = grpc.server(ThreadPoolExecutor(1))
    of_fair = {name.title(): failing(name) for name in ("often", "usual", "once")}
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler("fair.v1.Fair", of_fair),
            grpc.method_handlers_generic_handler("fair.v1.Booth", {"Elsewhere": failing("elsewhere")}),
        ]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait(PATIENCE)


@contextlib.contextmanager
def fairs(by: str, key: str, attempts: dict[str, int]) -> Iterator[str]:
    """A server at which everything fails, and counts."""
    if by == "grpcio":
        with fairs_by_grpcio(attempts) as url:
            yield url
        return
    fair, booth = Fair(), Booth()
    fair.attempts = booth.attempts = attempts
    with nearcall.Server(fair, booth, f"shm://fair{key}" if by == "shm" else "grpc://127.0.0.1:0") as server:
        yield server.urls[0]


def fails(call: Callable[[], Any]) -> None:
    with pytest.raises(nearcall.Unavailable, match="closed"):
        call()


@pytest.mark.parametrize("kind", ["thread", "task", "grpcio"])
@pytest.mark.parametrize("by", ["shm", "grpc", "grpcio"])
def test_the_most_specific_entry_counts(by: str, kind: str, key: str) -> None:
    if (by, kind) == ("shm", "grpcio"):
        pytest.skip("grpcio does not speak it")
    attempts: dict[str, int] = {}
    with fairs(by, key, attempts) as url:
        if kind == "thread":
            with nearcall.Channel(url, service_config=SPECIFIC) as channel:
                fair, booth = channel.client(Fair).service, channel.client(Booth).service
                for method in (fair.often, fair.usual, fair.once, booth.elsewhere):
                    fails(method)
        elif kind == "task":

            async def run() -> None:
                async with nearcall.aio.Channel(url, service_config=SPECIFIC) as channel:
                    fair, booth = channel.client(Fair).service, channel.client(Booth).service
                    for method in (fair.often, fair.usual, fair.once, booth.elsewhere):
                        with pytest.raises(nearcall.Unavailable, match="closed"):
                            await method()

            asyncio.run(run())
        else:
            options = [("grpc.service_config", json.dumps(SPECIFIC))]
            with grpc.insecure_channel(url.removeprefix("grpc://"), options) as channel:
                for path in ("Fair/Often", "Fair/Usual", "Fair/Once", "Booth/Elsewhere"):
                    with pytest.raises(grpc.RpcError):
                        channel.unary_unary(f"/fair.v1.{path}")(b"", timeout=PATIENCE)
    assert attempts == ATTEMPTS


def test_one_method_is_hedged_and_another_sent_again(key: str) -> None:
    copies = threading.Barrier(3)

    @nearcall.service(name="fair.v1.Fair")
    class Slow(Fair):
        @nearcall.idempotent
        def often(self) -> int:
            return copies.wait(PATIENCE) * 0

    hedging = {"maxAttempts": 3, "hedgingDelay": "0s"}
    config = {
        "methodConfig": [
            {"name": names("fair.v1.Fair"), "retryPolicy": retrying(3)},
            {"name": names("fair.v1.Fair/Often"), "hedgingPolicy": hedging},
        ]
    }
    slow = Slow()
    with nearcall.Server(slow, f"shm://fair{key}") as server:
        with nearcall.connect(server.urls[0], Slow, service_config=config) as client:
            assert client.often() == 0  # three copies have met
            fails(client.usual)

        async def run() -> None:
            async with nearcall.aio.connect(server.urls[0], Slow, service_config=config) as client:
                assert await client.often() == 0

        asyncio.run(run())
    assert slow.attempts == {"usual": 3}


@pytest.mark.parametrize("by", ["shm", "grpcio"])
def test_methods_of_a_channel_share_one_budget(by: str, key: str) -> None:
    """Of four tokens the first call spends two with its failures: no other method sends anything again."""
    config = {
        "retryThrottling": {"maxTokens": 4, "tokenRatio": 0.1},
        "methodConfig": [
            {"name": names("fair.v1.Fair/Often"), "retryPolicy": retrying(5)},
            {"name": names("fair.v1.Fair/Usual"), "hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "1000s"}},
            {"name": names("fair.v1.Booth"), "retryPolicy": retrying(5)},
        ],
    }
    attempts: dict[str, int] = {}
    with fairs(by, key, attempts) as url, nearcall.Channel(url, service_config=config) as channel:
        fair, booth = channel.client(Fair).service, channel.client(Booth).service
        for method in (fair.often, fair.usual, booth.elsewhere):
            fails(method)
    assert attempts == {"often": 2, "usual": 1, "elsewhere": 1}


@pytest.mark.parametrize("kind", ["thread", "task"])
@pytest.mark.parametrize("scheme", ["tcp", "grpc"])
def test_one_method_waits_for_a_server(scheme: str, kind: str) -> None:
    config = {
        "methodConfig": [
            {"name": names("shop.v1.Shop/FindAll"), "waitForReady": True},
            {"name": names(""), "timeout": f"{PATIENCE:g}s"},
        ]
    }
    url = f"{scheme}://127.0.0.1:{own_port()}"
    first = nearcall.Server(Shop(), url)
    first.start()

    def start_again() -> nearcall.Server:
        server = nearcall.Server(Shop(), url)
        server.start()
        return server

    if kind == "thread":
        with nearcall.connect(url, Shop, service_config=config) as client:
            first.stop()
            with pytest.raises(nearcall.Unavailable):
                client.slow()
            waiting: list[int] = []
            thread = threading.Thread(target=lambda: waiting.append(client.find_all()))
            thread.start()
            second = start_again()
            thread.join(PATIENCE)
            assert waiting == [1]
            second.stop()
        return

    async def run() -> None:
        async with nearcall.aio.connect(url, Shop, service_config=config) as client:
            await asyncio.to_thread(first.stop)
            with pytest.raises(nearcall.Unavailable):
                await client.slow()
            waits = asyncio.ensure_future(client.find_all())
            await asyncio.sleep(0)
            second = await asyncio.to_thread(start_again)
            assert await waits == 1
            await asyncio.to_thread(second.stop)

    asyncio.run(run())


def test_a_policy_that_cannot_count_is_told(caplog: pytest.LogCaptureFixture, key: str) -> None:
    policies: list[dict[str, Any]] = [
        {"name": names("shop.v1.Shop/Slow"), "retryPolicy": RETRY},
        {"name": names("shop.v1.Shop"), "retryPolicy": RETRY},
    ]
    with (
        nearcall.Server(Shop(), f"shm://told{key}") as server,
        caplog.at_level(logging.WARNING, "nearcall"),
        nearcall.Channel(server.urls[0], service_config={"methodConfig": policies}) as channel,
    ):
        assert [channel.client(Shop).service.find_all() for _ in range(2)] == [1, 2]
    assert caplog.messages == [
        f"the retryPolicy for shop.v1.Shop.slow in the service config for {server.urls[0]} does not count: it is not "
        "marked @nearcall.idempotent, so its calls are made once"
    ]


def test_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    found = read_service_config(json.dumps(EVERYTHING), "grpc://one")
    assert found.options == {"balancing": "round_robin", "max_message_size": 1 << 20}
    assert found.said == {"balancing", "max_message_size", "retry", "hedge", "wait_for_ready"}
    assert found.throttling == (10.0, 0.1)
    assert found.waits
    retry = nearcall.Retry(attempts=4, initial_backoff=0.01, max_backoff=0.05, multiplier=2.0, max_tokens=0.0)
    assert found.methods == {
        ("", ""): MethodConfig(None, True, retry, None),
        ("shop.v1.Shop", "Slow"): MethodConfig(0.1, True, None, None),
    }
    assert not caplog.records
    hedge = {"maxAttempts": 9, "hedgingDelay": "0.5s", "nonFatalStatusCodes": [14, "aborted"]}
    found = read_service_config({"methodConfig": [{"name": [{}], "hedgingPolicy": hedge}]}, "grpc://one")
    codes = (nearcall.StatusCode.UNAVAILABLE, nearcall.StatusCode.ABORTED)
    assert found.methods["", ""].hedge == nearcall.Hedge(0.5, attempts=5, codes=codes, max_tokens=0.0)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"healthCheckConfig": {"serviceName": "x"}}, "healthCheckConfig"),
        ({"methodConfig": [{"name": [{}], "maxRequestMessageBytes": 5}]}, "maxRequestMessageBytes"),
        (
            {"methodConfig": [{"name": [{"service": "a"}], "maxResponseMessageBytes": 5}]},
            "maxResponseMessageBytes of some methods",
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
    ({"methodConfig": [{"name": [{}]}, {"name": [{}]}]}, "methodConfig[1]: the default has a config twice"),
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


@pytest.mark.parametrize("option", [{"retry": nearcall.Retry()}, {"hedge": nearcall.Hedge(1.0)}])
def test_a_policy_of_the_channel_beside_one_of_a_method_is_refused(option: Any) -> None:
    config = {"methodConfig": [{"name": names("a/B"), "hedgingPolicy": {"maxAttempts": 2}}]}
    with pytest.raises(ValueError, match=f"{next(iter(option))} is said by service_config, too"):
        nearcall.connect("grpc://127.0.0.1:1", Shop, service_config=config, **option)


def test_an_option_counts_for_methods_that_a_config_gives_a_timeout(key: str) -> None:
    config = {"methodConfig": [{"name": names("fair.v1.Fair/Often"), "timeout": f"{PATIENCE:g}s"}]}
    attempts: dict[str, int] = {}
    retry = nearcall.Retry(attempts=3, initial_backoff=0.001)
    with (
        fairs("shm", key, attempts) as url,
        nearcall.Channel(url, service_config=config, retry=retry) as channel,
    ):
        fails(channel.client(Fair).service.often)
    assert attempts == {"often": 3}
