package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Network is what the streams are made of.
type Network string

// The networks.
const (
	TCP Network = "tcp"
	UDP Network = "udp"
)

// Config says how many streams go where, and what each does.
type Config struct {
	Network  Network
	Target   netip.AddrPort
	Source   netip.Addr // that the streams come from; invalid: the kernel chooses
	Streams  int
	Interval time.Duration // from block to block of one stream; 0: 1 s
	Size     int           // bytes of a block, each way; of TCP; 0: 256
	Patience time.Duration // a stream without an answer for so long is broken; 0: 20 s
	Ramp     time.Duration // within which the streams begin; 0: 1 s for 500
}

// Result is what the client noticed.
type Result struct {
	Opened   int            `json:"opened"`
	Broken   int            `json:"broken"`  // streams, those included that never opened
	Blocks   int            `json:"blocks"`  // that were answered
	Lost     int            `json:"lost"`    // datagrams without an answer; none breaks a flow by itself
	Slowest  time.Duration  `json:"slowest"` // answer
	Backends map[string]int `json:"backends"`
	Breaks   []Break        `json:"breaks,omitempty"` // in order of time; the first maxBreaks
	Late     []Late         `json:"late,omitempty"`   // answers, likewise
}

// Late is an answer that took a second or more.
type Late struct {
	Local string        `json:"local"` // the client's address and port
	At    time.Time     `json:"at"`    // when it came
	Took  time.Duration `json:"took"`
}

// lateAnswer is what an answer takes at least to be a Late one.
const lateAnswer = time.Second

// Break is the end of a stream before its time.
type Break struct {
	Local   string    `json:"local"`   // the client's address and port
	Backend string    `json:"backend"` // empty: the stream never opened
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
}

const maxBreaks = 5000

func (c Config) withDefaults() (Config, error) {
	if c.Network != TCP && c.Network != UDP {
		return c, fmt.Errorf("network must be tcp or udp, is %q", c.Network)
	}
	if !c.Target.IsValid() || c.Streams < 1 {
		return c, errors.New("needs a target, and one stream at least")
	}
	c.Interval = cmp.Or(c.Interval, time.Second)
	c.Size = cmp.Or(c.Size, 256)
	c.Patience = cmp.Or(c.Patience, 20*time.Second)
	c.Ramp = cmp.Or(c.Ramp, time.Duration(c.Streams)*time.Second/500)
	return c, nil
}

// Run opens the streams, calls opened when the last has opened or failed, and keeps them busy until ctx
// ends. Then each must answer once more. Streams that break are no error of Run.
func Run(ctx context.Context, config Config, opened func()) (Result, error) {
	r, err := newRun(config)
	if err != nil {
		return Result{}, err
	}
	return r.until(ctx, opened), nil
}

type run struct {
	config Config
	mu     sync.Mutex
	result Result
}

func newRun(config Config) (*run, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("hold streams: %w", err)
	}
	return &run{config: config, result: Result{Backends: map[string]int{}}}, nil
}

// until is Run.
func (r *run) until(ctx context.Context, opened func()) Result {
	var opening, all sync.WaitGroup
	opening.Add(r.config.Streams)
	for i := range r.config.Streams {
		all.Go(func() { r.hold(ctx, i, opening.Done) })
	}
	opening.Wait()
	opened()
	all.Wait()
	slices.SortFunc(r.result.Breaks, func(a, b Break) int { return a.At.Compare(b.At) })
	return r.result
}

// exchanger is one open stream.
type exchanger interface {
	// exchange sends a block and awaits the answer. Of datagrams, some may be lost.
	exchange() (answered bool, err error)
	backend() string
	local() string
	Close() error
}

func (r *run) open() (exchanger, error) {
	if r.config.Network == UDP {
		return openFlow(r.config)
	}
	return openConn(r.config)
}

// hold opens one stream and keeps it busy.
func (r *run) hold(ctx context.Context, number int, opened func()) {
	wait(ctx, time.Duration(number)*r.config.Ramp/time.Duration(r.config.Streams))
	s, err := r.open()
	if err != nil {
		r.broke(Break{Reason: "open: " + reason(err)})
		opened()
		return
	}
	defer s.Close()
	r.opened(s.backend())
	opened()
	for next := time.Now(); ; {
		if err := r.exchange(s); err != nil {
			r.broke(Break{Local: s.local(), Backend: s.backend(), Reason: reason(err)})
			return
		}
		if ctx.Err() != nil {
			return
		}
		next = next.Add(r.config.Interval)
		wait(ctx, time.Until(next))
	}
}

func (r *run) exchange(s exchanger) error {
	began := time.Now()
	answered, err := s.exchange()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !answered {
		r.result.Lost++
		return nil
	}
	took := time.Since(began)
	r.result.Blocks++
	r.result.Slowest = max(r.result.Slowest, took)
	if took >= lateAnswer && len(r.result.Late) < maxBreaks {
		r.result.Late = append(r.result.Late, Late{Local: s.local(), At: began.Add(took), Took: took})
	}
	return nil
}

func (r *run) opened(backend string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Opened++
	r.result.Backends[backend]++
}

func (r *run) broke(b Break) {
	b.At = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Broken++
	if len(r.result.Breaks) < maxBreaks {
		r.result.Breaks = append(r.result.Breaks, b)
	}
}

func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// reason is why a stream broke, the same words for the same reason.
func reason(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed by the server"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer"
	}
	return err.Error()
}
