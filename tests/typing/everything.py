"""The public names that ``accepted.py`` does not use, as users write them. Both checkers must agree with every line."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack, assert_type

import nearcall
import nearcall.testing
from nearcall import plugin, route, sandbox
from nearcall.health import (
    Health,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
    ServingStatus,
    health_of,
)
from nearcall.introspection import ConnectionStatistics, Introspection, MethodStatistics, Statistics, introspection_of
from tests.typing.calculator import AsyncRoom, Calculator, Ear, Listener, Room


@dataclass
class Sample:
    number: Annotated[int, nearcall.field(3)]


@nearcall.service
class Samples:
    @nearcall.no_side_effects
    def last(self) -> Sample:
        return Sample(1)

    def numbers(self) -> Generator[int, None, None]:
        yield 1


def errors() -> None:
    try:
        print(nearcall.__version__)
    except (nearcall.AlreadyExists, nearcall.Cancelled, nearcall.DataLoss, nearcall.FailedPrecondition) as error:
        assert_type(error.code, nearcall.StatusCode)
    except (nearcall.Internal, nearcall.InvalidArgument, nearcall.OutOfRange, nearcall.ResourceExhausted) as error:
        assert_type(error.details, Any)
    except (nearcall.Unauthenticated, nearcall.Unimplemented, nearcall.Unknown, nearcall.Unavailable) as error:
        assert_type(error.message, str)
    except PermissionError as error:
        if isinstance(error, nearcall.PermissionDenied):
            assert_type(error.message, str)
    except TimeoutError as error:
        if isinstance(error, nearcall.DeadlineExceeded):
            assert_type(error.message, str)
    except nearcall.RpcError as error:
        assert_type(error.remote_traceback, str | None)
        assert_type(error.trailing_metadata, nearcall.Metadata)
    except nearcall.WorkerFailed as error:
        print(error)


def around_a_call() -> None:
    retry = nearcall.Retry(attempts=4, initial_backoff=0.01, codes=[nearcall.StatusCode.UNAVAILABLE])
    tls = nearcall.TLS(ca="ca.pem")
    with nearcall.connect("tls://there:1", Samples, retry=retry, tls=tls, balancing="round_robin") as samples:
        assert_type(samples.last(), Sample)
        with closing(samples.numbers()) as numbers:
            assert_type(next(numbers), int)
        with nearcall.metadata({"key": "value", "key-bin": b"value"}) as metadata:
            samples.last()
        assert_type(metadata.trailing, nearcall.Metadata)
        with nearcall.compression("gzip"), nearcall.timeout(1.0):
            samples.last()
    login = nearcall.NATS(user="ada", password="secret", tls=tls)
    with nearcall.connect("nats+tls://there/samples", Samples, nats=login) as samples:
        assert_type(samples.last(), Sample)
    hedge = nearcall.Hedge(0.05, attempts=3)
    with nearcall.connect("shm://there", Samples, hedge=hedge) as samples:
        assert_type(samples.last(), Sample)


class OfText:
    name = "text"

    def encode(self, value: Any) -> bytes:
        return str(value).encode()

    def decode(self, data: bytes, type: Any) -> Any:
        return type(data.decode())


def codecs(messages: list[bytes]) -> None:
    own: nearcall.ValueCodec = OfText()
    server = nearcall.Server(Samples(), "shm://there", "grpc://here:1", codecs=["json", own], fallback=answered)
    with server, nearcall.connect("shm://there", Samples, codec=own) as samples:
        assert_type(samples.last(), Sample)
    with nearcall.Channel("grpc://here:1", balancing="least_calls") as channel:
        assert_type(list(channel.method("/Samples/Last")(messages)), list[bytes])


def answered(path: str, messages: Iterator[bytes]) -> Iterator[bytes]:
    yield path.encode()
    yield from messages


def around(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
    return proceed(call)


for_clients: nearcall.ClientInterceptor = around
for_servers: list[nearcall.ServerInterceptor] = [nearcall.auth.token("a"), nearcall.observe.access_log()]


def buffers() -> None:
    assert_type(nearcall.buffer(100), memoryview)
    assert_type(nearcall.empty((3, 4), np.uint8), NDArray[np.uint8])
    assert_type(nearcall.empty(3), NDArray[np.float64])
    assert_type(nearcall.empty(3, "<u2"), NDArray[Any])


def handler() -> None:
    call = nearcall.context()
    assert_type(call.on_cancel(lambda: None), None)
    call.compress = True
    call.compress = None
    assert_type(call.time_left, float | None)


def children() -> None:
    child = nearcall.spawn([sys.executable, "counting.py"], Samples, cwd="/")
    assert_type(child, nearcall.Child[Samples])
    assert_type(child.process.pid, int)
    with child as samples:
        assert_type(samples, Samples)


def tell(workers: nearcall.Workers) -> None:
    assert_type(workers.urls, list[str])
    assert_type(workers.pids, list[int])


def serve() -> None:
    nearcall.serve(Samples, "shm://samples", workers=2, on_ready=tell)
    nearcall.serve(Samples(), "shm://samples", on_ready=lambda server: print(server.urls))
    server = nearcall.Server(Samples(), interceptors=for_servers, compression="zstd").bind()
    assert_type(server.start(), nearcall.Server)
    print(server.health)
    print(nearcall.grpcio.server, nearcall.grpcio.aio.server)
    print(nearcall.observe.prometheus, nearcall.observe.opentelemetry, nearcall.observe.prometheus_page)


def watched() -> None:
    with nearcall.connect("shm://calc", Introspection) as watcher:
        seen = watcher.read()
        assert_type(seen, Statistics)
        assert_type(seen.methods, list[MethodStatistics])
        assert_type(watcher.read_connections(), list[ConnectionStatistics])
    with nearcall.connect("grpc://there:1", Health, interceptors=[for_clients]) as health:
        answer = health.check(HealthCheckRequest("shop"))
        assert_type(answer, HealthCheckResponse)
        assert_type(answer.status, ServingStatus)
        assert_type(health.list(HealthListRequest()), HealthListResponse)
    print(health_of, introspection_of)


async def event_loops() -> None:
    async with AsyncExitStack() as stack:
        child = await nearcall.aio.spawn([sys.executable, "counting.py"], Samples)
        assert_type(child, nearcall.aio.AsyncChild)
        stack.push_async_callback(child.close)


def tests() -> None:
    serving = nearcall.testing.serving(Calculator(), client={"timeout": 1.0}, server={"tracebacks": True})
    assert_type(serving, nearcall.testing.Serving[Calculator])
    with serving as calc:
        assert_type(calc.add(1), int)
    with nearcall.testing.serving(object(), interface=Calculator) as calc:
        assert_type(calc, Calculator)
    faulty = nearcall.testing.faulty(Calculator())
    assert_type(faulty, nearcall.testing.Faulty[Calculator])
    with faulty as (calc, proxy):
        assert_type(calc.add(1), int)
        assert_type(proxy, nearcall.testing.FaultyProxy)
    fault: nearcall.testing.Fault | None = None
    frame: nearcall.testing.Frame | None = None
    print(fault, frame, nearcall.testing.Kind)


@plugin.filter
def text(text: str) -> str:
    return text


@plugin.action(name="keys.pressed", budget=0.1)
def pressed(key: str) -> None: ...


@plugin.decider
def may(key: str) -> bool:
    return bool(key)


@plugin.accumulating_decider(default=False)
def may_all(key: str) -> bool:
    return bool(key)


@plugin.chain
def words(text: str) -> list[str]:
    return [text]


@text.handler
def louder(text: str) -> str:
    return text.upper()


@pressed.handler(priority=3)
def say(key: str) -> None:
    plugin.use("ear", Listener).said(key)
    print(plugin.granted("ear"), plugin.storage())


@plugin.on_stop
def ended() -> None: ...


plugin.offer(Ear())


def options_of_hosts(**options: Unpack[plugin.HostOptions]) -> plugin.PluginHost:
    return plugin.PluginHost("plugins", **options)


def hosts() -> None:
    with options_of_hosts(services={"ear": Ear()}, points=[text, pressed]) as host:
        point: plugin.ExtensionPoint[[str], bool] = may
        extension: plugin.Extension[[str], bool] = host.extension(point)
        assert_type(extension("x"), bool)
        assert_type(host.extension(may_all)("x"), bool)
        assert_type(host.extension(words)("x"), list[str])
        assert_type(host.plugins["a"], plugin.Plugin)
        assert_type(host.plugins["a"].service(Room), Room)


async def hosts_in_loops() -> None:
    async with plugin.AsyncPluginHost("plugins", points=[text]) as host:
        assert_type(await host.extension(text)("x"), str)
        assert_type(host.plugins["a"], plugin.AsyncPlugin)
        assert_type(await host.plugins["a"].service(AsyncRoom), AsyncRoom)
        assert_type(await host.plugins["a"].service(Room), Any)


def manifests() -> None:
    try:
        manifest = plugin.read_manifest("plugins/loud")
    except plugin.ManifestError as error:
        assert_type(error.mistakes, tuple[plugin.Mistake, ...])
        return
    assert_type(manifest, plugin.Manifest)


def answer(ask: plugin.Ask) -> plugin.Answer:
    raise NotImplementedError


def told(event: plugin.PluginEvent, permission: plugin.Permission) -> None:
    print(event, permission)


def confined() -> None:
    try:
        report = sandbox.confine(sandbox.Policy())
    except sandbox.SandboxError:
        report = sandbox.available()
    assert_type(report, sandbox.Report)
    assert_type(report.missing(), tuple[sandbox.Layer, ...])
    print(sandbox.LAYERS, sandbox.explain(sandbox.Policy()), sandbox.violation(1, ""))


async def lifespan(server: nearcall.Server) -> AsyncIterator[int]:
    yield len(server.urls)


def depended(number: int = nearcall.depends(lifespan)) -> Iterator[str]:
    yield str(number)


makers: list[Callable[[], object]] = [nearcall.Session]


class Packed(nearcall.ProtobufAny):
    """As a module that `nearcall stub` has written declares it."""


def any_message(packed: Packed, sample: Sample) -> None:
    assert_type(packed.unpack(Sample), Sample)
    assert_type(packed.holds(Sample), bool)
    assert_type(Packed.pack(sample), Packed)


@route.message(1)
@dataclass
class Told:
    text: str


def routed(policy: route.WhenFull) -> None:
    node = nearcall.route.Node("shm://node", when_full=policy, table="routes.toml")

    @node.on(Told)
    def note(message: route.Message[Told]) -> None:
        assert_type(message.value, Told)
        message.reply(b"")

    with node:
        node.send(Told("x"), subscription=1)
        node.send(1, memoryview(b""), to="shm://other")
        assert_type(node.call(1, b"", timeout=1).payload, bytes)
        straight = node.direct("shm://other")
        assert_type(straight, route.Direct)
        assert_type(straight.call(1, timeout=1), route.Message[Any])
        assert_type(node.receive(), route.Message[Any] | None)
        assert_type(node.table(), route.RouteTable | None)
        status = node.status()
        assert_type(status, route.NodeStatus)
        assert_type(status.endpoints, list[route.EndpointStatus])
        assert_type(status.rmr, route.RmrStatus | None)
        assert_type(status.left, route.LeftStatus | None)
    route.prometheus(node)
    with nearcall.connect("shm://node", route.Route) as client:
        assert_type(client.status(), route.NodeStatus)
    with (
        nearcall.Server(route.manager(), "shm://routes"),
        nearcall.connect("shm://routes", route.RouteManager) as manager,
    ):
        assert_type(manager.nodes(), list[route.AttachedNode])
    print(route.NodeInfo("a", "shm://a", [1], "a"))


async def routed_in_loop() -> None:
    node = route.aio.Node("shm://node", concurrency=4)

    @node.on(Told)
    async def note(message: route.aio.Message[Told]) -> None:
        assert_type(message.value, Told)
        await message.reply(b"")

    @node.on(2)
    def note_plainly(message: route.aio.Message[Any]) -> None:
        assert_type(message.view, memoryview)

    async with node:
        await node.ready(1)
        await node.send(Told("x"), subscription=1)
        assert_type(await node.call(1, b"", timeout=1), route.aio.Message[Any])
        assert_type(await node.receive(1), route.aio.Message[Any] | None)
        async for message in node:
            assert_type(message, route.aio.Message[Any])
        assert_type(node.status(), route.NodeStatus)


class Money:
    def __init__(self, text: str) -> None:
        self.text = text


nearcall.register_type(Money, to=str, give=lambda money: money.text, make=Money)
amounts = nearcall.CarriedType(Money, to=list[str], give=lambda money: [money.text], make=lambda texts: Money(texts[0]))


@nearcall.service(types=[amounts])
class Till:
    def change(self, paid: Money, price: Money | int) -> list[Money]:
        return [paid]


def carried() -> None:
    with nearcall.connect("shm://till", Till) as till:
        assert_type(till.change(Money("1"), 3), list[Money])


def may_register(context: nearcall.Context, entry: nearcall.directory.Entry) -> bool:
    return entry.metadata.get("zone") == "eu" and bool(context.peer)


def by_name() -> None:
    directory = nearcall.directory.MemoryDirectory(may_register=may_register, max_entries=100, max_bytes=1 << 20)
    token: nearcall.ChannelOptions = {"interceptors": [nearcall.auth.token("secret")]}
    name = "directory+tcp://127.0.0.1:7100/samples?zone=eu"
    registration = nearcall.Registration(name, at="tcp://10.0.0.1:7000", exclusive=True, **token)
    with (
        nearcall.Server(directory, "tcp://127.0.0.1:7100"),
        nearcall.Server(Samples(), "tcp://127.0.0.1:0", register=[registration, name]),
        nearcall.connect(name, Samples, directory=token, balancing="round_robin") as samples,
        nearcall.connect("tcp://127.0.0.1:7100", nearcall.directory.Directory) as names,
    ):
        assert_type(samples.last(), Sample)
        found = names.lookup("samples", {"zone": "eu"})
        assert_type(found, nearcall.directory.Found)
        assert_type([entry.url for entry in found.entries], list[str])
