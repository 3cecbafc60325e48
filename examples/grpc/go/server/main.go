// The calculator in Go: server HOST:PORT
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.test/calculator/pb"
)

type calculator struct {
	pb.UnimplementedCalculatorServer
}

func (calculator) Add(_ context.Context, in *pb.CalculatorAddRequest) (*pb.CalculatorAddResponse, error) {
	b := int64(5) // the default, which is not in the .proto
	if in.B != nil {
		b = *in.B
	}
	return &pb.CalculatorAddResponse{Value: in.A + b}, nil
}

func (calculator) Divide(_ context.Context, in *pb.CalculatorDivideRequest) (*pb.CalculatorDivideResponse, error) {
	if in.B == 0 {
		return nil, status.Error(codes.InvalidArgument, "b is zero")
	}
	return &pb.CalculatorDivideResponse{Value: in.A / in.B}, nil
}

func (calculator) Countdown(in *pb.CalculatorCountdownRequest, out grpc.ServerStreamingServer[pb.CalculatorCountdownResponse]) error {
	for number := in.N; number > 0; number-- {
		select {
		case <-time.After(time.Duration(in.GetPause() * float64(time.Second))):
		case <-out.Context().Done():
			return out.Context().Err()
		}
		if err := out.Send(&pb.CalculatorCountdownResponse{Value: number}); err != nil {
			return err
		}
	}
	return nil
}

func (calculator) Total(in grpc.ClientStreamingServer[pb.CalculatorTotalRequest, pb.CalculatorTotalResponse]) error {
	total := int64(0)
	for {
		item, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return in.SendAndClose(&pb.CalculatorTotalResponse{Value: total})
		}
		if err != nil {
			return err
		}
		total += item.Xs
	}
}

func (calculator) Totals(both grpc.BidiStreamingServer[pb.CalculatorTotalsRequest, pb.CalculatorTotalsResponse]) error {
	total := int64(0)
	for {
		item, err := both.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		total += item.Xs
		if err := both.Send(&pb.CalculatorTotalsResponse{Value: total}); err != nil {
			return err
		}
	}
}

func (calculator) Hello(ctx context.Context, _ *pb.CalculatorHelloRequest) (*pb.CalculatorHelloResponse, error) {
	caller := "stranger"
	if named := metadata.ValueFromIncomingContext(ctx, "caller"); len(named) > 0 {
		caller = named[0]
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs("served-by", "Go")); err != nil {
		return nil, err
	}
	return &pb.CalculatorHelloResponse{Value: "hello, " + caller}, nil
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: server HOST:PORT")
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterCalculatorServer(server, calculator{})
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-stop
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
