// The client of a calculator in any language: client [host:port]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.test/calculator/pb"
)

func main() {
	target := "127.0.0.1:7002"
	if len(os.Args) > 1 {
		target = os.Args[1]
	}
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer connection.Close()
	calc := pb.NewCalculatorClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	sum, err := calc.Add(ctx, &pb.CalculatorAddRequest{A: 1, B: proto.Int64(2)})
	check(err)
	fmt.Println("1 + 2 =", sum.Value)
	sum, err = calc.Add(ctx, &pb.CalculatorAddRequest{A: 2}) // without b, which has a default
	check(err)
	fmt.Println("2 + 5 =", sum.Value)

	counted, err := calc.Countdown(ctx, &pb.CalculatorCountdownRequest{N: 3})
	check(err)
	fmt.Print("counting:")
	for {
		number, err := counted.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
		fmt.Print(" ", number.Value)
	}
	fmt.Println()

	adding, err := calc.Total(ctx)
	check(err)
	for x := range int64(100) {
		check(adding.Send(&pb.CalculatorTotalRequest{Xs: x}))
	}
	total, err := adding.CloseAndRecv()
	check(err)
	fmt.Println("total:", total.Value)

	totals, err := calc.Totals(ctx)
	check(err)
	fmt.Print("totals:")
	for x := int64(1); x <= 3; x++ {
		check(totals.Send(&pb.CalculatorTotalsRequest{Xs: x}))
		sofar, err := totals.Recv() // one for each, at once
		check(err)
		fmt.Print(" ", sofar.Value)
	}
	fmt.Println()
	check(totals.CloseSend())

	var trailer metadata.MD
	caller := metadata.AppendToOutgoingContext(ctx, "caller", "Go")
	hello, err := calc.Hello(caller, &pb.CalculatorHelloRequest{}, grpc.Trailer(&trailer))
	check(err)
	fmt.Println(hello.Value)
	fmt.Println("served by", trailer.Get("served-by")[0])

	_, err = calc.Divide(ctx, &pb.CalculatorDivideRequest{A: 1, B: 0})
	fmt.Println(status.Code(err), status.Convert(err).Message())

	soon, cancelSoon := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancelSoon()
	slow, err := calc.Countdown(soon, &pb.CalculatorCountdownRequest{N: 1000, Pause: proto.Float64(1)})
	check(err)
	_, err = slow.Recv()
	fmt.Println(status.Code(err))

	enough, giveUp := context.WithCancel(ctx)
	many, err := calc.Countdown(enough, &pb.CalculatorCountdownRequest{N: 1_000_000})
	check(err)
	first, err := many.Recv()
	check(err)
	second, err := many.Recv()
	check(err)
	fmt.Println(first.Value, second.Value, "and no more")
	giveUp()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
