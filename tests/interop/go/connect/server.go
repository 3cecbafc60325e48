package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

func serve(port string, files []string) error {
	mux := http.NewServeMux()
	handle := func(name string, handler *connect.Handler) { mux.Handle(prefix+name, handler) }
	handle("EmptyCall", connect.NewUnaryHandler(prefix+"EmptyCall", emptyCall))
	handle("UnaryCall", connect.NewUnaryHandler(prefix+"UnaryCall", unaryCall))
	handle("StreamingOutputCall", connect.NewServerStreamHandler(prefix+"StreamingOutputCall", streamingOutputCall))
	handle("StreamingInputCall", connect.NewClientStreamHandler(prefix+"StreamingInputCall", streamingInputCall))
	handle("FullDuplexCall", connect.NewBidiStreamHandler(prefix+"FullDuplexCall", fullDuplexCall))
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Addr: "127.0.0.1:" + port, Handler: mux, Protocols: protocols}
	if len(files) == 2 {
		return server.ListenAndServeTLS(files[0], files[1])
	}
	return server.ListenAndServe()
}

func emptyCall(context.Context, *connect.Request[pb.Empty]) (*connect.Response[pb.Empty], error) {
	return connect.NewResponse(&pb.Empty{}), nil
}

func unaryCall(_ context.Context, request *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
	if err := failAsAsked(request.Msg.ResponseStatus); err != nil {
		return nil, err
	}
	reply := connect.NewResponse(&pb.SimpleResponse{Payload: zeros(request.Msg.ResponseSize)})
	echoMetadata(request.Header(), reply.Header(), reply.Trailer())
	return reply, nil
}

func streamingOutputCall(
	_ context.Context, request *connect.Request[pb.StreamingOutputCallRequest],
	replies *connect.ServerStream[pb.StreamingOutputCallResponse],
) error {
	return answer(request.Msg, replies.Send)
}

func streamingInputCall(
	_ context.Context, requests *connect.ClientStream[pb.StreamingInputCallRequest],
) (*connect.Response[pb.StreamingInputCallResponse], error) {
	size := 0
	for requests.Receive() {
		size += len(requests.Msg().GetPayload().GetBody())
	}
	return connect.NewResponse(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)}), requests.Err()
}

func fullDuplexCall(
	_ context.Context, stream *connect.BidiStream[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse],
) error {
	echoMetadata(stream.RequestHeader(), stream.ResponseHeader(), stream.ResponseTrailer())
	for {
		request, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = answer(request, stream.Send)
		}
		if err != nil {
			return err
		}
	}
}

func answer(request *pb.StreamingOutputCallRequest, send func(*pb.StreamingOutputCallResponse) error) error {
	if err := failAsAsked(request.ResponseStatus); err != nil {
		return err
	}
	for _, asked := range request.ResponseParameters {
		time.Sleep(time.Duration(asked.IntervalUs) * time.Microsecond)
		if err := send(&pb.StreamingOutputCallResponse{Payload: zeros(asked.Size)}); err != nil {
			return err
		}
	}
	return nil
}

func failAsAsked(status *pb.EchoStatus) error {
	if status.GetCode() == 0 {
		return nil
	}
	return connect.NewError(connect.Code(status.Code), errors.New(status.Message))
}

func echoMetadata(came, ahead, atEnd http.Header) {
	if value := came.Get(initial); value != "" {
		ahead.Set(initial, value)
	}
	if value := came.Get(trailing); value != "" {
		atEnd.Set(trailing, value)
	}
}

func zeros(size int32) *pb.Payload { return &pb.Payload{Body: make([]byte, size)} }
