"""A client of grpcio's, which knows nothing of nearcall: only what protoc made of calculator.proto. See README.md."""

import grpc
from calculator_pb2 import (
    CalculatorAddRequest,
    CalculatorCountdownRequest,
    CalculatorDivideRequest,
    CalculatorTotalRequest,
)
from calculator_pb2_grpc import CalculatorStub

with grpc.insecure_channel("127.0.0.1:7002") as channel:
    calc = CalculatorStub(channel)
    print("1 + 2 =", calc.Add(CalculatorAddRequest(a=1, b=2), timeout=5).value)
    print("2 + 5 =", calc.Add(CalculatorAddRequest(a=2)).value)
    print("counting:", *(message.value for message in calc.Countdown(CalculatorCountdownRequest(n=3))))
    print("total:", calc.Total(CalculatorTotalRequest(xs=x) for x in range(100)).value)
    try:
        calc.Divide(CalculatorDivideRequest(a=1, b=0))
    except grpc.RpcError as error:
        print(error.code().name, error.details())
