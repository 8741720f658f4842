package stream

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/weirlb/weir/internal/lab/echo"
)

// flow is a stream of UDP: numbered datagrams from one port.
type flow struct {
	net.Conn
	interval, patience time.Duration
	server             string
	number             uint64 // of the next datagram
	answered           time.Time
	buffer             [256]byte
}

// openFlow sends the first datagram until it is answered.
func openFlow(config Config) (*flow, error) {
	var dialer net.Dialer
	if config.Source.IsValid() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(config.Source, 0))
	}
	opened, err := dialer.Dial("udp", config.Target.String())
	if err != nil {
		return nil, err
	}
	f := &flow{Conn: opened, interval: config.Interval, patience: config.Patience, answered: time.Now()}
	for {
		answered, err := f.exchange()
		if err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		if answered {
			return f, nil
		}
		f.number = 0
		time.Sleep(config.Interval / 20) // a refusal comes at once
	}
}

func (f *flow) backend() string { return f.server }
func (f *flow) local() string   { return f.LocalAddr().String() }

// exchange sends one datagram and waits half an interval for its answer. Answers to earlier ones are
// looked at too.
func (f *flow) exchange() (answered bool, err error) {
	number := f.number
	f.number++
	sent := time.Now()
	if err := f.SetDeadline(sent.Add(f.interval / 2)); err != nil {
		return false, err
	}
	_, err = fmt.Fprintf(f, echo.FlowRequest, number)
	for err == nil {
		var n int
		if n, err = f.Read(f.buffer[:]); err != nil {
			break
		}
		var got uint64
		if got, err = f.read(f.buffer[:n]); err != nil {
			return false, err
		}
		if got == number {
			f.answered = time.Now()
			return true, nil
		}
	}
	lost := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED)
	if lost && time.Since(f.answered) < f.patience {
		return false, nil
	}
	return false, err
}

// read looks at an answer and returns the number of its datagram.
func (f *flow) read(answer []byte) (number uint64, err error) {
	var server, state string
	if _, err := fmt.Sscanf(string(answer), echo.FlowAnswer, &server, &number, &state); err != nil {
		return 0, fmt.Errorf("answer %q", answer)
	}
	if state != echo.FlowKnown {
		return 0, fmt.Errorf("reached %s, which does not know the flow", server)
	}
	if f.server == "" {
		f.server = server
	}
	if server != f.server {
		return 0, fmt.Errorf("reached %s", server)
	}
	return number, nil
}
