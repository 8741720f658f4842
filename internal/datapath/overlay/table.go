package overlay

import (
	"encoding/binary"
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

// The table's layout; see bpf/abi/overlay/session.h.
const (
	Ways    = 16 // rows of a set
	RowSize = 56
	tagSize = 4
	setSize = Ways * (RowSize + tagSize)

	stateMask = 3
	live      = 2
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
	ViaMux
)

// Tick is the unit of times in rows.
const Tick = 1 << 24 * time.Nanosecond

// How long rows are in quarantine before they are another connection's.
const (
	HalfOpenQuarantine = 1788 * Tick
	ResetQuarantine    = 596 * Tick
	ClosedQuarantine   = 7153 * Tick // the server's TIME-WAIT has the row's address
)

// row is struct overlay_session.
type row struct {
	client                 [4]uint32
	host, attachment, rule uint32
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
	ClientMAC              [6]byte
	Events                 Event
	ClientNext, ServerNext uint32
	Seen                   uint32 // tick
	tag                    uint32
}

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
func (t *Table) All() iter.Seq[Session] {
	return func(yield func(Session) bool) {
		for i := range t.sets {
			for way := range Ways {
				s, ok := t.read(uint32(i*Ways + way))
				if ok && !yield(s) {
					return
				}
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
		Host: r.host, Attachment: r.attachment, Rule: r.rule, ClientMAC: r.clientMAC, Events: r.events,
		ClientNext: r.clientNext, ServerNext: r.serverNext, Seen: r.seen, tag: tag,
	}, true
}

// Free frees the row of a session, unless the programs have begun another one in it.
func (t *Table) Free(s Session) bool {
	return atomic.CompareAndSwapUint32(&t.sets[s.Row/Ways].tags[s.Row%Ways], s.tag, 0)
}

// Report is what a sweep found.
type Report struct {
	Open, HalfOpen, Over int
	Freed                int
}

// Sweep frees the rows whose quarantine is over at a tick, and calls freed for each. Sessions that go on are given to live, if
// that is not nil.
func (t *Table) Sweep(now uint32, freed, goesOn func(Session)) (r Report) {
	for s := range t.All() {
		quarantine := s.Events.Quarantine()
		age := int32(now - s.Seen)
		if quarantine != 0 && time.Duration(age)*Tick > quarantine && t.Free(s) {
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

// CopyFrom takes over the rows of a smaller table, or of one of the same size, at their numbers. Programs may still use
// both: a row that is another's here is left alone and counted in lost. It may be called again, for what was made in old
// meanwhile.
func (t *Table) CopyFrom(old *Table) (lost int, err error) {
	if len(old.sets) > len(t.sets) {
		return 0, fmt.Errorf("copy sessions: %d sets do not fit into %d", len(old.sets), len(t.sets))
	}
	for i := range old.sets {
		for way := range Ways {
			if !t.copyRow(old, i, way) {
				lost++
			}
		}
	}
	return lost, nil
}

// copyRow is false when the row is lost.
func (t *Table) copyRow(old *Table, i, way int) bool {
	from, to := &old.sets[i], &t.sets[i]
	tag := atomic.LoadUint32(&from.tags[way])
	was := atomic.LoadUint32(&to.tags[way])
	if tag&stateMask != live || tag == was {
		return true
	}
	const pending = 1
	if was != 0 || !atomic.CompareAndSwapUint32(&to.tags[way], 0, tag&^stateMask|pending) {
		return false
	}
	to.rows[way] = from.rows[way]
	atomic.StoreUint32(&to.tags[way], tag)
	return true
}

// AnyOutOfPlace says whether a row is where only the mask of a smaller table finds it. A table that has grown may forget
// that mask once there is none.
func (t *Table) AnyOutOfPlace(oldSets int, hash func(Session) uint64) bool {
	mask := uint64(len(t.sets) - 1)
	for s := range t.All() {
		if int(s.Row/Ways) >= oldSets {
			continue
		}
		h, at := hash(s), uint64(s.Row/Ways)
		if h&mask != at && h>>18&mask != at {
			return true
		}
	}
	return false
}

// Hash is the hash of a session, as the programs compute it: see overlay_key_hash() in C.
func Hash(key [10]uint32, s Session) uint64 {
	c := abi.Words(s.Client.Addr())
	var ports [4]byte
	binary.BigEndian.PutUint16(ports[0:], s.Client.Port())
	binary.BigEndian.PutUint16(ports[2:], s.Port)
	term := func(a, b uint32, at int) uint64 { return uint64(a+key[at]) * uint64(b+key[at+1]) }
	h := term(c[0], c[1], 0) + term(c[2], c[3], 2) + term(s.Attachment, binary.NativeEndian.Uint32(ports[:]), 4)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
