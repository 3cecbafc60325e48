package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"net"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"nearcall.test/lab/pb"
)

type lab struct {
	pb.UnimplementedLabServer
	served atomic.Int64
	secret atomic.Int64
}

func (l *lab) Quote(_ context.Context, order *pb.Order) (*pb.Fill, error) {
	l.served.Add(1)
	return &pb.Fill{
		Symbol:   order.Symbol,
		Cost:     float64(order.Quantity) * order.Price,
		Lots:     order.Quantity/100 + l.secret.Load(),
		Accepted: !order.Urgent,
	}, nil
}

func (l *lab) Wait(_ context.Context, pause *pb.Pause) (*pb.Named, error) {
	l.served.Add(1)
	time.Sleep(time.Duration(pause.Seconds * 1e9))
	id := int64(math.Round(pause.Seconds*1e6)) + l.secret.Load()
	return &pb.Named{Id: int32(id), Name: fmt.Sprintf("waited %g s", pause.Seconds)}, nil
}

func serve(channel *Channel) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	service := &lab{}
	server := grpc.NewServer()
	pb.RegisterLabServer(server, service)
	go func() { log.Fatal(server.Serve(listener)) }()
	channel.say(answer{"ready": listener.Addr().String()}, nil)
	for {
		var request struct {
			Do    string
			Value int64
		}
		if !channel.next(&request) || request.Do == "stop" {
			os.Exit(0)
		}
		switch request.Do {
		case "secret":
			service.secret.Store(request.Value)
			channel.say(answer{"secret": true}, nil)
		case "served":
			channel.say(answer{"served": service.served.Load()}, nil)
		default:
			channel.say(answer{"unsupported": request.Do}, nil)
		}
	}
}
