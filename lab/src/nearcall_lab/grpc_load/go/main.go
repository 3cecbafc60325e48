// The lab's typed call, served by grpc-go: main PORT
package main

import (
	"context"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"

	"nearcall.test/lab/pb"
)

type lab struct {
	pb.UnimplementedLabServer
}

func (lab) Quote(_ context.Context, order *pb.Order) (*pb.Fill, error) {
	return &pb.Fill{
		Symbol:   order.Symbol,
		Cost:     float64(order.Quantity) * order.Price,
		Lots:     order.Quantity / 100,
		Accepted: !order.Urgent,
	}, nil
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterLabServer(server, lab{})
	log.Fatal(server.Serve(listener))
}
