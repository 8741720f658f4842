package overlay

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirlb/weir/internal/datapath/abi"
)

// End is why a session is ended.
type End string

// The reasons.
const (
	Idle      End = "idle"      // for longer than its service allows
	Removed   End = "removed"   // its backend is
	Detached  End = "detached"  // its VIP is, from the network
	Forbidden End = "forbidden" // its client is, by now
)

// Clean ends sessions at a tick (NGLB, section VI): of those that are to end the ones that were seen longest ago, most at
// most. Each row is noted as reset and keeps its quarantine; send is given the resets for both ends, made of the numbers
// that each end acknowledged last. Where they are stale the end answers with a challenge ACK, by which the session lives
// on. Sessions that an end's reset fails of are counted too: they end by the next segment of either end.
func (d *Datapath) Clean(now uint32, most int, forbids func(Session) bool, send func(Resets) error) (map[End]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	type ending struct {
		Session
		why End
	}
	var due []ending
	attachments, rules := map[uint32]bool{}, map[uint32]bool{}
	for s := range d.All() {
		attachments[s.Attachment], rules[s.Rule] = true, true
		if why := d.due(s, now, forbids); why != "" {
			due = append(due, ending{s, why})
		}
	}
	d.forgetDetached(attachments, rules)
	slices.SortFunc(due, func(a, b ending) int { return int(int32(a.Seen - b.Seen)) })
	ended := map[End]int{}
	var failed error
	for _, e := range due[:min(most, len(due))] {
		if !d.noteReset(e.Session, now) {
			continue // another one's by now
		}
		ended[e.why]++
		d.countCleaned(e.Counters)
		if r, ok := d.resets(e.Session); ok && e.Events&UDP == 0 { // datagrams know no end
			if err := send(r); err != nil && failed == nil {
				failed = fmt.Errorf("reset the session of %s: %w", e.Client, err)
			}
		}
	}
	return ended, failed
}

// due says why a session is to end; empty: it goes on.
func (n *Network) due(s Session, now uint32, forbids func(Session) bool) End {
	if s.Events.IsOver() {
		return ""
	}
	if a, attached := n.attachments[s.Attachment]; !attached || a.Leaving {
		return Detached
	}
	rule, known := n.rules[s.Rule]
	if !known {
		return Removed
	}
	idle := time.Duration(int32(now-s.Seen)) * Tick
	if rule.IdleTimeout != 0 && s.Events&ClientACK != 0 && idle > rule.IdleTimeout {
		return Idle
	}
	if forbids != nil && forbids(s) {
		return Forbidden
	}
	return ""
}

// forgetDetached drops what no session needs any more.
func (n *Network) forgetDetached(attachments, rules map[uint32]bool) {
	maps.DeleteFunc(n.detached, func(number uint32, _ Attachment) bool { return !attachments[number] })
	maps.DeleteFunc(n.removed, func(number uint32, _ Rule) bool { return !rules[number] })
}

// noteReset notes a session as reset at a tick; false: its row is another one's.
func (t *Table) noteReset(s Session, now uint32) bool {
	const eventsShift = 16 // in the word of the last bytes of the MAC
	set := &t.sets[s.Row/Ways]
	r := &set.rows[s.Row%Ways]
	if atomic.LoadUint32(&set.tags[s.Row%Ways]) != s.tag {
		return false
	}
	atomic.StoreUint32(&r.seen, now)
	atomic.OrUint32((*uint32)(unsafe.Pointer(&r.clientMAC[4])), uint32(Reset)<<eventsShift)
	return true
}

// Local is the address by which the server knows the session's client; not valid: there is no prefix of its family.
func (n *Network) Local(s Session) netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.local(s)
}

func (n *Network) local(s Session) netip.AddrPort {
	client := s.Client.Addr()
	if client.Is4() && !n.local4.IsValid() || client.Is6() && !n.local6.IsValid() {
		return netip.AddrPort{}
	}
	if client.Is4() {
		a := n.local4.Masked().Addr().As4()
		for i := range 4 {
			a[i] |= byte(s.Row >> (24 - 8*i))
		}
		return netip.AddrPortFrom(netip.AddrFrom4(a), s.Client.Port())
	}
	a, w := n.local6.Masked().Addr().As16(), abi.Words(client)
	digest, vni := (w[0]*31+w[1])*31*31+w[2]*31+w[3], n.attachmentOf(s).VNI
	copy(a[6:], []byte{
		byte(vni >> 16), byte(vni >> 8), byte(vni), byte(digest >> 24), byte(digest >> 16), byte(digest >> 8), byte(digest),
		byte(s.Row >> 16), byte(s.Row >> 8), byte(s.Row),
	})
	return netip.AddrPortFrom(netip.AddrFrom16(a), s.Client.Port())
}

// attachmentOf is the session's, or what it was before it was detached.
func (n *Network) attachmentOf(s Session) Attachment {
	if a, ok := n.attachments[s.Attachment]; ok {
		return a
	}
	return n.detached[s.Attachment]
}

// Peer is whom a server sees by a local address.
type Peer struct {
	Session
	VNI     uint32         // of the client's network; 0: the VIP is detached from it
	VIP     netip.AddrPort // as the client knows it
	Service netip.Addr     // the VIP's own address
}

// Whois finds the client that a local address and port is.
func (d *Datapath) Whois(local netip.AddrPort) (Peer, error) {
	row, a := uint32(0), local.Addr().AsSlice()
	for _, b := range a[len(a)-4:] {
		row = row<<8 | uint32(b)
	}
	switch {
	case local.Addr().Is4() && d.config.Local4.Contains(local.Addr()):
		row &= 1<<(32-d.config.Local4.Bits()) - 1
	case d.config.Local6.Contains(local.Addr()):
		row &= 1<<24 - 1
	default:
		return Peer{}, fmt.Errorf("find the client of %s: it is no local address", local)
	}
	s, ok := d.Get(row)
	if !ok || d.Local(s) != local {
		return Peer{}, errors.New("find the client of " + local.String() + ": there is no such session")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.attachmentOf(s)
	return Peer{Session: s, VNI: of.VNI, VIP: netip.AddrPortFrom(of.VIP, s.Port), Service: of.Service}, nil
}
