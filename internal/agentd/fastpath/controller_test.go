package fastpath

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	agentfastpath "github.com/weirlb/weir/internal/datapath/agent/fastpath"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/model"
)

const (
	tunnelA, tunnelB = "10.1.0.2", "10.1.0.9"
	muxSource        = "10.0.0.1"
)

var directConnection = fastpath.Connection{
	Protocol: model.TCP,
	Client:   netip.MustParseAddrPort("203.0.113.20:1024"), Server: netip.MustParseAddrPort("203.0.113.10:80"),
}

// fakeDirects knows one connection, while it is established.
type fakeDirects struct {
	established bool
	forbidden   bool // its rule has no fastpath
	row         *agentfastpath.Entry
}

func (f *fakeDirects) SetFastpath(w agentfastpath.Entry) (agentfastpath.State, bool, error) {
	if !f.established || w.Connection != directConnection {
		return agentfastpath.None, false, agentfastpath.ErrUnknown
	}
	if f.forbidden {
		return agentfastpath.None, false, agentfastpath.ErrForbidden
	}
	if f.row != nil && f.row.Peer == w.Peer && w.State <= f.row.State {
		return f.row.State, false, nil
	}
	if w.State == agentfastpath.Send && (f.row == nil || f.row.Peer != w.Peer) {
		return agentfastpath.None, false, agentfastpath.ErrUnnamed
	}
	w.Sent = session.Now()
	w.Heard = w.Sent
	f.row = &w
	return w.State, true, nil
}

func (f *fakeDirects) EndFastpath(agentfastpath.Entry) error {
	f.row = nil
	return nil
}

func (f *fakeDirects) FastpathConnections() ([]agentfastpath.Entry, error) {
	if f.row == nil {
		return nil, nil
	}
	return []agentfastpath.Entry{*f.row}, nil
}

func (f *fakeDirects) state() agentfastpath.State {
	if f.row == nil {
		return agentfastpath.None
	}
	return f.row.State
}

// network delivers what agents send each other, unless it is lost.
type network struct {
	t          *testing.T
	now        time.Time
	a, b       *Controller // at the client, and at the server
	atA, atB   *fakeDirects
	lost       int // datagrams that are lost from now on
	redirected uint64
	wire       []agentfastpath.ControlMessage // all that was delivered
}

func testKeys() []model.FastpathKey {
	return []model.FastpathKey{{ID: 1, Secret: [32]byte{1}}, {ID: 2, Secret: [32]byte{2}}}
}

func newNetwork(t *testing.T) *network {
	n := &network{t: t, now: time.Unix(1_700_000_000, 0), atA: &fakeDirects{established: true}, atB: &fakeDirects{established: true}}
	end := func(datapath *fakeDirects) *Controller {
		d := New(slog.New(slog.DiscardHandler), datapath, func(from, to netip.Addr, datagram []byte) error {
			n.deliver(from.String(), to, datagram[4:], false)
			return nil
		})
		d.now = func() time.Time { return n.now }
		d.SetKeys(testKeys())
		return d
	}
	n.a, n.b = end(n.atA), end(n.atB)
	return n
}

// deliver queues a message: its receiver may be sending just now.
func (n *network) deliver(from string, to netip.Addr, message []byte, mux bool) {
	if n.lost > 0 {
		n.lost--
		return
	}
	n.wire = append(n.wire, agentfastpath.ControlMessage{Source: netip.MustParseAddr(from), Destination: to, FromMux: mux, Message: message})
}

// settle lets everything arrive that is on its way, and returns it.
func (n *network) settle() (all []agentfastpath.ControlMessage) {
	for len(n.wire) > 0 {
		c := n.wire[0]
		n.wire = n.wire[1:]
		all = append(all, c)
		if len(all) > 20 {
			n.t.Fatal("messages go round")
		}
		n.at(c.Destination).handleControl(c)
	}
	return all
}

func (n *network) at(tunnel netip.Addr) *Controller {
	if tunnel.String() == tunnelA {
		return n.a
	}
	return n.b
}

func (n *network) message(toClient bool) fastpath.Message {
	n.redirected++
	return fastpath.Message{
		Kind: fastpath.Redirect, Connection: directConnection, ToClient: toClient, Nonce: n.redirected,
		Client: netip.MustParseAddr(tunnelA), Server: netip.MustParseAddr(tunnelB), Expires: n.now.Add(fastpath.Lifetime),
	}
}

// redirect is what a mux does; the lost ones are not sent.
func (n *network) redirect(toA, toB bool) {
	if toA {
		n.deliver(muxSource, netip.MustParseAddr(tunnelA), fastpath.Seal(n.message(true), testKeys()[0]), true)
	}
	if toB {
		n.deliver(muxSource, netip.MustParseAddr(tunnelB), fastpath.Seal(n.message(false), testKeys()[0]), true)
	}
}

func (n *network) check(a, b agentfastpath.State) {
	n.t.Helper()
	if n.atA.state() != a || n.atB.state() != b {
		n.t.Errorf("client's end is at %s and server's at %s, want %s and %s", n.atA.state(), n.atB.state(), a, b)
	}
}

func TestBothEndsAgree(t *testing.T) {
	for _, c := range []struct {
		name     string
		toA, toB bool
		atA, atB agentfastpath.State // before the mux tells again
	}{
		{"both redirects", true, true, agentfastpath.Send, agentfastpath.Send},
		{"one is lost", true, false, agentfastpath.Accept, agentfastpath.None},
		{"the other is lost", false, true, agentfastpath.None, agentfastpath.Accept},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t)
			n.redirect(c.toA, c.toB)
			n.settle()
			n.check(c.atA, c.atB)
			n.redirect(!c.toA, !c.toB)
			n.settle()
			n.check(agentfastpath.Send, agentfastpath.Send)
		})
	}
}

// Whatever is lost, nobody sends whose packets the other would not take, and the next redirects mend it.
func TestLostMessagesOnlyDelay(t *testing.T) {
	for lost := range 6 {
		n := newNetwork(t)
		n.lost = lost
		for range 4 {
			n.redirect(true, true)
			n.settle()
			if n.atA.state() == agentfastpath.Send && n.atB.state() == agentfastpath.None || n.atB.state() == agentfastpath.Send && n.atA.state() == agentfastpath.None {
				t.Errorf("%d lost: one sends to one that does not take it", lost)
			}
		}
		n.check(agentfastpath.Send, agentfastpath.Send)
	}
}

func TestARedirectForWhatHasEndedDoesNothing(t *testing.T) {
	n := newNetwork(t)
	n.atB.established = false
	n.redirect(true, true)
	n.settle()
	n.check(agentfastpath.Accept, agentfastpath.None) // and so the client's end goes on by the muxes
}

func TestRefusedMessagesChangeNothing(t *testing.T) {
	n := newNetwork(t)
	good := n.message(false)
	sealed := func(change func(*fastpath.Message)) []byte {
		m := n.message(false)
		change(&m)
		return fastpath.Seal(m, testKeys()[0])
	}
	forged := fastpath.Seal(good, testKeys()[0])
	forged[100] ^= 1
	to := netip.MustParseAddr(tunnelB)
	for _, c := range []struct {
		result  string
		message []byte
		mux     bool
	}{
		{"forged", forged, true},
		{"malformed", forged[1:], true},
		{"key", fastpath.Seal(good, model.FastpathKey{ID: 9}), true},
		{"wrong_source", fastpath.Seal(good, testKeys()[0]), false},
		{"wrong_source", sealed(func(m *fastpath.Message) { m.ToClient = true }), true},
		{"expired", sealed(func(m *fastpath.Message) { m.Expires = n.now.Add(-time.Minute) }), true},
		{"unknown", sealed(func(m *fastpath.Message) { m.Connection.Client = netip.MustParseAddrPort("203.0.113.20:1025") }), true},
		{"wrong_source", sealed(func(m *fastpath.Message) { m.Kind = fastpath.Gone }), false},
	} {
		before, _ := n.b.told()
		n.b.handleControl(agentfastpath.ControlMessage{Source: netip.MustParseAddr(muxSource), Destination: to, FromMux: c.mux, Message: c.message})
		after, _ := n.b.told()
		for result, count := range after {
			if want := before[result] + map[bool]uint64{true: 1}[result == c.result]; count != want {
				t.Errorf("%s: %s is counted %d times, want %d", c.result, result, count, want)
			}
		}
		n.check(agentfastpath.None, agentfastpath.None)
	}
	if len(n.wire) != 0 {
		t.Errorf("refused messages were answered: %v", n.wire)
	}
}

// Who hears a good message can send it again: nothing comes of it.
func TestReplaysChangeNothing(t *testing.T) {
	n := newNetwork(t)
	n.redirect(true, true)
	all := n.settle()
	n.atA.row, n.atB.row = nil, nil
	for _, c := range all {
		n.at(c.Destination).handleControl(c)
	}
	n.settle()
	n.check(agentfastpath.None, agentfastpath.None)
	a, _ := n.a.told()
	b, _ := n.b.told()
	if replayed := a["replayed"] + b["replayed"]; replayed != uint64(len(all)) {
		t.Errorf("%d of %d replays were counted", replayed, len(all))
	}
}

// What an endpoint's lists forbid comes back to the muxes, which drop it, and does not leave again.
func TestListsBringBack(t *testing.T) {
	server, client := directConnection.Server, directConnection.Client.Addr()
	served := func(stay ...netip.Prefix) []model.HostBackend {
		return []model.HostBackend{{
			Endpoint: model.EndpointKey{VIP: server.Addr(), Protocol: model.TCP, Port: server.Port()}, Tunnel: netip.MustParseAddr(tunnelB), Fastpath: true,
			Leave: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, Stay: stay,
		}}
	}
	n := newNetwork(t)
	n.b.SetServed(served())
	n.redirect(true, true)
	n.settle()
	n.sweep(n.a, n.b)
	n.check(agentfastpath.Send, agentfastpath.Send)
	n.b.SetServed(served(netip.PrefixFrom(client, 32)))
	n.sweep(n.a, n.b)
	n.check(agentfastpath.Send, agentfastpath.None)
	n.b.handleControl(agentfastpath.ControlMessage{Source: netip.MustParseAddr(tunnelA), Destination: netip.MustParseAddr(tunnelB), Stray: directConnection})
	n.settle()
	n.check(agentfastpath.None, agentfastpath.None)
	n.redirect(true, true) // by a mux that has not heard of it
	n.settle()
	n.check(agentfastpath.Accept, agentfastpath.None)
	if counts, _ := n.b.told(); counts["forbidden"] < 2 {
		t.Errorf("counted are %v", counts)
	}
	n.b.SetServed(served())
	n.redirect(true, true)
	n.settle()
	n.check(agentfastpath.Send, agentfastpath.Send)
}

// A list that became too long for hosts to be told has no connection leave, as if the VIP had no fastpath: those that
// have left come back.
func TestListsTooLongBringBack(t *testing.T) {
	n := newNetwork(t)
	server := directConnection.Server
	served := []model.HostBackend{{
		Endpoint: model.EndpointKey{VIP: server.Addr(), Protocol: model.TCP, Port: server.Port()}, Tunnel: netip.MustParseAddr(tunnelB), Fastpath: true,
		Leave: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")},
	}}
	n.b.SetServed(served)
	n.redirect(true, true)
	n.settle()
	n.check(agentfastpath.Send, agentfastpath.Send)
	stays := served[0]
	stays.Fastpath, stays.Leave, n.atB.forbidden = false, nil, true
	n.b.SetServed([]model.HostBackend{stays})
	n.sweep(n.a, n.b)
	n.settle()
	n.check(agentfastpath.None, agentfastpath.None)
	n.redirect(false, true) // by a mux that has not heard of it
	n.settle()
	n.check(agentfastpath.None, agentfastpath.None)
	n.b.SetServed(served)
	n.atB.forbidden = false
	n.redirect(true, true)
	n.settle()
	n.check(agentfastpath.Send, agentfastpath.Send)
}

// A backend that is not on its host any more, for it has moved: the client's end hears of it before it sends anything.
func TestABackendThatLeavesBringsBack(t *testing.T) {
	n := newNetwork(t)
	server := directConnection.Server
	n.b.SetServed([]model.HostBackend{{
		Endpoint: model.EndpointKey{VIP: server.Addr(), Protocol: model.TCP, Port: server.Port()}, Tunnel: netip.MustParseAddr(tunnelB), Fastpath: true,
		Leave: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")},
	}})
	n.redirect(true, true)
	n.settle()
	n.sweep(n.a, n.b)
	n.settle()
	n.check(agentfastpath.Send, agentfastpath.Send)
	n.b.SetServed(nil)
	n.atB.established = false // for its rule is gone
	n.sweep(n.b)
	n.settle()
	n.check(agentfastpath.None, agentfastpath.None)
	a, _ := n.a.told()
	b, _ := n.b.told()
	if a["gone"] != 1 || b["left"] != 1 || b["ended"] != 1 {
		t.Errorf("counted are %v and %v", a, b)
	}
}

func TestAStrayPacketBringsItsConnectionBack(t *testing.T) {
	n := newNetwork(t)
	n.redirect(true, true)
	n.settle()
	n.atB.row = nil // the server's host has forgotten
	n.b.handleControl(agentfastpath.ControlMessage{
		Source: netip.MustParseAddr(tunnelA), Destination: netip.MustParseAddr(tunnelB), Stray: directConnection,
	})
	n.settle()
	n.check(agentfastpath.None, agentfastpath.None)

	// The other way round: the packet's sender is the server.
	n = newNetwork(t)
	n.redirect(true, true)
	n.settle()
	n.atA.row = nil
	back := directConnection
	back.Client, back.Server = back.Server, back.Client
	n.a.handleControl(agentfastpath.ControlMessage{Source: netip.MustParseAddr(tunnelB), Destination: netip.MustParseAddr(tunnelA), Stray: back})
	n.settle()
	n.check(agentfastpath.None, agentfastpath.None)
}

// Strays with forged sources have the host answer others: so many in a second, and no more.
func TestStraysAreAnsweredInMeasure(t *testing.T) {
	n := newNetwork(t)
	n.redirect(true, true)
	n.settle()
	stray := agentfastpath.ControlMessage{Source: netip.MustParseAddr(tunnelA), Destination: netip.MustParseAddr(tunnelB), Stray: directConnection}
	for range straysPerSecond + 100 {
		n.b.handleControl(stray)
	}
	if b, _ := n.b.told(); b["stray"] != straysPerSecond || b["stray_unanswered"] != 100 {
		t.Errorf("counted are %v", b)
	}
	n.now = n.now.Add(time.Second)
	n.b.handleControl(stray)
	if b, _ := n.b.told(); b["stray"] != straysPerSecond+1 {
		t.Errorf("a second later counted are %v", b)
	}
}

func TestSilenceBringsBack(t *testing.T) {
	n := newNetwork(t)
	n.redirect(true, true)
	n.settle()
	n.sendsInVain()
	n.check(agentfastpath.None, agentfastpath.Send)
	n.redirect(true, false)
	n.settle()
	n.check(agentfastpath.None, agentfastpath.Send) // it stays with the muxes for a while
	n.now = n.now.Add(barTime)
	n.redirect(true, false)
	n.settle()
	n.check(agentfastpath.Send, agentfastpath.Send)
	n.sendsInVain()
	if b := n.a.barred[directConnection]; b.wait != 2*barTime {
		t.Errorf("the second time it stays for %s", b.wait)
	}
}

// sendsInVain lets the client's end send, and hear nothing, for as long as it takes to come back.
func (n *network) sendsInVain() {
	n.t.Helper()
	row := n.atA.row
	row.Sent = row.Heard + time.Hour // it was idle for so long
	n.sweep(n.a)
	n.now = n.now.Add(silence - time.Millisecond)
	row.Sent += silence
	n.sweep(n.a)
	if n.atA.row == nil {
		n.t.Fatal("it came back too early")
	}
	n.now = n.now.Add(time.Millisecond)
	n.sweep(n.a)
}

func (n *network) sweep(all ...*Controller) {
	n.t.Helper()
	for _, d := range all {
		if err := d.sweep(); err != nil {
			n.t.Fatal(err)
		}
	}
}

// An end that was idle and sends again, or whose last packet needs no answer, is none that waits in vain.
func TestIdleIsNotSilence(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(row *agentfastpath.Entry)
	}{
		{"the last packet needs no answer", func(*agentfastpath.Entry) {}},
		{"the answer comes", func(row *agentfastpath.Entry) { row.Heard = row.Sent + time.Millisecond; row.Sent += time.Second }},
	} {
		n := newNetwork(t)
		n.redirect(true, true)
		n.settle()
		n.atA.row.Sent = n.atA.row.Heard + time.Minute
		n.sweep(n.a)
		c.after(n.atA.row)
		for range 3 {
			n.now = n.now.Add(silence)
			n.sweep(n.a)
		}
		n.check(agentfastpath.Send, agentfastpath.Send)
		if len(n.a.barred) > 0 {
			t.Errorf("%s: it is barred", c.name)
		}
	}
}

// The client's end sends past the muxes, so no mux sees a packet of its and tells again; the server's end did
// not hear that it may.
func TestALostWordIsAskedForAgain(t *testing.T) {
	n := newNetwork(t)
	n.redirect(true, true)
	n.settle()
	n.atB.row.State = agentfastpath.Accept
	n.sweep(n.b)
	n.settle()
	n.check(agentfastpath.Send, agentfastpath.Accept) // nothing has come, so perhaps there is nothing to say
	n.atB.row.Heard = n.atB.row.Sent + time.Millisecond
	n.lost = 1
	n.sweep(n.b)
	n.settle()
	n.check(agentfastpath.Send, agentfastpath.Accept)
	n.sweep(n.b)
	n.settle()
	n.check(agentfastpath.Send, agentfastpath.Send)
}

func TestWhatHasEndedIsSwept(t *testing.T) {
	n := newNetwork(t)
	n.redirect(true, true)
	n.settle()
	n.atA.established = false
	n.atB.row.State, n.atB.row.Heard = agentfastpath.Accept, session.Now()-acceptTime-time.Second
	n.sweep(n.a, n.b)
	n.check(agentfastpath.None, agentfastpath.None)
}
