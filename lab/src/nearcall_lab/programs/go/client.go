package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"nearcall.test/lab/pb"
)

const (
	never        = math.MaxInt64
	mostSecret   = 1_000_000
	giveUpAfter  = 100             // failed calls in a row: the connection is dead
	countedLimit = 120_000_000_000 // nanoseconds for a cell that ends by a number of calls
	warmUps      = 5               // times warmup_s; what the last one saw shows whether the times have settled
)

type cell struct {
	Work struct {
		Operation string
		DelayS    float64 `json:"delay_s"`
	}
	Mode struct {
		Kind            string
		Connections     int
		Outstanding     int
		ClientProcesses int `json:"client_processes"`
		Calls           int
		Seconds         float64
		WarmupS         float64 `json:"warmup_s"`
	}
}

// A call that was answered rightly, or the status of one that failed.
type unit func(number int) (secret int64, err error)

// wrongReply ends the launch: a reply is not what the call must return.
type wrongReply struct{ error }

// slot makes one call at a time.
type slot struct {
	unit                    unit
	intended, started, done []int64
	errors                  map[string]int
	firstError              string
	secrets                 map[int64]bool
	wrong                   error
}

type load struct {
	cell     cell
	process  int
	conns    []*grpc.ClientConn
	slots    []*slot
	bursts   []int64
	due      int
	requests int // calls that the server must have handled, in all cells
	failed   int
}

func share(total, part, parts int) int {
	return (total - part + parts - 1) / parts
}

func unitOf(c cell, client pb.LabClient) unit {
	background := context.Background()
	if c.Work.Operation == "wait" {
		name := fmt.Sprintf("waited %g s", c.Work.DelayS)
		base := int64(math.Round(c.Work.DelayS * 1e6))
		return func(int) (int64, error) {
			reply, err := client.Wait(background, &pb.Pause{Seconds: c.Work.DelayS})
			if err != nil {
				return 0, err
			}
			return checked(reply.Name == name, int64(reply.Id)-base, reply)
		}
	}
	return func(number int) (int64, error) {
		at := int64(number%4 + 1)
		order := &pb.Order{Symbol: fmt.Sprintf("SYM%d", at), Quantity: 100*at + 7, Price: 1.25 * float64(at), Urgent: at%2 == 0}
		reply, err := client.Quote(background, order)
		if err != nil {
			return 0, err
		}
		right := reply.Symbol == order.Symbol && reply.Cost == float64(order.Quantity)*order.Price && reply.Accepted != order.Urgent
		return checked(right, reply.Lots-order.Quantity/100, reply)
	}
}

func checked(right bool, secret int64, reply any) (int64, error) {
	if !right || secret < 0 || secret > mostSecret {
		return 0, wrongReply{fmt.Errorf("wrong reply: %v", reply)}
	}
	return secret, nil
}

func (l *load) prepare(address string) (answer, []byte, error) {
	l.close()
	mode := l.cell.Mode
	before := 0
	for part := range l.process {
		before += share(mode.Connections, part, mode.ClientProcesses)
	}
	connections := share(mode.Connections, l.process, mode.ClientProcesses)
	outstanding := mode.Outstanding
	if mode.Kind == "burst" { // further slots would have no calls to make
		outstanding = min(outstanding, share(mode.Calls, 0, mode.Connections))
	}
	units := []unit{}
	for range connections {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, nil, err
		}
		l.conns = append(l.conns, conn)
		within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		conn.Connect()
		for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
			if !conn.WaitForStateChange(within, state) {
				cancel()
				return nil, nil, fmt.Errorf("no connection to %s within 10 s", address)
			}
		}
		cancel()
		units = append(units, unitOf(l.cell, pb.NewLabClient(conn)))
	}
	for at := range connections * outstanding {
		l.slots = append(l.slots, &slot{unit: units[at%connections]})
	}
	if err := l.closed(l.slots[:connections], never, func(int) int { return 1 }); err != nil {
		return nil, nil, err
	}
	for _, one := range l.slots[:connections] {
		if one.firstError != "" {
			return nil, nil, fmt.Errorf("%s", one.firstError)
		}
	}
	first := l.slots[0].done[0] - l.slots[0].started[0]
	warmed, last := 0, []byte(nil)
	for _, length := range []float64{(warmUps - 1) * mode.WarmupS, mode.WarmupS} {
		if length == 0 {
			continue
		}
		if err := l.closed(l.slots, now()+int64(length*1e9), func(int) int { return never }); err != nil {
			return nil, nil, err
		}
		_, rows, blob := l.columns("started", "done")
		warmed, last = warmed+rows, blob
	}
	if mode.WarmupS > 0 && warmed == 0 {
		return nil, nil, fmt.Errorf("%s", l.firstError())
	}
	prepared := answer{"first_call_ns": first, "warmup_calls": warmed, "warmed_up": false, "slots": len(l.slots)}
	return prepared, last, nil
}

// each runs the calls of every slot in a goroutine of its own, and returns after the last.
func each(slots []*slot, run func(number int, one *slot)) {
	var all sync.WaitGroup
	for number, one := range slots {
		all.Go(func() { run(number, one) })
	}
	all.Wait()
}

func (l *load) restart() {
	for _, one := range l.slots {
		*one = slot{unit: one.unit, errors: map[string]int{}, secrets: map[int64]bool{}}
	}
}

func (l *load) count() error {
	for _, one := range l.slots {
		l.requests += len(one.done)
		for _, count := range one.errors {
			l.failed += count
		}
		if one.wrong != nil {
			return one.wrong
		}
	}
	return nil
}

// call makes one call and records it. False if the slot should stop.
func (s *slot) call(number int, intended int64, row *int) bool {
	begun := now()
	secret, err := s.unit(number)
	ended := now()
	if wrong, is := err.(wrongReply); is {
		s.wrong = wrong
		return false
	}
	if err != nil {
		kind := status.Code(err).String()
		s.errors[kind]++
		if s.firstError == "" {
			s.firstError = err.Error()
		}
		*row++
		return *row < giveUpAfter
	}
	*row = 0
	s.secrets[secret] = true
	s.intended, s.started, s.done = append(s.intended, intended), append(s.started, begun), append(s.done, ended)
	return true
}

// closed lets each slot call again as soon as it has its reply, at least once.
func (l *load) closed(slots []*slot, end int64, most func(number int) int) error {
	l.restart()
	each(slots, func(number int, one *slot) {
		row, limit := 0, most(number)
		for made := 0; made < limit; made++ {
			if !one.call(made, 0, &row) || now() >= end {
				return
			}
		}
	})
	return l.count()
}

// burst starts all calls at once; a further burst follows while there is time.
func (l *load) burst(begin int64) error {
	mode := l.cell.Mode
	calls := share(mode.Calls, l.process, mode.ClientProcesses)
	l.restart()
	l.bursts, l.due = nil, 0
	for due := begin; ; due = now() {
		var taken atomic.Int64
		each(l.slots, func(_ int, one *slot) {
			row := 0
			for at := taken.Add(1); at <= int64(calls); at = taken.Add(1) {
				if !one.call(int(at), due, &row) {
					return
				}
			}
		})
		end := now()
		l.bursts = append(l.bursts, due, end)
		l.due += calls
		if end >= begin+int64(mode.Seconds*1e9) || mode.ClientProcesses > 1 {
			return l.count()
		}
	}
}

func (l *load) timed(begin int64) error {
	mode := l.cell.Mode
	time.Sleep(time.Duration(begin - now()))
	if mode.Kind == "burst" {
		return l.burst(begin)
	}
	if mode.Calls == 0 {
		return l.closed(l.slots, begin+int64(mode.Seconds*1e9), func(int) int { return never })
	}
	everybody := mode.Connections * mode.Outstanding
	before := l.process * len(l.slots)
	return l.closed(l.slots, begin+countedLimit, func(number int) int { return share(mode.Calls, before+number, everybody) })
}

func (l *load) firstError() string {
	for _, one := range l.slots {
		if one.firstError != "" {
			return one.firstError
		}
	}
	return "no call was done"
}

// columns gathers the stamps of all slots: the names, the number of rows, and one column after the other.
func (l *load) columns(names ...string) ([]string, int, []byte) {
	blob, rows := []byte{}, 0
	for _, name := range names {
		rows = 0
		for _, one := range l.slots {
			stamps := map[string][]int64{"intended": one.intended, "started": one.started, "done": one.done}[name]
			rows += len(stamps)
			for _, stamp := range stamps {
				blob = binary.LittleEndian.AppendUint64(blob, uint64(stamp))
			}
		}
	}
	return names, rows, blob
}

func (l *load) results() (answer, []byte) {
	names := []string{"started", "done"}
	if l.cell.Mode.Kind == "burst" {
		names = append(names, "intended")
	}
	names, rows, blob := l.columns(names...)
	errors, secrets := map[string]int{}, map[int64]bool{}
	for _, one := range l.slots {
		for kind, count := range one.errors {
			errors[kind] += count
		}
		for secret := range one.secrets {
			secrets[secret] = true
		}
	}
	known := []int64{}
	for secret := range secrets {
		known = append(known, secret)
	}
	told := answer{
		"columns": names, "rows": rows, "requests": l.requests, "failed": l.failed, "errors": errors,
		"due": l.due, "bursts": l.bursts, "secrets": known,
	}
	if len(errors) > 0 {
		told["first_error"] = l.firstError()
	}
	return told, blob
}

func (l *load) close() {
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns, l.slots, l.bursts, l.due = nil, nil, nil, 0
}

func drive(channel *Channel) {
	channel.say(answer{"loaded": true}, nil)
	l := &load{}
	for {
		var request struct {
			Do      string
			Address string
			Cell    cell
			Process int
			BeginNs int64 `json:"begin_ns"`
		}
		if !channel.next(&request) {
			return
		}
		switch request.Do {
		case "prepare":
			if kind := request.Cell.Mode.Kind; kind != "closed" && kind != "burst" {
				channel.say(answer{"unsupported": "has no mode " + kind}, nil)
				continue
			}
			l.cell, l.process = request.Cell, request.Process
			told, blob, err := l.prepare(request.Address)
			reply(channel, told, blob, err)
		case "go":
			reply(channel, answer{"ran": true}, nil, l.timed(request.BeginNs))
		case "results":
			told, blob := l.results()
			channel.say(told, blob)
		case "stop":
			l.close()
			channel.say(answer{"stopped": true}, nil)
			return
		default:
			channel.say(answer{"unsupported": request.Do}, nil)
		}
	}
}

func reply(channel *Channel, told answer, blob []byte, err error) {
	if err != nil {
		told, blob = answer{"error": err.Error()}, nil
	}
	channel.say(told, blob)
}
