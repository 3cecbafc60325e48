"""Servicers and stubs written for grpcio, for threads: each test holds between grpcio and itself, too."""

from __future__ import annotations

import json
import logging
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, empty_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import nearcall
import nearcall.grpcio
import nearcall.grpcio.aio

from .grpcio_servers import DETAILS, SERVICE, SHAPES, add, read, write
from .ports import own_port
from .process import start_program

PATIENCE = 20.0
PAIRS = ["grpcio-grpcio", "grpcio-nearcall", "nearcall-grpcio", "nearcall-nearcall", "nearcall-shm"]
"""Client and server."""
PROGRAM = "from tests.e2e.grpcio_servers import main; main()"


class Stub:
    """As generated code makes one."""

    def __init__(self, channel: Any) -> None:
        make = {(False, False): channel.unary_unary, (False, True): channel.unary_stream}
        make |= {(True, False): channel.stream_unary, (True, True): channel.stream_stream}
        for name, shape in SHAPES.items():
            setattr(self, name, make[shape](f"/{SERVICE}/{name}", request_serializer=write, response_deserializer=read))
        self.missing = channel.unary_unary(f"/{SERVICE}/missing", request_serializer=write, response_deserializer=read)

    unary: Any
    many: Any
    total: Any
    chat: Any


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, Any]]:
    with start_program(PROGRAM, "threads", f"shm://grpcio-{os.getpid()}") as program:
        assert program.stdout is not None
        yield json.loads(program.stdout.readline())


@contextmanager
def channel_of(pair: str, addresses: dict[str, Any]) -> Iterator[Any]:
    client, _, server = pair.partition("-")
    if server == "shm":
        channel: Any = nearcall.grpcio.channel(addresses["shm"])
    else:
        make = grpc if client == "grpcio" else nearcall.grpcio
        channel = make.insecure_channel(f"127.0.0.1:{addresses[server]}")
    with channel:
        yield channel


@pytest.fixture(scope="module", params=PAIRS)
def channel(request: pytest.FixtureRequest, addresses: dict[str, Any]) -> Iterator[Any]:
    with channel_of(request.param, addresses) as made:
        yield made


@pytest.fixture(scope="module")
def stub(channel: Any) -> Stub:
    return Stub(channel)


def failure(call: Callable[[], object]) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def status(call: Callable[[], object]) -> tuple[str, str]:
    error = failure(call)
    return error.code().name, error.details()


def log_of(stub: Stub, wanted: str) -> str:
    """What the servicer has seen, once it has seen that."""
    seen = ""
    for _ in range(2000):
        seen = ",".join(filter(None, (seen, stub.unary("log"))))
        if wanted in seen:
            break
        threading.Event().wait(0.01)
    return seen


def test_every_shape_of_method_is_served(stub: Stub) -> None:
    assert stub.unary("a") == "a"
    assert list(stub.many("of 3")) == ["0", "1", "2"]
    assert stub.total(iter("abc")) == "a+b+c"
    assert stub.total(iter(())) == ""
    assert list(stub.chat(iter(("ab", "cd")))) == ["ba", "dc"]
    assert stub.total(iter(("a", "stop", *"b" * 100))) == "a+stop"


def test_a_servicer_says_how_its_call_ends(stub: Stub) -> None:
    assert status(lambda: stub.unary("abort the name ü")) == ("ALREADY_EXISTS", "the name ü")
    assert status(lambda: stub.unary("swallow it")) == ("ABORTED", "it")
    assert status(lambda: stub.unary("code far")) == ("OUT_OF_RANGE", "far")
    assert status(lambda: stub.unary("coded bits")) == ("DATA_LOSS", "bits")
    assert status(lambda: stub.unary("raise"))[0] == "UNKNOWN"
    assert status(lambda: stub.missing("a"))[0] == "UNIMPLEMENTED"  # type: ignore[attr-defined]
    assert status(lambda: list(stub.chat(iter(("abort",))))) == ("FAILED_PRECONDITION", "no chat")


@pytest.mark.parametrize(("word", "code"), [("abort", "ABORTED"), ("code", "DATA_LOSS"), ("raise", "UNKNOWN")])
def test_a_stream_ends_with_a_status_after_its_items(stub: Stub, word: str, code: str) -> None:
    call = stub.many(f"{word} 2")
    assert [next(call), next(call)] == ["0", "1"]
    error = failure(lambda: next(call))
    assert error.code().name == code, error.details()
    assert call.code().name == code


def test_details_of_a_status_arrive(stub: Stub) -> None:
    error = failure(lambda: stub.unary("status"))
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "lost")
    trailing = dict(error.trailing_metadata())
    assert trailing["grpc-status-details-bin"] == DETAILS
    assert trailing["x-more"] == "1"


def test_metadata_goes_both_ways(stub: Stub) -> None:
    sent = (("x-text", "a"), ("x-text", "b"), ("x-raw-bin", b"\xff\0"))
    response, call = stub.unary.with_call("metadata", metadata=sent)
    assert response == repr(sorted(sent, key=repr)) or response == repr(sorted(sent))
    assert call.code() is grpc.StatusCode.OK
    assert dict(call.initial_metadata()) == {"x-initial": "i"}
    assert dict(call.trailing_metadata()) == {"x-trailing": "t", "x-bytes-bin": b"\0\1"}


def test_a_deadline_travels_and_ends_the_call(stub: Stub) -> None:
    assert stub.unary("left") == "none"
    assert 90 < int(stub.unary("left", timeout=100)) < 102  # some round up
    seen = ""
    for seconds in (0.1, 1, 5):  # on a busy machine it may pass before the servicer has begun
        assert status(lambda: stub.unary("hold", timeout=seconds))[0] == "DEADLINE_EXCEEDED"  # noqa: B023
        seen += stub.unary("log")
        if "active True" in seen:
            break
    if "active False" not in seen:
        # The callback wakes the servicer, who finds that nobody waits.
        seen += log_of(stub, "active False")
    assert "active False" in seen


def test_a_call_that_is_given_up_runs_its_callbacks(stub: Stub) -> None:
    future = stub.unary.future("hold")
    seen = log_of(stub, "active True")
    assert future.cancel()
    assert future.cancelled()
    with pytest.raises(grpc.FutureCancelledError):
        future.result()
    assert "active False" in seen + log_of(stub, "active False")


def test_callbacks_run_when_a_call_has_ended_well(stub: Stub) -> None:
    assert stub.unary("after one") == "after one"
    assert log_of(stub, "callback one") == "callback one"


def test_a_stream_that_is_given_up_ends_the_servicer(stub: Stub) -> None:
    call = stub.many("endless 1")
    assert [next(call), next(call)] == ["0", "more"]
    assert call.is_active()
    call.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    assert call.code() is grpc.StatusCode.CANCELLED
    assert "ended" in log_of(stub, "ended")


def test_futures(stub: Stub) -> None:
    futures = [stub.unary.future(str(number)) for number in range(20)]
    assert [future.result() for future in futures] == [str(number) for number in range(20)]
    future = stub.total.future(iter("abc"))
    told = threading.Event()
    future.add_done_callback(lambda _: told.set())
    assert future.result(timeout=PATIENCE) == "a+b+c"
    assert told.wait(PATIENCE)
    assert future.done()
    assert future.code() is grpc.StatusCode.OK
    wrong = stub.unary.future("abort so")
    assert wrong.exception(timeout=PATIENCE).code() is grpc.StatusCode.ALREADY_EXISTS
    held = stub.unary.future("hold")
    with pytest.raises(grpc.FutureTimeoutError):
        held.result(timeout=0.05)
    held.cancel()
    log_of(stub, "active False")


def test_messages_that_cannot_be_read_or_written_are_internal_errors(stub: Stub) -> None:
    assert status(lambda: stub.unary("unread"))[0] == "INTERNAL"
    with pytest.raises(grpc.RpcError):
        stub.unary("unfit")


def test_an_iterator_of_requests_that_fails_ends_the_call(stub: Stub) -> None:
    def requests() -> Iterator[str]:
        yield "a"
        raise ValueError("mine")

    assert status(lambda: stub.total(requests()))[0] == "UNKNOWN"


def test_interceptors_of_clients_are_run(channel: Any) -> None:
    class Interceptor(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
            call = continuation(client_call_details, f"{request}!")
            seen.append(call.code().name)
            return call

        def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
            return (f"<{item}>" for item in continuation(client_call_details, request))

    seen: list[str] = []
    stub = Stub(grpc.intercept_channel(channel, Interceptor()))
    assert stub.unary("a") == "a!"
    assert status(lambda: stub.unary("abort it")) == ("ALREADY_EXISTS", "it!")
    assert list(stub.many("of 2")) == ["<0>", "<1>"]
    assert seen == ["OK", "ALREADY_EXISTS"]


def test_a_channel_is_ready_once_it_has_connected(channel: Any) -> None:
    grpc.channel_ready_future(channel).result(timeout=PATIENCE)


# What is ours alone.


@contextmanager
def served(*, names: tuple[str, ...] = (), **options: Any) -> Iterator[tuple[Any, int]]:
    class Servicer:
        def unary(self, request: str, context: Any) -> str:
            return f"{request} {threading.active_count() > 0}"

        def many(self, request: str, context: Any) -> Iterator[str]:
            yield request

        def total(self, requests: Iterator[str], context: Any) -> str:
            return "".join(requests)

        def chat(self, requests: Iterator[str], context: Any) -> Iterator[str]:
            return requests

    server = nearcall.grpcio.server(ThreadPoolExecutor(2), **options)
    add(Servicer(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield server, port
    finally:
        assert server.stop(0).wait(PATIENCE)


class Refusing(grpc.ServerInterceptor):
    """As grpcio's users write them: one handler refuses calls of all shapes."""

    def __init__(self) -> None:
        def refuse(request: Any, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")

        self._refuse = grpc.unary_unary_rpc_method_handler(refuse)
        self.seen: list[str] = []

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        self.seen.append(handler_call_details.method)
        if ("x-token", "right") in handler_call_details.invocation_metadata:
            return continuation(handler_call_details)
        return self._refuse


def test_interceptors_of_servers_are_run() -> None:
    outer, inner = Refusing(), Refusing()
    token = (("x-token", "right"),)
    with served(interceptors=[outer, inner]) as (_, port), grpc.insecure_channel(f"localhost:{port}") as channel:
        stub = Stub(channel)
        assert stub.unary("a", metadata=token) == "a True"
        assert list(stub.chat(iter("ab"), metadata=token)) == ["a", "b"]
        assert outer.seen == inner.seen == [f"/{SERVICE}/unary", f"/{SERVICE}/chat"]
        for call in (
            lambda: stub.unary("a"),
            lambda: list(stub.many("a")),
            lambda: stub.total(iter("ab")),
            lambda: list(stub.chat(iter("ab"))),
        ):
            assert status(call) == ("UNAUTHENTICATED", "no token")
        assert len(inner.seen) == 2


def test_services_of_nearcall_are_served_beside_servicers() -> None:
    @nearcall.service
    class Adder:
        def add(self, a: int, b: int) -> int:
            return a + b

    with served(services=[Adder()]) as (server, _), nearcall.connect(server.urls[0], Adder) as adder:
        assert adder.add(1, 2) == 3


def test_a_servicer_is_described_to_those_who_ask(runtime_dir: Any) -> None:
    server = nearcall.grpcio.server()
    server.add_registered_method_handlers(
        SERVICE, {"unary": grpc.unary_unary_rpc_method_handler(lambda request, _: request[::-1])}
    )
    url = server.add_url(f"unix://{runtime_dir}/described.unix")
    server.start()
    with nearcall.connect(url) as client:
        assert client.unary(b"abc") == b"cba"
    server.stop(None).wait(PATIENCE)


def test_servicers_of_grpcios_own_packages_are_served() -> None:
    servicer = health.HealthServicer()
    servicer.set("mine", health_pb2.HealthCheckResponse.NOT_SERVING)
    server = nearcall.grpcio.server(ThreadPoolExecutor(4))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    reflection.enable_server_reflection((SERVICE, reflection.SERVICE_NAME), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest(service="mine")).status == 2
        watched = stub.Watch(health_pb2.HealthCheckRequest(service="mine"))
        assert next(watched).status == 2
        servicer.set("mine", health_pb2.HealthCheckResponse.SERVING)
        assert next(watched).status == 1
        watched.cancel()
        names = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert SERVICE in names
    assert server.stop(1).wait(PATIENCE)


def test_reflection_knows_the_files_of_generated_modules() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="test/generated.proto", package="test.generated", syntax="proto3")
    file.dependency.append(empty_pb2.DESCRIPTOR.name)
    empty = ".google.protobuf.Empty"
    file.service.add(name="Idle").method.add(name="Wait", input_type=empty, output_type=empty)
    descriptor_pool.Default().Add(file)
    server = nearcall.grpcio.server()
    wait = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    server.add_registered_method_handlers("test.generated.Idle", {"Wait": wait})
    port = server.add_insecure_port("localhost:0")
    server.start()
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        found = ProtoReflectionDescriptorDatabase(channel)
        assert "test.generated.Idle" in found.get_services()
        assert found.FindFileContainingSymbol("test.generated.Idle") == file
        assert found.FindFileByName("google/protobuf/empty.proto").message_type[0].name == "Empty"
    server.stop(None).wait(PATIENCE)


def test_programs_that_speak_http_send_encoded_messages() -> None:
    server = nearcall.grpcio.server()
    echo = grpc.unary_unary_rpc_method_handler(lambda request, _: request[::-1])
    server.add_registered_method_handlers(SERVICE, {"unary": echo})
    url = server.add_url("http://127.0.0.1:0")
    server.start()

    def post(kind: str, body: bytes) -> bytes:
        request = urllib.request.Request(f"{url}/{SERVICE}/unary", body, {"content-type": kind})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return bytes(answer.read())

    assert post("application/proto", b"abc") == b"cba"
    with pytest.raises(urllib.error.HTTPError) as caught:
        post("application/json", b"{}")
    assert 400 <= caught.value.code < 600
    caught.value.close()
    server.stop(None).wait(PATIENCE)


def test_addresses_as_grpcio_writes_them(runtime_dir: Any) -> None:
    with served() as (server, _):
        assert server.urls[0].startswith("grpc://localhost:")
    server = nearcall.grpcio.server()
    add_nothing = {"unary": grpc.unary_unary_rpc_method_handler(lambda request, _: request)}
    server.add_registered_method_handlers(SERVICE, add_nothing)
    assert server.add_insecure_port(f"unix:{runtime_dir}/grpcio.sock") == 1
    assert server.add_insecure_port("[::]:0") > 1
    server.start()
    for target in (f"unix:{runtime_dir}/grpcio.sock", f"dns:///localhost:{server.urls[1].rpartition(':')[2]}"):
        with grpc.insecure_channel(target) as theirs, nearcall.grpcio.insecure_channel(target) as ours:
            assert Stub(theirs).unary("a") == Stub(ours).unary("a") == "a"
    server.stop(None).wait(PATIENCE)
    assert server.wait_for_termination(PATIENCE) is False


def test_a_channel_connects_with_its_first_call_and_waits_where_asked() -> None:
    port = own_port()
    with nearcall.grpcio.insecure_channel(f"localhost:{port}") as channel:
        stub = Stub(channel)
        assert status(lambda: stub.unary("a"))[0] == "UNAVAILABLE"
        assert status(lambda: list(stub.many("of 1")))[0] == "UNAVAILABLE"
        late = nearcall.grpcio.server()
        add_echo = {"unary": grpc.unary_unary_rpc_method_handler(lambda request, _: request)}
        late.add_registered_method_handlers(SERVICE, add_echo)

        def start() -> None:
            late.add_insecure_port(f"localhost:{port}")
            late.start()

        timer = threading.Timer(0.2, start)
        timer.start()
        assert stub.unary("b", wait_for_ready=True, timeout=PATIENCE) == "b"
        timer.join()
        late.stop(None).wait(PATIENCE)
    assert status(lambda: stub.unary("c"))[0] in ("CANCELLED", "UNAVAILABLE")


def test_the_pool_says_how_many_servicers_run_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def unary(request: bytes, context: Any) -> bytes:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.02)
        with lock:
            running -= 1
        return request

    server = nearcall.grpcio.server(ThreadPoolExecutor(max_workers=1))
    server.add_registered_method_handlers(SERVICE, {"unary": grpc.unary_unary_rpc_method_handler(unary)})
    port = server.add_insecure_port("localhost:0")
    server.start()
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        futures = [Stub(channel).unary.future("a") for _ in range(10)]
        assert [future.result(PATIENCE) for future in futures] == ["a"] * 10
    server.stop(None).wait(PATIENCE)
    assert most == 1


def test_what_has_no_counterpart_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Deciding(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> None:
            return None

    async def unary(request: bytes, context: Any) -> bytes:
        return request

    server = nearcall.grpcio.server()
    with pytest.raises(TypeError, match="Deciding decides call by call which methods it has"):
        server.add_generic_rpc_handlers((Deciding(),))
    with pytest.raises(TypeError, match=r"cannot be read by others: write nearcall\.grpcio\.ssl_server_credentials"):
        server.add_secure_port("localhost:0", grpc.ssl_server_credentials([(b"k", b"c")]))
    with pytest.raises(RuntimeError, match="cannot listen at"):
        server.add_insecure_port("192.0.2.1:1")
    with pytest.raises(ValueError, match="nearcall's own URLs are for add_url"):
        server.add_insecure_port("shm://greeter")
    with pytest.raises(ValueError, match=r"Deflate.*give grpc\.Compression\.Gzip"):
        nearcall.grpcio.server(compression=grpc.Compression.Deflate)
    with pytest.raises(ValueError, match="nowhere to serve"):
        nearcall.grpcio.server().start()
    server.add_registered_method_handlers(SERVICE, {"unary": grpc.unary_unary_rpc_method_handler(unary)})
    server.add_insecure_port("localhost:0")
    with pytest.raises(TypeError, match=r"test\.v1\.Texts\.unary is a coroutine function.*grpcio\.aio"):
        server.start()
    server.stop(None).wait(PATIENCE)
    with caplog.at_level(logging.WARNING, "nearcall"):
        nearcall.grpcio.server(options=[("grpc.so_reuseport", 0), ("grpc.unheard_of", 1)])
        assert "nothing that corresponds to grpc.unheard_of, and" in caplog.text
        caplog.clear()
        misspelt = [("grpc.max_recieve_message_length", 1), ("grpc.unheard_of", 1), ("grpc.max_metadata_size", 1)]
        for _ in range(2):
            nearcall.grpcio.insecure_channel("localhost:1", options=misspelt)
    assert [record.getMessage() for record in caplog.records] == [
        "nearcall.grpcio has nothing that corresponds to grpc.max_recieve_message_length (did you mean "
        "'grpc.max_receive_message_length'?), grpc.max_metadata_size, and leaves it out"
    ]
    with pytest.raises(ValueError, match="several addresses"):
        nearcall.grpcio.insecure_channel("ipv4:10.0.0.1:1,10.0.0.2:1")


@pytest.mark.parametrize(
    ("function", "given", "meant"),
    [
        (partial(nearcall.grpcio.channel, "inproc://nobody"), "tiemout", "timeout"),
        (partial(nearcall.grpcio.aio.channel, "inproc://nobody"), "tiemout", "timeout"),
        (nearcall.grpcio.server, "max_referenes", "max_references"),
        (nearcall.grpcio.aio.server, "max_memry", "max_memory"),
    ],
)
def test_a_misspelt_option_is_refused_at_once(function: Callable[..., Any], given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"^there is no option '{given}': did you mean '{meant}'\?$"):
        function(**{given: 1})


def test_a_message_that_is_too_long_is_refused() -> None:
    options = [("grpc.max_receive_message_length", 1000)]
    with served(options=options) as (_, port), nearcall.grpcio.insecure_channel(f"localhost:{port}") as channel:
        assert status(lambda: Stub(channel).unary("a" * 2000))[0] == "RESOURCE_EXHAUSTED"


def test_certificates(certificates: Any) -> None:
    tls = nearcall.TLS(cert=certificates / "server.pem", key=certificates / "server.key")
    server = nearcall.grpcio.server(tls=tls)
    echo = {"unary": grpc.unary_unary_rpc_method_handler(lambda request, _: request)}
    server.add_registered_method_handlers(SERVICE, echo)
    port = server.add_secure_port("localhost:0")
    server.start()
    authority = certificates / "ca.pem"
    credentials = grpc.ssl_channel_credentials(authority.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        assert Stub(channel).unary("a") == "a"
    with nearcall.grpcio.channel(f"grpcs://127.0.0.1:{port}", tls=nearcall.TLS(ca=authority)) as ours:
        assert Stub(ours).unary("a") == "a"
    server.stop(None).wait(PATIENCE)
