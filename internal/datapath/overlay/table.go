package overlay

import (
	"fmt"
	"iter"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
)

// The table's layout; see bpf/abi/shared/session.h.
const (
	Ways    = 16 // rows of a set
	RowSize = 56
	tagSize = 4
	setSize = Ways * (RowSize + tagSize)

	stateMask = 3
	pending   = 1
	live      = 2

	MaxRows  = 1 << 22 // of a table: addresses of the default local prefix
	MaxFlows = 1 << 22 // bypass flows
)

// Event is what has been seen of a connection; see enum overlay_event.
type Event uint16

// The events.
const (
	ClientACK Event = 1 << iota
	ServerAnswer
	ClientFIN
	ServerFIN
	Reset
	ViaMux  // answers go by a mux
	Proxied // began by a SYN cookie
	UDP     // no event: the session is of datagrams
)

// Tick is the unit of times in rows.
const Tick = 1 << 24 * time.Nanosecond

// Now is the tick of this moment, as the programs count.
func Now() uint32 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // can't fail for this clock
	return uint32(ts.Nano() / int64(Tick))
}

// How long rows are in quarantine before they are another connection's.
const (
	HalfOpenQuarantine = 1788 * Tick
	ResetQuarantine    = 596 * Tick
	ClosedQuarantine   = 7153 * Tick // the server's TIME-WAIT has the row's address
)

// row is struct overlay_session.
type row struct {
	client                 [4]uint32
	host                   uint32
	attachment, answered   uint16
	rule, counters         uint16
	clientPort, vipPort    uint16
	clientMAC              [6]byte
	events                 Event
	clientNext, serverNext uint32
	seen, shift            uint32
}

type set struct {
	tags [Ways]uint32
	rows [Ways]row
}

// Session is a row of the table.
type Session struct {
	Row                    uint32
	Client                 netip.AddrPort
	Port                   uint16 // the VIP's
	Host, Attachment, Rule uint32
	Counters               uint32 // number of those of its backend; 0: it has none
	ClientMAC              [6]byte
	Events                 Event
	ClientNext, ServerNext uint32
	Seen                   uint32 // tick
	tag                    uint32
}

func (s Session) isHalfOpen() bool { return !s.Events.IsOver() && s.Events&ClientACK == 0 }

// IsOpen says whether both ends have spoken, and neither has ended it.
func (s Session) IsOpen() bool { return !s.Events.IsOver() && s.Events&ClientACK != 0 }

// IsOver says whether the connection has ended.
func (e Event) IsOver() bool { return e&Reset != 0 || e.isClosed() }

func (e Event) isClosed() bool { return e&(ClientFIN|ServerFIN) == ClientFIN|ServerFIN }

// Quarantine is the silence after which the row is another's; 0: not by itself.
func (e Event) Quarantine() time.Duration {
	switch {
	case e&Reset != 0:
		return ResetQuarantine
	case e.isClosed():
		return ClosedQuarantine
	case e&ClientACK != 0:
		return 0
	}
	return HalfOpenQuarantine
}

// Table is the sets of sessions, shared with the programs.
type Table struct {
	memory []byte
	sets   []set
}

// Map maps the table of sets.
func Map(m *ebpf.Map) (*Table, error) {
	if m.ValueSize() != setSize {
		return nil, fmt.Errorf("map session table: its sets have %d bytes, not %d", m.ValueSize(), setSize)
	}
	memory, err := unix.Mmap(m.FD(), 0, int(m.MaxEntries())*setSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map session table: %w", err)
	}
	return &Table{memory: memory, sets: unsafe.Slice((*set)(unsafe.Pointer(&memory[0])), m.MaxEntries())}, nil
}

// Close unmaps the table; the map goes on.
func (t *Table) Close() error {
	t.sets = nil
	return unix.Munmap(t.memory)
}

// Rows is how many sessions the table could hold.
func (t *Table) Rows() int { return len(t.sets) * Ways }

// All yields the live sessions. One that changes meanwhile is left out.
func (t *Table) All() iter.Seq[Session] { return t.From(0) }

// From is All from a row on, by row.
func (t *Table) From(row uint32) iter.Seq[Session] {
	return func(yield func(Session) bool) {
		for number := row; uint64(number) < uint64(t.Rows()); number++ {
			s, ok := t.read(number)
			if ok && !yield(s) {
				return
			}
		}
	}
}

// Get returns the session of a row.
func (t *Table) Get(number uint32) (Session, bool) {
	if int(number) >= t.Rows() {
		return Session{}, false
	}
	return t.read(number)
}

func (t *Table) read(number uint32) (Session, bool) {
	s := &t.sets[number/Ways]
	at := &s.tags[number%Ways]
	tag := atomic.LoadUint32(at)
	if tag&stateMask != live {
		return Session{}, false
	}
	r := s.rows[number%Ways]
	if atomic.LoadUint32(at) != tag {
		return Session{}, false
	}
	return Session{
		Row: number, Client: netip.AddrPortFrom(abi.Address(r.client), abi.Port(r.clientPort)), Port: abi.Port(r.vipPort),
		Host: r.host, Attachment: uint32(r.attachment), Rule: uint32(r.rule), Counters: uint32(r.counters), ClientMAC: r.clientMAC, Events: r.events,
		ClientNext: r.clientNext, ServerNext: r.serverNext, Seen: r.seen, tag: tag,
	}, true
}

// Free frees the row of a session, unless the programs have begun another one in it.
func (t *Table) Free(s Session) bool { return t.free(&s) }

// free has in s what was seen of the session until then.
func (t *Table) free(s *Session) bool {
	set := &t.sets[s.Row/Ways]
	tag := &set.tags[s.Row%Ways]
	if !atomic.CompareAndSwapUint32(tag, s.tag, s.tag&^stateMask|pending) {
		return false
	}
	s.Events = set.rows[s.Row%Ways].events
	atomic.StoreUint32(tag, 0)
	return true
}

// Report is what a sweep found.
type Report struct {
	Open, HalfOpen, Over int
	Freed                int
	Dropped              int // half-open ones that made way
}

// Sweep frees the rows whose quarantine is over at a tick, and calls freed for each. Sessions that go on are given to live, if
// that is not nil.
func (t *Table) Sweep(now uint32, freed, goesOn func(Session)) (r Report) {
	for s := range t.All() {
		quarantine := s.Events.Quarantine()
		age := int32(now - s.Seen)
		if quarantine != 0 && time.Duration(age)*Tick > quarantine && t.free(&s) {
			r.Freed++
			if freed != nil {
				freed(s)
			}
			continue
		}
		switch {
		case s.Events.IsOver():
			r.Over++
		case s.Events&ClientACK == 0:
			r.HalfOpen++
		default:
			r.Open++
		}
		if goesOn != nil {
			goesOn(s)
		}
	}
	return r
}
