package overlay

import (
	"maps"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/model/vnet"
)

// clientAddress is one of a virtual network.
type clientAddress struct {
	vni     uint32
	address netip.Addr
}

// moves are clients that have gone to another host, as the manager tells. A client that speaks is followed by the programs;
// these are for one that waits for its server, whose answers go to the old host in vain.
//
// What is told may be early: the client speaks from its old host for a while, and its session goes back there. So sessions
// whose server speaks in vain are moved for moveTime, and all that are left at its end.
type moves struct {
	of   map[clientAddress]move
	last map[uint32]overlay.Session // of these clients, at the last sweep, by row
}

type move struct {
	host  uint32
	until time.Time
	begun bool // its sessions were moved once
}

const moveTime = 30 * time.Second

// note takes what is told, and says whether any of it is new.
func (m *moves) note(told []vnet.Move, now time.Time) (changed bool) {
	if m.of == nil {
		m.of = map[clientAddress]move{}
	}
	for _, t := range told {
		for _, a := range t.Addresses {
			key := clientAddress{t.VNI, a}
			if m.of[key].host == t.Host || len(m.of) >= 2*vnet.MaxMoves {
				continue
			}
			m.of[key] = move{host: t.Host, until: now.Add(moveTime)}
			changed = true
		}
	}
	return changed
}

// due says to which host a session is to go; 0: it stays.
func (m *moves) due(key clientAddress, s overlay.Session, now time.Time) (host uint32) {
	to, moved := m.of[key]
	if !moved || s.Host == to.host || s.Events.IsOver() {
		return 0
	}
	was, known := m.last[s.Row]
	m.last[s.Row] = s
	inVain := known && was.Client == s.Client && was.ClientNext == s.ClientNext && was.ServerNext == s.ServerNext && was.Seen != s.Seen
	if to.begun && !inVain && now.Before(to.until) {
		return 0
	}
	return to.host
}

// next is called when all sessions were seen.
func (m *moves) next(now time.Time) {
	maps.DeleteFunc(m.of, func(_ clientAddress, to move) bool { return !now.Before(to.until) })
	for key, to := range m.of {
		to.begun = true
		m.of[key] = to
	}
	if len(m.of) == 0 {
		m.last = nil
	}
}

// follow has sessions of clients that have gone to another host follow them.
func (m *moves) follow(d *overlay.Datapath, now time.Time) {
	if len(m.of) == 0 {
		return
	}
	if m.last == nil {
		m.last = map[uint32]overlay.Session{}
	}
	attachments := d.Attachments()
	for s := range d.All() {
		if host := m.due(clientAddress{attachments[s.Attachment].VNI, s.Client.Addr()}, s, now); host != 0 {
			d.MoveSession(s, host)
		}
	}
	m.next(now)
}
