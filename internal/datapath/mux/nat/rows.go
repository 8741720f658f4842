package nat

import (
	"iter"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// Ways are the rows of a set.
const Ways = int(bpf.MuxOverlayLayoutOVERLAY_WAYS)

// Tick is the unit of times in rows.
const Tick = 1 << bpf.MuxOverlayLayoutOVERLAY_TICK_SHIFT * time.Nanosecond

// Now is the tick of this moment, as the programs count.
func Now() uint32 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // can't fail for this clock
	return uint32(ts.Nano() / int64(Tick))
}

const (
	stateMask = uint32(bpf.MuxOverlayLayoutOVERLAY_STATE_MASK)
	pending   = uint32(bpf.MuxOverlayLayoutOVERLAY_PENDING)
	live      = uint32(bpf.MuxOverlayLayoutOVERLAY_LIVE)
)

// State is how far a connection is.
type State string

// The states, and how long a row rests in those that end.
const (
	HalfOpen State = "half-open" // the client has not acknowledged the backend's answer
	Open     State = "open"
	Closing  State = "closing" // both ends have said that they send no more
	Reset    State = "reset"

	halfOpenTicks = int32(bpf.MuxOverlayLayoutOVERLAY_HALF_OPEN_TICKS)
	closingTicks  = int32(bpf.MuxOverlayLayoutOVERLAY_CLOSED_TICKS)
	resetTicks    = int32(bpf.MuxOverlayLayoutOVERLAY_RESET_TICKS)
)

// Session is a row of the table.
type Session struct {
	Row                       uint32
	Client                    netip.AddrPort
	Port                      uint16 // the VIP's
	Host, Attachment, Backend uint32
	State                     State
	Seen                      uint32 // tick

	tag     uint32
	counted bool // among the half-open ones
	// For resets: what each end expects next, and how the client is reached.
	clientNext, serverNext uint32
	clientMAC              [6]byte
	overV6                 bool
}

// sessions are the sets of rows, which the programs write too.
type sessions []bpf.MuxOverlaySet

// all yields those that live. One that changes meanwhile is left out.
func (t sessions) all() iter.Seq[Session] {
	return func(yield func(Session) bool) {
		for i := range t {
			for way := range Ways {
				if s, ok := t.read(uint32(i*Ways + way)); ok && !yield(s) {
					return
				}
			}
		}
	}
}

func (t sessions) read(number uint32) (Session, bool) {
	set, way := &t[number/uint32(Ways)], number%uint32(Ways)
	tag := atomic.LoadUint32(&set.Tags[way])
	if tag&stateMask != live {
		return Session{}, false
	}
	r := set.Rows[way]
	if atomic.LoadUint32(&set.Tags[way]) != tag {
		return Session{}, false
	}
	state, counted := stateOf(r.Events)
	return Session{
		Row: number, Client: netip.AddrPortFrom(bpf.FromAddress(r.Client), abi.Port(r.ClientPort)), Port: abi.Port(r.VipPort),
		Host: r.Host, Attachment: uint32(r.Attachment), Backend: uint32(r.Rule), State: state, Seen: r.Seen, tag: tag, counted: counted,
		clientNext: r.ClientNext, serverNext: r.ServerNext, clientMAC: r.ClientMac, overV6: r.Events&uint16(bpf.MuxNatLayoutNAT_HOST_V6) != 0,
	}, true
}

// stateOf is what events tell, and whether the session counts as half-open.
func stateOf(events uint16) (state State, counted bool) {
	const fins = bpf.MuxOverlayEventOVERLAY_CLIENT_FIN | bpf.MuxOverlayEventOVERLAY_SERVER_FIN
	of := bpf.MuxOverlayEvent(events)
	counted = of&bpf.MuxOverlayEventOVERLAY_CLIENT_ACK == 0
	switch {
	case of&bpf.MuxOverlayEventOVERLAY_RESET != 0:
		return Reset, counted
	case of&fins == fins:
		return Closing, counted
	case counted:
		return HalfOpen, counted
	}
	return Open, counted
}

// isFree says whether a silent session's row may be another's at a tick.
func (s Session) isFree(now uint32) bool {
	silent := int32(now - s.Seen)
	switch s.State {
	case HalfOpen:
		return silent > halfOpenTicks
	case Closing:
		return silent > closingTicks
	case Reset:
		return silent > resetTicks
	case Open:
	}
	return false
}

// free frees the row of a session, unless it has become another's, and has in s what it was at its end.
func (t sessions) free(s *Session) bool {
	set, way := &t[s.Row/uint32(Ways)], s.Row%uint32(Ways)
	if !atomic.CompareAndSwapUint32(&set.Tags[way], s.tag, s.tag&^stateMask|pending) {
		return false
	}
	s.State, s.counted = stateOf(set.Rows[way].Events)
	atomic.StoreUint32(&set.Tags[way], 0)
	return true
}

// noteReset has the row of a session rest from a tick on; false: it is another one's.
func (t sessions) noteReset(s Session, now uint32) bool {
	const eventsShift = 16 // in the word of the last bytes of the MAC
	set, way := &t[s.Row/uint32(Ways)], s.Row%uint32(Ways)
	if atomic.LoadUint32(&set.Tags[way]) != s.tag {
		return false
	}
	r := &set.Rows[way]
	atomic.StoreUint32(&r.Seen, now)
	atomic.OrUint32((*uint32)(unsafe.Pointer(&r.ClientMac[4])), uint32(bpf.MuxOverlayEventOVERLAY_RESET)<<eventsShift)
	return true
}
