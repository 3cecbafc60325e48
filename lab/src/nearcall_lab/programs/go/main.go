// One side of the lab's gRPC service in Go: lab server|client CONFIG. Speaks the lab's line protocol.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Channel carries the lab's requests and this program's answers.
type Channel struct {
	requests *bufio.Reader
	answers  *os.File
}

// next decodes the lab's next request. False when the lab is gone.
func (c *Channel) next(request any) bool {
	line, err := c.requests.ReadBytes('\n')
	if err != nil {
		return false
	}
	if err := json.Unmarshal(line, request); err != nil {
		log.Fatal(err)
	}
	return true
}

type answer map[string]any

// say sends an answer and the blob that follows it.
func (c *Channel) say(message answer, blob []byte) {
	if len(blob) > 0 {
		message["blob"] = len(blob)
	}
	line, err := json.Marshal(message)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.answers.Write(append(append(line, '\n'), blob...)); err != nil {
		os.Exit(0) // the lab is gone
	}
}

// Go's own clock is CLOCK_MONOTONIC from an unknown beginning, and cheaper to read than by a system call.
var (
	begun   = time.Now()
	begunNs = monotonic()
)

func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		log.Fatal(err)
	}
	return now.Nano()
}

func now() int64 {
	return begunNs + int64(time.Since(begun))
}

func main() {
	var config struct {
		ReadFd  uintptr `json:"read_fd"`
		WriteFd uintptr `json:"write_fd"`
	}
	if err := json.Unmarshal([]byte(os.Args[2]), &config); err != nil {
		log.Fatal(err)
	}
	channel := &Channel{
		bufio.NewReader(os.NewFile(config.ReadFd, "requests")),
		os.NewFile(config.WriteFd, "answers"),
	}
	if os.Args[1] == "server" {
		serve(channel)
	} else {
		drive(channel)
	}
}
