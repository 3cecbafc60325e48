// connect-go, as a client and as a server of the test service: a program that knows nothing of nearcall.
//
//	web client URL DESCRIPTORS connect|grpc|grpc-web 1.1|2 proto|json   prints what came as JSON, a line for each case
//	web server DESCRIPTORS                                              prints its ports of HTTP/1.1 and HTTP/2 as JSON
//
// DESCRIPTORS is a file that protoc has made of `nearcall proto`. A server ends with its standard input.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type message = dynamicpb.Message

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A service that is known by its descriptors only.
type service struct{ protoreflect.ServiceDescriptor }

func load(file string) service {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(must(os.ReadFile(file)), &set); err != nil {
		panic(err)
	}
	found := must(must(protodesc.NewFiles(&set)).FindDescriptorByName("test.v1.Web"))
	return service{found.(protoreflect.ServiceDescriptor)}
}

func (s service) method(name string) protoreflect.MethodDescriptor {
	return s.Methods().ByName(protoreflect.Name(name))
}

func (s service) path(name string) string { return fmt.Sprintf("/%s/%s", s.FullName(), name) }

func made(of protoreflect.MessageDescriptor, pairs ...any) *message {
	out := dynamicpb.NewMessage(of)
	for at := 0; at < len(pairs); at += 2 {
		out.Set(of.Fields().ByName(protoreflect.Name(pairs[at].(string))), protoreflect.ValueOf(pairs[at+1]))
	}
	return out
}

func field(of *message, name string) any {
	return of.Get(of.Descriptor().Fields().ByName(protoreflect.Name(name))).Interface()
}

func initialize(of protoreflect.MessageDescriptor) func(connect.Spec, any) error {
	return func(_ connect.Spec, empty any) error {
		if target, ok := empty.(*message); ok {
			*target = *dynamicpb.NewMessage(of)
		}
		return nil
	}
}

// The client.

func tell(name string, value any) { fmt.Println(string(must(json.Marshal([]any{name, value})))) }

func failure(err error) []string {
	var known *connect.Error
	if !errors.As(err, &known) {
		return []string{fmt.Sprint(err)}
	}
	words := strings.Split(known.Code().String(), "_")
	for at, word := range words {
		words[at] = strings.ToUpper(word[:1]) + word[1:]
	}
	return []string{strings.Join(words, ""), known.Message()}
}

func call(url, descriptors, protocol, version, codec string) {
	web := load(descriptors)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(version != "2")
	protocols.SetUnencryptedHTTP2(version == "2")
	over := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	options := map[string][]connect.ClientOption{
		"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
	}[protocol]
	if codec == "json" {
		options = append(options, connect.WithProtoJSON())
	}
	client := func(name string, more ...connect.ClientOption) *connect.Client[message, message] {
		info := web.method(name)
		all := append([]connect.ClientOption{
			connect.WithSchema(info), connect.WithResponseInitializer(initialize(info.Output())),
		}, options...)
		return connect.NewClient[message, message](over, url+web.path(name), append(all, more...)...)
	}
	request := func(name string, pairs ...any) *connect.Request[message] {
		return connect.NewRequest(made(web.method(name).Input(), pairs...))
	}
	background := context.Background()
	value := func(reply *connect.Response[message], err error) any { return field(must(reply, err).Msg, "value") }

	tell("unary", value(client("Add").CallUnary(background, request("Add", "a", int64(1), "b", int64(2)))))
	tell("zeros", value(client("Add").CallUnary(background, request("Add"))))
	tell("text", value(client("Greet").CallUnary(background, request("Greet", "name", "Käse 🦀"))))
	_, err := client("Fail").CallUnary(background, request("Fail", "why", `not "here"`))
	tell("failure", failure(err))
	with := request("Metadata")
	with.Header().Set("x-word", "hello")
	with.Header().Set("x-bytes-bin", "AP8")
	seen := must(client("Metadata").CallUnary(background, with))
	tail := seen.Trailer()
	tell("metadata", []string{seen.Header().Get("x-word-back"), tail.Get("x-word-tail"), tail.Get("x-bytes-tail-bin")})
	collected := func(name string, pairs ...any) ([]any, error) {
		stream := must(client(name).CallServerStream(background, request(name, pairs...)))
		defer stream.Close()
		values := []any{}
		for stream.Receive() {
			values = append(values, field(stream.Msg(), "value"))
		}
		return values, stream.Err()
	}
	values, err := collected("Countdown", "n", int64(3))
	tell("countdown", must(values, err))
	_, err = collected("Breaks")
	tell("broken stream", failure(err))
	soon, stop := context.WithTimeout(background, 100*time.Millisecond)
	_, err = client("Hold").CallUnary(soon, request("Hold"))
	tell("deadline", failure(err)[0])
	stop()
	given, giveUp := context.WithCancel(background)
	time.AfterFunc(100*time.Millisecond, giveUp)
	_, err = client("Hold").CallUnary(given, request("Hold"))
	tell("cancel", failure(err)[0])
	total := client("Total").CallClientStream(background)
	for x := int64(1); x <= 100; x++ {
		if err := total.Send(made(web.method("Total").Input(), "xs", x)); err != nil {
			panic(err)
		}
	}
	tell("total", value(total.CloseAndReceive()))
	if version == "2" {
		both := client("Both").CallBidiStream(background)
		values := []any{}
		for x := int64(1); x <= 100; x++ {
			if err := both.Send(made(web.method("Both").Input(), "xs", x)); err != nil {
				panic(err)
			}
			values = append(values, field(must(both.Receive()), "value"))
		}
		if err := both.CloseRequest(); err != nil {
			panic(err)
		}
		_, err := both.Receive()
		if !errors.Is(err, io.EOF) {
			panic(err)
		}
		tell("both", values)
	}
	if protocol == "connect" {
		get := []connect.ClientOption{connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}
		tell("get", value(client("Add", get...).CallUnary(background, request("Add", "a", int64(3), "b", int64(4)))))
		packed := connect.WithSendGzip()
		long := value(client("Greet", packed).CallUnary(background, request("Greet", "name", strings.Repeat("x", 10000))))
		tell("compressed", len(long.(string)))
		both := client("Add", append(get, packed)...)
		tell("compressed get", value(both.CallUnary(background, request("Add", "a", int64(5), "b", int64(6)))))
	}
}

// The server.

func serve(descriptors string) {
	web := load(descriptors)
	var givenUp atomic.Int64
	mux := http.NewServeMux()
	options := func(name string) []connect.HandlerOption {
		info := web.method(name)
		found := []connect.HandlerOption{
			connect.WithSchema(info), connect.WithRequestInitializer(initialize(info.Input())), connect.WithCompressMinBytes(1024),
		}
		level := info.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel()
		return append(found, connect.WithIdempotency(connect.IdempotencyLevel(level)))
	}
	answer := func(name string, pairs ...any) *message { return made(web.method(name).Output(), pairs...) }
	unary := func(name string, handle func(context.Context, *connect.Request[message]) (*connect.Response[message], error)) {
		mux.Handle(web.path(name), connect.NewUnaryHandler(web.path(name), handle, options(name)...))
	}
	simple := func(name string, result func(*connect.Request[message]) any) {
		unary(name, func(_ context.Context, request *connect.Request[message]) (*connect.Response[message], error) {
			return connect.NewResponse(answer(name, "value", result(request))), nil
		})
	}
	simple("Add", func(request *connect.Request[message]) any {
		return field(request.Msg, "a").(int64) + field(request.Msg, "b").(int64)
	})
	simple("Greet", func(request *connect.Request[message]) any { return field(request.Msg, "name") })
	simple("GivenUp", func(*connect.Request[message]) any { return givenUp.Load() })
	simple("Method", func(request *connect.Request[message]) any { return request.HTTPMethod() })
	unary("Fail", func(_ context.Context, request *connect.Request[message]) (*connect.Response[message], error) {
		failed := connect.NewError(connect.CodeFailedPrecondition, errors.New(field(request.Msg, "why").(string)))
		failed.AddDetail(must(connect.NewErrorDetail(wrapperspb.String("more"))))
		failed.Meta().Set("x-tail", "of the error")
		return nil, failed
	})
	unary("Metadata", func(_ context.Context, request *connect.Request[message]) (*connect.Response[message], error) {
		reply := connect.NewResponse(answer("Metadata"))
		reply.Header().Set("x-word-back", request.Header().Get("x-word"))
		reply.Trailer().Set("x-word-tail", request.Header().Get("x-word"))
		reply.Trailer().Set("x-bytes-tail-bin", request.Header().Get("x-bytes-bin"))
		return reply, nil
	})
	unary("Hold", func(ctx context.Context, _ *connect.Request[message]) (*connect.Response[message], error) {
		<-ctx.Done()
		givenUp.Add(1)
		return nil, ctx.Err()
	})
	stream := func(name string, send func(*connect.Request[message], func(int64) error) error) {
		handle := func(_ context.Context, request *connect.Request[message], to *connect.ServerStream[message]) error {
			return send(request, func(value int64) error { return to.Send(answer(name, "value", value)) })
		}
		mux.Handle(web.path(name), connect.NewServerStreamHandler(web.path(name), handle, options(name)...))
	}
	stream("Countdown", func(request *connect.Request[message], send func(int64) error) error {
		for n := field(request.Msg, "n").(int64); n > 0; n-- {
			if err := send(n); err != nil {
				return err
			}
		}
		return nil
	})
	stream("Breaks", func(_ *connect.Request[message], send func(int64) error) error {
		if err := send(1); err != nil {
			return err
		}
		return connect.NewError(connect.CodeAborted, errors.New("enough"))
	})
	total := func(_ context.Context, from *connect.ClientStream[message]) (*connect.Response[message], error) {
		var sum int64
		for from.Receive() {
			sum += field(from.Msg(), "xs").(int64)
		}
		return connect.NewResponse(answer("Total", "value", sum)), from.Err()
	}
	mux.Handle(web.path("Total"), connect.NewClientStreamHandler(web.path("Total"), total, options("Total")...))
	both := func(_ context.Context, stream *connect.BidiStream[message, message]) error {
		for {
			request, err := stream.Receive()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = stream.Send(answer("Both", "value", -field(request, "xs").(int64)))
			}
			if err != nil {
				return err
			}
		}
	}
	mux.Handle(web.path("Both"), connect.NewBidiStreamHandler(web.path("Both"), both, options("Both")...))

	ports := []int{}
	for _, version := range []int{1, 2} {
		listener := must(net.Listen("tcp", "127.0.0.1:0"))
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
		protocols := new(http.Protocols)
		protocols.SetHTTP1(version == 1)
		protocols.SetUnencryptedHTTP2(version == 2)
		go (&http.Server{Handler: mux, Protocols: protocols}).Serve(listener)
	}
	fmt.Println(string(must(json.Marshal(ports))))
	io.Copy(io.Discard, os.Stdin)
}

func main() {
	switch os.Args[1] {
	case "client":
		call(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case "server":
		serve(os.Args[2])
	}
}
