package mux

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/acl"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// refuse gives all endpoints of the world these lists.
func refuse(allow, deny []netip.Prefix) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		for _, e := range world() {
			e.Allow, e.Deny = of(allow, e.Key.VIP), of(deny, e.Key.VIP)
			apply(t, d, e)
		}
	}
}

// of are the prefixes of the VIP's family.
func of(list []netip.Prefix, vip netip.Addr) (own []netip.Prefix) {
	for _, p := range list {
		if p.Addr().Is4() == vip.Is4() {
			own = append(own, p)
		}
	}
	return own
}

func sourceCases() []packetCase {
	syn4, syn6 := pkt.TCP(client4, vip4, pkt.SYN), pkt.TCP(client6, vip6, pkt.SYN)
	client, others := prefixes("198.51.100.7/32", "2001:db8::7/128"), prefixes("198.51.100.8/29", "2001:db8::8/125")
	wide, all := prefixes("198.51.0.0/16", "2001:db8::/32"), prefixes("0.0.0.0/0", "::/0")
	remembered := func(change func(*testing.T, *Datapath)) func(*testing.T, *Datapath) {
		return func(t *testing.T, d *Datapath) {
			remember(t, d)
			change(t, d)
		}
	}
	drop, pass := "drop_acl", "forward_syn"
	cases := []packetCase{
		{name: "denied", packet: syn4, change: refuse(nil, client), verdict: drop},
		{name: "denied, v6", packet: syn6, change: refuse(nil, client), verdict: drop},
		{name: "denied by a prefix around it", packet: syn4, change: refuse(nil, wide), verdict: drop},
		{name: "denied by a prefix around it, v6", packet: syn6, change: refuse(nil, wide), verdict: drop},
		{name: "all denied", packet: syn4, change: refuse(nil, all), verdict: drop},
		{name: "all denied, v6", packet: syn6, change: refuse(nil, all), verdict: drop},
		{name: "not denied", packet: syn4, change: refuse(nil, others), verdict: pass, tunnel: tunnel4},
		{name: "not denied, v6", packet: syn6, change: refuse(nil, others), verdict: pass, tunnel: tunnel6},
		{name: "allowed", packet: syn4, change: refuse(client, others), verdict: pass, tunnel: tunnel4},
		{name: "allowed, v6", packet: syn6, change: refuse(wide, others), verdict: pass, tunnel: tunnel6},
		{name: "not allowed", packet: syn4, change: refuse(others, nil), verdict: drop},
		{name: "not allowed, v6", packet: syn6, change: refuse(others, nil), verdict: drop},
		{name: "allowed and denied", packet: syn4, change: refuse(wide, client), verdict: drop},
		{name: "neither allowed nor denied", packet: syn4, change: refuse(others, others), verdict: drop},
		{name: "neither allowed nor denied, v6", packet: syn6, change: refuse(others, others), verdict: drop},
		{name: "denied of UDP", packet: pkt.UDP(client4, vip4), change: refuse(nil, client), verdict: drop},
		{name: "denied of a known flow", packet: pkt.TCP(client4, vip4, pkt.ACK), change: remembered(refuse(nil, client)), verdict: drop},
		{name: "denied with a cookie", packet: pkt.TCP(client4, vip4, pkt.ACK, pkt.Timestamps(1, 1)), change: refuse(nil, client), verdict: drop},
		{name: "first fragment denied", packet: pkt.UDP(client4, vip4, pkt.Fragment(0, true)), change: refuse(nil, client), verdict: drop},
		{name: "last fragment denied", packet: pkt.UDP(client4, vip4, pkt.Fragment(9, false)), change: func(t *testing.T, d *Datapath) {
			refuse(nil, client)(t, d)
			run(t, d, pkt.UDP(client4, vip4, pkt.Fragment(0, true)).Frame())
		}, verdict: drop},
		{name: "allowed again", packet: syn4, change: func(t *testing.T, d *Datapath) {
			refuse(nil, client)(t, d)
			refuse(nil, nil)(t, d)
		}, verdict: pass, tunnel: tunnel4},
		{name: "another list", packet: syn4, change: func(t *testing.T, d *Datapath) {
			refuse(nil, client)(t, d)
			refuse(nil, others)(t, d)
		}, verdict: pass, tunnel: tunnel4},
	}
	for i, quoted := range []string{vip4, vip6} {
		frame := icmpError(quoted, []string{client4, client6}[i], 48+i*20)
		cases = append(cases, packetCase{
			name: "error about a connection of a source that is denied, to " + quoted, packet: syn4,
			damage: func([]byte) []byte { return frame }, change: refuse(nil, client), verdict: drop,
		})
	}
	return cases
}

// TestListsOfSources fills, shares, replaces and adopts lists, and counts what stays in the table.
func TestListsOfSources(t *testing.T) {
	sizes := testSizes
	sizes.Sources = 8
	d := newFilledOf(t, sizes, world()...)
	rows := func(want int) {
		t.Helper()
		lists, err := acl.ReadLists(d.tables.Sources)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, list := range lists {
			n += len(list.Prefixes)
		}
		if n != want || d.endpoints.Lists.Rows != want {
			t.Fatalf("the table has %d rows, counted as %d, want %d", n, d.endpoints.Lists.Rows, want)
		}
	}
	with := func(deny ...string) model.MuxEndpoint {
		e := newEndpoint(vip4, model.TCP, tunnel4)
		e.Deny = prefixes(deny...)
		return e
	}
	apply(t, d, with("198.51.100.7/32", "198.51.100.0/30", "198.51.100.7/32"))
	rows(2)
	shared := newEndpoint(vip4, model.UDP, tunnel6)
	shared.Allow = prefixes("198.51.100.0/30", "198.51.100.7/32") // in another order
	apply(t, d, shared)
	rows(2)
	apply(t, d, with("10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.1/32", "11.0.0.0/8"))
	rows(7)
	full := with("10.0.0.0/32", "10.0.0.1/32")
	err := d.Apply([]model.MuxEndpoint{full}, nil)
	if err == nil || !strings.Contains(err.Error(), "raise --max-source-prefixes") {
		t.Errorf("a list too many: error %v", err)
	}
	rows(7)
	if action, _ := run(t, d, pkt.TCP("10.1.1.1:7", vip4, pkt.SYN).Frame()); action != xdpDrop {
		t.Errorf("action %d: the list that was there is not in force", action)
	}
	apply(t, d, with())
	rows(2)
	if err := d.Apply(nil, []model.EndpointKey{shared.Key}); err != nil {
		t.Fatal(err)
	}
	rows(0)
	wrong := with("2001:db8::/32")
	if err := d.Apply([]model.MuxEndpoint{wrong}, nil); err == nil {
		t.Error("a prefix of the other family was taken")
	}
}

// TestListsOutliveTheirProcess adopts tables with lists, and rows that a process left that ended halfway.
func TestListsOutliveTheirProcess(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	if err := d.SetSettings(testSettings()); err != nil {
		t.Fatal(err)
	}
	denied := newEndpoint(vip4, model.TCP, tunnel4)
	denied.Deny = prefixes("198.51.100.0/24", "10.0.0.0/8")
	six := newEndpoint(vip6, model.TCP, tunnel6)
	six.Allow, six.Deny = prefixes("2001:db8::/32"), prefixes("2001:db8::7/128")
	if err := d.Replace([]model.MuxEndpoint{denied, six}); err != nil {
		t.Fatal(err)
	}
	if err := acl.Write(d.tables.Sources, 99, prefixes("198.51.100.0/24", "2001:db8::/64")); err != nil {
		t.Fatal(err)
	}
	want := d.endpoints.Live[denied.Key].Lists
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = p.mustOpen(t)
	defer d.Close()
	lists, err := acl.ReadLists(d.tables.Sources)
	if err != nil {
		t.Fatal(err)
	}
	if len(lists) != 3 || lists[99] != nil || d.endpoints.Lists.Rows != 4 {
		t.Errorf("%d lists of %d rows are left: %v", len(lists), d.endpoints.Lists.Rows, lists)
	}
	if got := d.endpoints.Live[denied.Key].Lists; got != want {
		t.Errorf("lists are adopted as %x, want %x", got, want)
	}
	for _, client := range []string{client4, "[2001:db8::7]:1"} {
		to := vip4
		if client != client4 {
			to = vip6
		}
		if action, _ := run(t, d, pkt.TCP(client, to, pkt.SYN).Frame()); action != xdpDrop {
			t.Errorf("action %d for %s after a restart", action, client)
		}
	}
	if err := d.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if d.endpoints.Lists.Rows != 0 || d.endpoints.Lists.CheckEmpty(d.sizes) != nil {
		t.Errorf("%d rows stay when nobody names them: %v", d.endpoints.Lists.Rows, d.endpoints.Lists.CheckEmpty(d.sizes))
	}
}

// TestTwoListsOfTheSameSources adopts tables in which a process that ended halfway left a list twice, each under a
// number of its own that an endpoint names. One stays for both, until neither names it.
func TestTwoListsOfTheSameSources(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	if err := d.SetSettings(testSettings()); err != nil {
		t.Fatal(err)
	}
	tcp, udp := newEndpoint(vip4, model.TCP, tunnel4), newEndpoint(vip4, model.UDP, tunnel4)
	tcp.Deny = prefixes("198.51.100.0/24", "10.0.0.0/8")
	udp.Deny = tcp.Deny
	if err := d.Replace([]model.MuxEndpoint{tcp, udp}); err != nil {
		t.Fatal(err)
	}
	const twin = 99
	if err := acl.Write(d.tables.Sources, twin, tcp.Deny); err != nil {
		t.Fatal(err)
	}
	d.endpoints.Lists.Words[d.endpoints.Live[udp.Key].Row.Id] = acl.Word(0, twin)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	d = p.mustOpen(t)
	defer d.Close()
	drops := func(packet pkt.Packet, what string) {
		t.Helper()
		if action, _ := run(t, d, packet.Frame()); action != xdpDrop {
			t.Errorf("%s: action %d", what, action)
		}
	}
	drops(pkt.TCP(client4, vip4, pkt.SYN), "TCP, adopted")
	drops(pkt.UDP(client4, vip4), "UDP, adopted")
	if lists, err := acl.ReadLists(d.tables.Sources); err != nil || len(lists) != 1 || d.endpoints.Lists.Rows != 2 {
		t.Errorf("lists are %v, of %d rows, %v", lists, d.endpoints.Lists.Rows, err)
	}
	if err := d.Apply(nil, []model.EndpointKey{udp.Key}); err != nil {
		t.Fatal(err)
	}
	drops(pkt.TCP(client4, vip4, pkt.SYN), "TCP, when UDP is gone")
	if err := d.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if d.endpoints.Lists.Rows != 0 || d.endpoints.Lists.CheckEmpty(d.sizes) != nil {
		t.Errorf("%d rows stay when nobody names them: %v", d.endpoints.Lists.Rows, d.endpoints.Lists.CheckEmpty(d.sizes))
	}
}
