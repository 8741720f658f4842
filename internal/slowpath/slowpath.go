package slowpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
)

// pollTime is how often the datagrams of held fragments are looked up.
const pollTime = 10 * time.Millisecond

// Datapath is the data plane.
type Datapath interface {
	FragmentKnown(mux.FragmentKey) bool
	// Inject runs the program on a frame and sends the result.
	Inject(frame []byte) error
	Send(frame []byte) error
	// BackendRoutes lists the ways to all backends of the key's endpoint.
	BackendRoutes(model.EndpointKey) []mux.BackendRoute
	// SplitSize is the largest fragment that can be encapsulated.
	SplitSize() int
}

// Punts reads the packets that the fast path hands to user space.
type Punts interface {
	Read() (mux.Punt, error) // fs.ErrClosed once it is closed
	Close() error
}

// SlowPath handles packets one after the other.
type SlowPath struct {
	datapath Datapath
	punts    Punts
	log      *slog.Logger
	held     hold
	copies   copies
	counters *Counters
}

// New makes a slow path that owns punts, and counts into counters.
func New(datapath Datapath, punts Punts, counters *Counters, log *slog.Logger) *SlowPath {
	return &SlowPath{datapath: datapath, punts: punts, counters: counters, log: log}
}

// Run serves until ctx ends.
func (s *SlowPath) Run(ctx context.Context) error {
	arrived := make(chan mux.Punt)
	failed := make(chan error, 1)
	go func() { failed <- s.read(ctx, arrived) }()
	ticker := time.NewTicker(pollTime)
	defer ticker.Stop()
	for {
		select {
		case p := <-arrived:
			s.handle(p, time.Now())
		case now := <-ticker.C:
			s.release(now)
		case err := <-failed:
			return errors.Join(err, s.punts.Close())
		case <-ctx.Done():
			err := s.punts.Close()
			return errors.Join(err, <-failed)
		}
	}
}

// read passes on punted packets until Punts is closed.
func (s *SlowPath) read(ctx context.Context, arrived chan<- mux.Punt) error {
	for {
		p, err := s.punts.Read()
		if errors.Is(err, fs.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read packets for the slow path: %w", err)
		}
		select {
		case arrived <- p:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *SlowPath) handle(p mux.Punt, now time.Time) {
	s.counters.arrived(p.Reason)
	switch p.Reason {
	case mux.PuntFragment:
		s.holdFragment(p, now)
	case mux.PuntError:
		s.copy(p, now)
	case mux.PuntSplit:
		for _, part := range split(p.Frame, p.L3, s.datapath.SplitSize()) {
			s.inject(part)
		}
	}
}

// holdFragment keeps an early fragment, unless its first one has arrived meanwhile.
func (s *SlowPath) holdFragment(p mux.Punt, now time.Time) {
	packet, ok := parse(p.Frame, p.L3)
	if !ok || !packet.isFragment() {
		return
	}
	if s.datapath.FragmentKnown(packet.key()) {
		s.inject(p.Frame)
		return
	}
	s.counters.Overflowed.Add(uint64(s.held.add(packet.key(), p.Frame, now)))
	s.counters.Held.Store(int64(s.held.count))
}

// release forwards held fragments whose first one has arrived.
func (s *SlowPath) release(now time.Time) {
	for key := range s.held.fragments {
		if !s.datapath.FragmentKnown(key) {
			continue
		}
		for _, frame := range s.held.remove(key) {
			s.inject(frame)
		}
	}
	s.counters.Expired.Add(uint64(s.held.expire(now)))
	s.counters.Held.Store(int64(s.held.count))
}

// copy sends an ICMP error to all backends that may have its connection. The others drop it.
func (s *SlowPath) copy(p mux.Punt, now time.Time) {
	flow, ok := quotedFlow(p.Frame, p.L3)
	if !ok {
		return
	}
	ways := s.datapath.BackendRoutes(flow.Endpoint())
	if len(ways) == 0 {
		return
	}
	if !s.copies.take(flow.Destination.Addr(), len(ways), now) {
		s.counters.Limited.Add(1)
		return
	}
	for _, way := range ways {
		frame := encapsulate(p.Frame, p.L3, way)
		if frame == nil {
			continue
		}
		err := s.datapath.Send(frame)
		s.counters.sent(err)
		if err != nil {
			s.log.Debug("send a copy of an icmp error", "endpoint", flow.Endpoint(), "err", err)
		}
	}
}

func (s *SlowPath) inject(frame []byte) {
	err := s.datapath.Inject(frame)
	s.counters.sent(err)
	if err != nil {
		s.log.Debug("send on a packet of the slow path", "err", err)
	}
}
