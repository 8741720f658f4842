package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
)

// PuntReason is why the program hands a packet to user space.
type PuntReason uint8

// The reasons.
const (
	PuntFragment = PuntReason(bpf.MuxPuntReasonPUNT_FRAGMENT) // later fragment of a datagram whose first one did not come yet
	PuntError    = PuntReason(bpf.MuxPuntReasonPUNT_ERROR)    // ICMP error about a connection that any backend may have
	PuntSplit    = PuntReason(bpf.MuxPuntReasonPUNT_SPLIT)    // IPv4, too big to encapsulate, may be fragmented
)

// Punt is a packet that the program hands to user space.
type Punt struct {
	Reason PuntReason
	Frame  []byte
	L3     int // offset of the frame's IP header
}

const puntHead = 8 // bytes of struct punt

// SlowPath is what user space needs to handle packets that the program hands to it.
type SlowPath struct {
	mu        *sync.Mutex
	tables    *bpf.Tables
	pool      *pool.Table
	endpoints *endpoint.Table
}

// Punts reads what the program hands over.
type Punts struct{ reader *ringbuf.Reader }

// Punts begins to read. There may be one reader at a time.
func (s *SlowPath) Punts() (*Punts, error) {
	reader, err := ringbuf.NewReader(s.tables.Punts)
	if err != nil {
		return nil, fmt.Errorf("read table punts: %w", err)
	}
	return &Punts{reader: reader}, nil
}

// Read waits for the next packet. It fails with fs.ErrClosed once p is closed.
func (p *Punts) Read() (Punt, error) {
	record, err := p.reader.Read()
	if errors.Is(err, ringbuf.ErrClosed) {
		return Punt{}, fs.ErrClosed
	}
	if err != nil {
		return Punt{}, fmt.Errorf("read table punts: %w", err)
	}
	if len(record.RawSample) < puntHead {
		return Punt{}, fmt.Errorf("read table punts: record of %d bytes", len(record.RawSample))
	}
	length := int(binary.NativeEndian.Uint32(record.RawSample))
	frame := record.RawSample[puntHead:]
	if length > len(frame) {
		return Punt{}, fmt.Errorf("read table punts: frame of %d bytes in %d", length, len(frame))
	}
	return Punt{
		Reason: PuntReason(record.RawSample[6]),
		L3:     int(binary.NativeEndian.Uint16(record.RawSample[4:])),
		Frame:  frame[:length],
	}, nil
}

// Close ends reading.
func (p *Punts) Close() error { return p.reader.Close() }

// fragmentRoom is what the largest header takes: IPv6, UDP, GUE, struct gue_weir and an address.
const fragmentRoom = 40 + 8 + 4 + 8 + 16

// SplitSize is the largest fragment that can be encapsulated, from its IP header on.
func (s *SlowPath) SplitSize() int {
	row, err := s.pool.Settings()
	if err != nil {
		return 0
	}
	return row.MTU - fragmentRoom
}

// BackendRoute is how a packet gets to a backend.
type BackendRoute struct {
	Source, Tunnel netip.Addr // of the outer header
	Hop            model.NextHop
}

// BackendRoutes lists the ways to the hosts of all backends of the endpoint that takes packets of the key;
// those without a next hop are left out.
func (s *SlowPath) BackendRoutes(key model.EndpointKey) []BackendRoute {
	row, err := s.pool.Settings()
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.endpoints.Live[key]
	if live == nil {
		key.Port = model.AllPorts
		live = s.endpoints.Live[key]
	}
	if live == nil {
		return nil
	}
	var ways []BackendRoute
	for _, b := range live.Backends {
		way := BackendRoute{Source: row.Source(b.Tunnel.Is4()), Tunnel: b.Tunnel, Hop: s.endpoints.Hops.Of(b.Tunnel)}
		if way.Source.IsValid() && way.Hop.Resolved() && !b.Down {
			ways = append(ways, way)
		}
	}
	return ways
}
