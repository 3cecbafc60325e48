package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

var (
	sent    = []int32{27182, 8, 1828, 45904}
	asked   = []int32{31415, 9, 2653, 58979}
	sentSum = int32(27182 + 8 + 1828 + 45904)
)

const (
	largeRequest, largeReply = 271828, 314159
	patience                 = 30 * time.Second
)

type duplex = connect.BidiStreamForClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]

// A server under test.
type target struct {
	over *http.Client
	url  string
}

func client[I, O any](at target, path string, options ...connect.ClientOption) *connect.Client[I, O] {
	return connect.NewClient[I, O](at.over, at.url+path, append([]connect.ClientOption{connect.WithGRPC()}, options...)...)
}

func (at target) unary(options ...connect.ClientOption) *connect.Client[pb.SimpleRequest, pb.SimpleResponse] {
	return client[pb.SimpleRequest, pb.SimpleResponse](at, prefix+"UnaryCall", options...)
}

func (at target) input(
	ctx context.Context, options ...connect.ClientOption,
) *connect.ClientStreamForClient[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse] {
	name := prefix + "StreamingInputCall"
	return client[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse](at, name, options...).CallClientStream(ctx)
}

func (at target) duplex(ctx context.Context) *duplex {
	name := prefix + "FullDuplexCall"
	return client[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse](at, name).CallBidiStream(ctx)
}

func (at target) output(ctx context.Context, request *pb.StreamingOutputCallRequest) ([]int32, error) {
	name := prefix + "StreamingOutputCall"
	calls := client[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse](at, name)
	replies, err := calls.CallServerStream(ctx, connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	defer replies.Close()
	found := []int32{}
	for replies.Receive() {
		found = append(found, size(replies.Msg()))
	}
	return found, replies.Err()
}

func size(reply *pb.StreamingOutputCallResponse) int32 {
	return int32(len(reply.GetPayload().GetBody()))
}

func large() *pb.SimpleRequest {
	return &pb.SimpleRequest{ResponseSize: largeReply, Payload: zeros(largeRequest)}
}

func asking(payload int32, sizes ...int32) *pb.StreamingOutputCallRequest {
	request := &pb.StreamingOutputCallRequest{Payload: zeros(payload)}
	for _, size := range sizes {
		request.ResponseParameters = append(request.ResponseParameters, &pb.ResponseParameters{Size: size})
	}
	return request
}

// An error unless both are the same.
func same(found, wanted any) error {
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		return fmt.Errorf("%v instead of %v", found, wanted)
	}
	return nil
}

func isLarge(reply *connect.Response[pb.SimpleResponse], err error) error {
	if err != nil {
		return err
	}
	if !bytes.Equal(reply.Msg.GetPayload().GetBody(), make([]byte, largeReply)) {
		return errors.New("other bytes than those that were asked for")
	}
	return nil
}

func failsWith(err error, code connect.Code, message string) error {
	var known *connect.Error
	if !errors.As(err, &known) {
		return fmt.Errorf("%v instead of an error of %v", err, code)
	}
	return errors.Join(same(known.Code(), code), same(known.Message(), message))
}

// The first failure of steps that go one after the other.
func each(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

var cases = map[string]func(context.Context, target) error{
	"empty_unary": func(ctx context.Context, at target) error { return emptyUnary(ctx, at) },
	"large_unary": func(ctx context.Context, at target) error {
		return isLarge(at.unary().CallUnary(ctx, connect.NewRequest(large())))
	},
	"client_streaming": func(ctx context.Context, at target) error {
		call := at.input(ctx)
		for _, size := range sent {
			if err := call.Send(&pb.StreamingInputCallRequest{Payload: zeros(size)}); err != nil {
				return err
			}
		}
		reply, err := call.CloseAndReceive()
		if err != nil {
			return err
		}
		return same(reply.Msg.AggregatedPayloadSize, sentSum)
	},
	"server_streaming": func(ctx context.Context, at target) error {
		found, err := at.output(ctx, asking(0, asked...))
		return errors.Join(err, same(found, asked))
	},
	"ping_pong": func(ctx context.Context, at target) error {
		call := at.duplex(ctx)
		for number, size := range sent {
			if err := exchange(call, asking(size, asked[number]), asked[number]); err != nil {
				return err
			}
		}
		return ends(call)
	},
	"empty_stream":    func(ctx context.Context, at target) error { return ends(at.duplex(ctx)) },
	"custom_metadata": customMetadata,
	"status_code_and_message": func(ctx context.Context, at target) error {
		status := &pb.EchoStatus{Code: 2, Message: "test status message"}
		_, err := at.unary().CallUnary(ctx, connect.NewRequest(&pb.SimpleRequest{ResponseStatus: status}))
		if err := failsWith(err, connect.CodeUnknown, status.Message); err != nil {
			return err
		}
		call := at.duplex(ctx)
		if err := call.Send(&pb.StreamingOutputCallRequest{ResponseStatus: status}); err != nil {
			return err
		}
		_, err = call.Receive()
		return failsWith(err, connect.CodeUnknown, status.Message)
	},
	"special_status_message": func(ctx context.Context, at target) error {
		message := "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
		request := &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Code: 2, Message: message}}
		_, err := at.unary().CallUnary(ctx, connect.NewRequest(request))
		return failsWith(err, connect.CodeUnknown, message)
	},
	"unimplemented_method": func(ctx context.Context, at target) error {
		return unimplemented(ctx, at, prefix+"UnimplementedCall")
	},
	"unimplemented_service": func(ctx context.Context, at target) error {
		return unimplemented(ctx, at, "/grpc.testing.UnimplementedService/UnimplementedCall")
	},
	"cancel_after_begin": func(ctx context.Context, at target) error {
		given, giveUp := context.WithCancel(ctx)
		defer giveUp()
		call := at.input(given)
		if err := call.Send(nil); err != nil { // only headers
			return err
		}
		giveUp()
		_, err := call.CloseAndReceive()
		return errors.Join(same(connect.CodeOf(err), connect.CodeCanceled), emptyUnary(ctx, at))
	},
	"cancel_after_first_response": func(ctx context.Context, at target) error {
		given, giveUp := context.WithCancel(ctx)
		defer giveUp()
		call := at.duplex(given)
		if err := exchange(call, asking(sent[0], asked[0]), asked[0]); err != nil {
			return err
		}
		giveUp()
		_, err := call.Receive()
		return errors.Join(same(connect.CodeOf(err), connect.CodeCanceled), emptyUnary(ctx, at))
	},
	"timeout_on_sleeping_server": func(ctx context.Context, at target) error {
		soon, stop := context.WithTimeout(ctx, time.Millisecond)
		defer stop()
		call := at.duplex(soon)
		_ = call.Send(asking(sent[0])) // it may be over before that
		_, err := call.Receive()
		return same(connect.CodeOf(err), connect.CodeDeadlineExceeded)
	},
	"concurrent_large_unary": func(ctx context.Context, at target) error {
		calls := at.unary()
		failures := make(chan error)
		for range 1000 {
			go func() { failures <- isLarge(calls.CallUnary(ctx, connect.NewRequest(large()))) }()
		}
		var all error
		for range 1000 {
			all = errors.Join(all, <-failures)
		}
		return all
	},
	"client_compressed_unary": func(ctx context.Context, at target) error {
		call := func(expected bool, options ...connect.ClientOption) error {
			request := large()
			request.ExpectCompressed = &pb.BoolValue{Value: expected}
			return isLarge(at.unary(options...).CallUnary(ctx, connect.NewRequest(request)))
		}
		return each(
			func() error { return same(connect.CodeOf(call(true)), connect.CodeInvalidArgument) },
			func() error { return call(true, connect.WithSendGzip()) },
			func() error { return call(false) },
		)
	},
	// connect-go compresses what is long enough; here the second message is not.
	"client_compressed_streaming": func(ctx context.Context, at target) error {
		call := func(options ...connect.ClientOption) (int32, error) {
			call := at.input(ctx, options...)
			for _, compressed := range []bool{true, false} {
				request := &pb.StreamingInputCallRequest{ExpectCompressed: &pb.BoolValue{Value: compressed}}
				request.Payload = zeros(map[bool]int32{true: sent[0], false: sent[1]}[compressed])
				if err := call.Send(request); err != nil && !errors.Is(err, io.EOF) {
					return 0, err
				}
			}
			reply, err := call.CloseAndReceive()
			if err != nil {
				return 0, err
			}
			return reply.Msg.AggregatedPayloadSize, nil
		}
		if _, err := call(); connect.CodeOf(err) != connect.CodeInvalidArgument {
			return fmt.Errorf("%v instead of an error of %v", err, connect.CodeInvalidArgument)
		}
		found, err := call(connect.WithSendGzip(), connect.WithCompressMinBytes(1024))
		return errors.Join(err, same(found, sent[0]+sent[1]))
	},
	"server_compressed_unary": func(ctx context.Context, at target) error {
		for _, wanted := range []bool{true, false} {
			request := large()
			request.ResponseCompressed = &pb.BoolValue{Value: wanted}
			if err := isLarge(at.unary().CallUnary(ctx, connect.NewRequest(request))); err != nil {
				return err
			}
		}
		return nil
	},
	"server_compressed_streaming": func(ctx context.Context, at target) error {
		request := asking(0, asked[0], 92653)
		for number, parameters := range request.ResponseParameters {
			parameters.Compressed = &pb.BoolValue{Value: number == 0}
		}
		found, err := at.output(ctx, request)
		return errors.Join(err, same(found, []int32{asked[0], 92653}))
	},
}

func emptyUnary(ctx context.Context, at target) error {
	_, err := client[pb.Empty, pb.Empty](at, prefix+"EmptyCall").CallUnary(ctx, connect.NewRequest(&pb.Empty{}))
	return err
}

func unimplemented(ctx context.Context, at target, path string) error {
	_, err := client[pb.Empty, pb.Empty](at, path).CallUnary(ctx, connect.NewRequest(&pb.Empty{}))
	return same(connect.CodeOf(err), connect.CodeUnimplemented)
}

// Sends one message and waits for one.
func exchange(call *duplex, request *pb.StreamingOutputCallRequest, wanted int32) error {
	if err := call.Send(request); err != nil {
		return err
	}
	reply, err := call.Receive()
	if err != nil {
		return err
	}
	return same(size(reply), wanted)
}

// Says that no more comes, and expects the same.
func ends(call *duplex) error {
	if err := call.CloseRequest(); err != nil {
		return err
	}
	if _, err := call.Receive(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%v instead of the end", err)
	}
	return call.CloseResponse()
}

func customMetadata(ctx context.Context, at target) error {
	value := connect.EncodeBinaryHeader([]byte{0xab, 0xab, 0xab})
	set := func(header http.Header) {
		header.Set(initial, "test_initial_metadata_value")
		header.Set(trailing, value)
	}
	cameBack := func(ahead, atEnd http.Header) error {
		return errors.Join(same(ahead.Get(initial), "test_initial_metadata_value"), same(atEnd.Get(trailing), value))
	}
	request := connect.NewRequest(large())
	set(request.Header())
	reply, err := at.unary().CallUnary(ctx, request)
	if err := isLarge(reply, err); err != nil {
		return err
	}
	if err := cameBack(reply.Header(), reply.Trailer()); err != nil {
		return err
	}
	call := at.duplex(ctx)
	set(call.RequestHeader())
	return each(
		func() error { return exchange(call, asking(largeRequest, largeReply), largeReply) },
		func() error { return ends(call) },
		func() error { return cameBack(call.ResponseHeader(), call.ResponseTrailer()) },
	)
}

func try(name, port string, files []string) error {
	try, known := cases[name]
	if !known {
		return fmt.Errorf("there is no case %s", name)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(len(files) == 0)
	transport := &http.Transport{Protocols: protocols}
	at := target{&http.Client{Transport: transport}, "http://127.0.0.1:" + port}
	if len(files) == 1 {
		authority, err := os.ReadFile(files[0])
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(authority) {
			return errors.New("no certificate in " + files[0])
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
		at.url = "https://127.0.0.1:" + port
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	return try(ctx, at)
}
