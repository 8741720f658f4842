package mux

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/acl"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// named is a prefix list of that name.
func named(name string, texts ...string) model.MuxPrefixList {
	return model.MuxPrefixList{Name: name, Prefixes: model.NewPrefixSet(prefixes(texts...))}
}

// TestNamedLists holds each combination of lists against what the model says of it.
func TestNamedLists(t *testing.T) {
	d := newFilledOf(t, testSizes, world()...)
	lists := []model.MuxPrefixList{
		named("client", "198.51.100.7/32", "2001:db8::7/128"), named("others", "198.51.100.8/29", "2001:db8::8/125"),
		named("wide", "198.51.0.0/16", "2001:db8::/32"), named("none"), named("nobody"),
	}
	sets := map[string]model.PrefixSet{}
	for _, list := range lists {
		sets[list.Name] = list.Prefixes
	}
	update(t, d, endpoint.Update{Lists: lists})
	inline := [][]netip.Prefix{nil, prefixes("198.51.100.7/32", "2001:db8::7/128"), prefixes("192.0.2.0/24", "2001:db8:2::/48")}
	names := [][]string{nil, {"client"}, {"others"}, {"none"}, {"nobody", "none", "others", "wide"}}
	packets := map[string]pkt.Packet{vip4: pkt.TCP(client4, vip4, pkt.SYN), vip6: pkt.TCP(client6, vip6, pkt.SYN)}
	tried := 0
	for _, vip := range []string{vip4, vip6} {
		tunnel, client := tunnel4, netip.MustParseAddrPort(client4).Addr()
		if vip == vip6 {
			tunnel, client = tunnel6, netip.MustParseAddrPort(client6).Addr()
		}
		for _, allow := range inline {
			for _, allowLists := range names {
				for _, deny := range inline {
					for _, denyLists := range names {
						e := newEndpoint(vip, model.TCP, tunnel)
						e.Allow, e.Deny, e.AllowLists, e.DenyLists = of(allow, e.Key.VIP), of(deny, e.Key.VIP), allowLists, denyLists
						apply(t, d, e)
						takes := e.Takes(client, func(name string) model.PrefixSet { return sets[name] })
						if action, _ := run(t, d, packets[vip].Frame()); (action == xdpDrop) == takes {
							t.Errorf("%s allow %v %v deny %v %v: action %d", vip, e.Allow, allowLists, e.Deny, denyLists, action)
						}
						tried++
					}
				}
			}
		}
	}
	if tried != 2*15*15 {
		t.Errorf("%d combinations tried", tried)
	}
	for _, e := range world() {
		apply(t, d, e)
	}
	update(t, d, endpoint.Update{ListsRemoved: []string{"client", "others", "wide", "none", "nobody"}})
	holdNothingLeft(t, d)
}

// holdNothingLeft holds that no list has left anything.
func holdNothingLeft(t *testing.T, d *Datapath) {
	t.Helper()
	lists, err := acl.ReadLists(d.tables.Sources)
	if err = errors.Join(err, d.endpoints.Lists.CheckEmpty(d.sizes)); err != nil || len(lists) > 0 {
		t.Errorf("left are lists %v, %v", lists, err)
	}
	var id uint32
	var name bpf.MuxSourceName
	if d.tables.SourceNames.Iterate().Next(&id, &name) {
		t.Errorf("list %d still has the name %s", id, acl.Name(name))
	}
}

// TestNamedListsChangeInPlace adds and removes prefixes of a list that two endpoints name, and counts rows.
func TestNamedListsChangeInPlace(t *testing.T) {
	sizes := testSizes
	sizes.Sources = 6
	d := newFilledOf(t, sizes, world()...)
	tcp, udp := newEndpoint(vip4, model.TCP, tunnel4), newEndpoint(vip4, model.UDP, tunnel4)
	tcp.DenyLists, udp.DenyLists = []string{"blocked"}, []string{"blocked"}
	update(t, d, endpoint.Update{Endpoints: []model.MuxEndpoint{tcp, udp}, Lists: []model.MuxPrefixList{named("blocked", "10.0.0.0/8", "2001:db8::/32")}})
	number := d.endpoints.Lists.Named["blocked"].ID
	holds := func(what string, rows int, wantTCP, wantUDP uint32) {
		t.Helper()
		if d.endpoints.Lists.Rows != rows {
			t.Errorf("%s: %d rows, want %d", what, d.endpoints.Lists.Rows, rows)
		}
		if n, room := d.PrefixList("blocked").Len(), d.FreeSourceRows(); n != rows || room != 6-rows {
			t.Errorf("%s: the list is said to have %d prefixes, and %d to have room, want %d and %d", what, n, room, rows, 6-rows)
		}
		if lists, err := acl.ReadLists(d.tables.Sources); err != nil || len(lists[number].Prefixes) != rows {
			t.Errorf("%s: the table has %v, %v, want %d", what, lists, err, rows)
		}
		gotTCP, _ := run(t, d, pkt.TCP(client4, vip4, pkt.SYN).Frame())
		gotUDP, _ := run(t, d, pkt.UDP(client4, vip4).Frame())
		if gotTCP != wantTCP || gotUDP != wantUDP {
			t.Errorf("%s: actions %d and %d, want %d and %d", what, gotTCP, gotUDP, wantTCP, wantUDP)
		}
	}
	holds("at first", 2, xdpTX, xdpTX)
	update(t, d, endpoint.Update{Lists: []model.MuxPrefixList{named("blocked", "10.0.0.0/8", "2001:db8::/32", "198.51.100.7/32")}})
	holds("with the client", 3, xdpDrop, xdpDrop)
	update(t, d, endpoint.Update{Lists: []model.MuxPrefixList{named("blocked", "198.51.100.0/24", "198.51.100.7/32")}})
	holds("with what is around it", 2, xdpDrop, xdpDrop)
	full := named("blocked", "1.0.0.0/8", "2.0.0.0/8", "3.0.0.0/8", "4.0.0.0/8", "5.0.0.0/8")
	if err := d.Update(endpoint.Update{Lists: []model.MuxPrefixList{full}}); err == nil || !strings.Contains(err.Error(), "raise --max-source-prefixes") {
		t.Errorf("a list that is too long: %v", err)
	}
	holds("after one that is too long", 2, xdpDrop, xdpDrop)
	unknown := newEndpoint(vip4, model.UDP, tunnel4)
	unknown.DenyLists = []string{"unknown"}
	err := d.Update(endpoint.Update{Endpoints: []model.MuxEndpoint{unknown}, Lists: []model.MuxPrefixList{named("blocked", "5.0.0.0/8")}})
	if err == nil || !strings.Contains(err.Error(), "prefix list unknown is not here") {
		t.Errorf("a list that did not come: %v", err)
	}
	holds("after an update that was refused", 2, xdpDrop, xdpDrop)
	update(t, d, endpoint.Update{Lists: []model.MuxPrefixList{named("blocked")}})
	if d.endpoints.Lists.Rows != 0 || d.endpoints.Lists.Named["blocked"].ID != number {
		t.Errorf("%d rows of an empty list, number %d, was %d", d.endpoints.Lists.Rows, d.endpoints.Lists.Named["blocked"].ID, number)
	}
	update(t, d, endpoint.Update{Snapshot: true})
	holdNothingLeft(t, d)
}

// TestNamedListsStayWhileEndpointsHaveThem takes a list away before the endpoint that names it.
func TestNamedListsStayWhileEndpointsHaveThem(t *testing.T) {
	d := newFilledOf(t, testSizes, world()...)
	tcp := newEndpoint(vip4, model.TCP, tunnel4)
	tcp.DenyLists = []string{"blocked"}
	update(t, d, endpoint.Update{Endpoints: []model.MuxEndpoint{tcp}, Lists: []model.MuxPrefixList{named("blocked", "198.51.100.7/32")}})
	syn := pkt.TCP(client4, vip4, pkt.SYN).Frame()
	update(t, d, endpoint.Update{ListsRemoved: []string{"blocked"}})
	if action, _ := run(t, d, syn); action != xdpDrop {
		t.Errorf("action %d for a listed source, whose list is to go and is named still", action)
	}
	tcp.DenyLists = nil
	update(t, d, endpoint.Update{Endpoints: []model.MuxEndpoint{tcp}})
	if action, _ := run(t, d, syn); action != xdpTX {
		t.Errorf("action %d without the list", action)
	}
	holdNothingLeft(t, d)
}

// refusals is how many packets lists have kept out.
func refusals(t *testing.T, d *Datapath) uint64 {
	t.Helper()
	verdicts, err := d.Verdicts()
	if err != nil {
		t.Fatal(err)
	}
	return verdicts["drop_acl"].Packets
}

// TestNamedListsOutliveTheirProcess adopts tables with named lists, of which one was being changed when its process
// ended. What is as it was is not written again.
func TestNamedListsOutliveTheirProcess(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	if err := d.SetSettings(testSettings()); err != nil {
		t.Fatal(err)
	}
	denied, six := newEndpoint(vip4, model.TCP, tunnel4), newEndpoint(vip6, model.TCP, tunnel6)
	denied.Deny, denied.DenyLists = prefixes("192.0.2.0/24"), []string{"bad", "worse"}
	six.AllowLists, six.DenyLists = []string{"good"}, []string{"bad"}
	u := endpoint.Update{Snapshot: true, Endpoints: []model.MuxEndpoint{denied, six}, Lists: []model.MuxPrefixList{
		named("bad", "198.51.100.0/24", "2001:db8::7/128"), named("worse", "10.0.0.0/8"), named("good", "2001:db8::/32"),
	}}
	update(t, d, u)
	numbers := map[string]uint32{}
	for name, list := range d.endpoints.Lists.Named {
		numbers[name] = list.ID
	}
	if err := acl.Write(d.tables.Sources, numbers["worse"], prefixes("11.0.0.0/8")); err != nil { // and then it ended
		t.Fatal(err)
	}
	word := d.endpoints.Lists.Words[d.endpoints.Live[denied.Key].Row.Id]
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = p.mustOpen(t)
	defer d.Close()
	drops := func(what string) {
		t.Helper()
		for _, c := range []struct {
			client, vip string
			refused     uint64
		}{{client4, vip4, 1}, {"[2001:db8::7]:1", vip6, 1}, {"192.0.2.1:1", vip4, 1}, {"10.1.1.1:1", vip4, 1}, {"[2001:db8::8]:1", vip6, 0}} {
			before := refusals(t, d)
			run(t, d, pkt.TCP(c.client, c.vip, pkt.SYN).Frame())
			if n := refusals(t, d) - before; n != c.refused {
				t.Errorf("%s: %d packets of %s are refused, want %d", what, n, c.client, c.refused)
			}
		}
	}
	drops("adopted")
	plan, err := d.endpoints.Changes(u.Endpoints)
	if err != nil || plan != 0 {
		t.Errorf("%d endpoints would be written again: %v", plan, err)
	}
	update(t, d, u)
	drops("told again")
	if got := d.endpoints.Lists.Words[d.endpoints.Live[denied.Key].Row.Id]; got != word {
		t.Errorf("the lists have other numbers: %x, were %x", got, word)
	}
	for name, list := range d.endpoints.Lists.Named {
		rows, err := acl.ReadLists(d.tables.Sources)
		if want := slices.Collect(list.Prefixes.All()); err != nil || list.ID != numbers[name] || len(rows[list.ID].Prefixes) != len(want) {
			t.Errorf("list %s is number %d, was %d, and has %v in the table, want %v", name, list.ID, numbers[name], rows[list.ID].Prefixes, want)
		}
	}
	update(t, d, endpoint.Update{Snapshot: true})
	holdNothingLeft(t, d)
}

// TestNoMomentWithoutAList writes the same sources in other prefixes, again and again, while packets come.
func TestNoMomentWithoutAList(t *testing.T) {
	d := newFilledOf(t, testSizes, world()...)
	allowed, denied := newEndpoint(vip4, model.TCP, tunnel4), newEndpoint(vip6, model.TCP, tunnel6)
	allowed.AllowLists, denied.DenyLists = []string{"sources"}, []string{"sources"}
	shapes := []model.MuxPrefixList{
		named("sources", "198.51.100.0/24", "2001:db8::/64"),
		named("sources", "198.51.100.0/25", "198.51.100.128/25", "2001:db8::/65", "2001:db8:0:0:8000::/65"),
		named("sources", "198.51.100.7/32", "2001:db8::7/128", "10.0.0.0/8"),
	}
	update(t, d, endpoint.Update{Endpoints: []model.MuxEndpoint{allowed, denied}, Lists: shapes[:1]})
	four, six := pkt.TCP(client4, vip4, pkt.SYN).Frame(), pkt.TCP("[2001:db8::7]:1", vip6, pkt.SYN).Frame()
	done := make(chan error, 1)
	defer func() { <-done }() // before the tables are closed
	go func() {
		defer close(done)
		for i := range 3000 {
			if err := d.Update(endpoint.Update{Lists: shapes[i%3 : i%3+1]}); err != nil {
				done <- err
				return
			}
		}
	}()
	for packets := 0; ; packets++ {
		select {
		case err := <-done:
			if err != nil || packets == 0 {
				t.Errorf("%d packets, %v", packets, err)
			}
			return
		default:
		}
		if action, _ := run(t, d, four); action == xdpDrop {
			t.Fatal("a source was refused that is in each of the lists that may come")
		}
		if action, _ := run(t, d, six); action != xdpDrop {
			t.Fatal("a source was let in that is in each of the lists that may not come")
		}
	}
}
