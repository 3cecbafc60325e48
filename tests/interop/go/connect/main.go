// connect-go's server and client of the test service, over gRPC: a program that knows nothing of nearcall.
//
//	connect server PORT [CERTIFICATE KEY]   serves until its input ends
//	connect client CASE PORT [AUTHORITY]    exit status 0 if the case holds
package main

import (
	"io"
	"log"
	"os"
)

const (
	initial  = "x-grpc-test-echo-initial"
	trailing = "x-grpc-test-echo-trailing-bin"
	prefix   = "/grpc.testing.TestService/"
)

func main() {
	log.SetFlags(0)
	files := os.Args[3:]
	switch os.Args[1] {
	case "server":
		go func() {
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		log.Fatal(serve(os.Args[2], files))
	case "client":
		if err := try(os.Args[2], files[0], files[1:]); err != nil {
			log.Fatal(err)
		}
	}
}
