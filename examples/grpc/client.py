"""A client of grpcio's, which knows nothing of nearcall: only what protoc made of calculator.proto. See README.md."""

import grpc
from calculator_pb2 import (
    CalculatorAddRequest,
    CalculatorCountdownRequest,
    CalculatorDivideRequest,
    CalculatorHelloRequest,
    CalculatorTotalRequest,
    CalculatorTotalsRequest,
)
from calculator_pb2_grpc import CalculatorStub

with grpc.insecure_channel("127.0.0.1:7002") as channel:
    calc = CalculatorStub(channel)
    print("1 + 2 =", calc.Add(CalculatorAddRequest(a=1, b=2), timeout=5).value)
    print("2 + 5 =", calc.Add(CalculatorAddRequest(a=2)).value)
    print("counting:", *(message.value for message in calc.Countdown(CalculatorCountdownRequest(n=3))))
    print("total:", calc.Total(CalculatorTotalRequest(xs=x) for x in range(100)).value)
    print("totals:", *(message.value for message in calc.Totals(CalculatorTotalsRequest(xs=x) for x in (1, 2, 3))))
    reply, call = calc.Hello.with_call(CalculatorHelloRequest(), metadata=[("caller", "grpcio")])
    print(reply.value)
    print("served by", dict(call.trailing_metadata())["served-by"])
    try:
        calc.Divide(CalculatorDivideRequest(a=1, b=0))
    except grpc.RpcError as error:
        print(error.code().name, error.details())
    try:
        list(calc.Countdown(CalculatorCountdownRequest(n=1000, pause=1), timeout=0.2))
    except grpc.RpcError as error:
        print(error.code().name)
    numbers = calc.Countdown(CalculatorCountdownRequest(n=1_000_000))
    print(next(numbers).value, next(numbers).value, "and no more")
    numbers.cancel()
