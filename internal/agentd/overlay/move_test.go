package overlay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/model/vnet"
)

// Sessions of a client that has moved go to its new host when that is told; one that the client takes back to its old host
// goes again once its server speaks in vain, and at the end in any case.
func TestMovedClientsAreFollowed(t *testing.T) {
	const old, next = 3, 4
	now := time.Now()
	client, other := clientAddress{100, netip.MustParseAddr("192.168.0.5")}, clientAddress{200, netip.MustParseAddr("192.168.0.5")}
	session := overlay.Session{Row: 17, Host: old, Events: overlay.ClientACK, ClientNext: 1000, ServerNext: 2000, Seen: 10}
	m := &moves{}
	told := []vnet.Move{{VNI: 100, Addresses: []netip.Addr{client.address}, Host: next}}
	if !m.note(told, now) || m.note(told, now) {
		t.Error("what is told once is not new once")
	}
	sweep := func(what string, key clientAddress, s overlay.Session, after time.Duration, want uint32) {
		t.Helper()
		if m.last == nil {
			m.last = map[uint32]overlay.Session{}
		}
		if got := m.due(key, s, now.Add(after)); got != want {
			t.Errorf("%s: goes to host %d, not %d", what, got, want)
		}
		m.next(now.Add(after))
	}
	sweep("another network's client", other, session, 0, 0)
	m = &moves{}
	m.note(told, now)
	sweep("when it is told", client, session, 0, next)
	session.ClientNext, session.Seen = 1100, 20
	sweep("its client speaks from the old host", client, session, time.Second, 0)
	session.ClientNext, session.Seen = 1200, 30
	sweep("and goes on to", client, session, 2*time.Second, 0)
	sweep("all is silent", client, session, 3*time.Second, 0)
	session.Seen = 40
	sweep("its server speaks in vain", client, session, 4*time.Second, next)
	at := session
	at.Host, at.Seen = next, 50
	sweep("it is there", client, at, 5*time.Second, 0)
	over := session
	over.Events |= overlay.Reset
	sweep("it is over", client, over, moveTime, 0)
	m.note(told, now)
	m.next(now)
	sweep("the end", client, session, moveTime, next)
	if len(m.of) != 0 || m.last != nil {
		t.Errorf("after the end there are %v", m.of)
	}
}
