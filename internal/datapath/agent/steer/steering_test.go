package steer

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// newTables are the tables of steering alone, with room for so much; the zero Room: for all that a host has.
func newTables(t *testing.T, room steering.Room) *bpf.AgentObjects {
	t.Helper()
	spec, err := bpf.LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	clear(spec.Programs)
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool {
		return !strings.HasPrefix(name, "steer_") && !strings.HasPrefix(name, ".") && name != "tunnels"
	})
	if room != (steering.Room{}) {
		for name, n := range map[string]int{
			"steer_endpoints": room.Endpoints, "steer_buckets": room.Buckets, "steer_backends": room.Backends, "steer_sources": room.Sources,
		} {
			spec.Maps[name].MaxEntries = uint32(n)
		}
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	o := &bpf.AgentObjects{}
	o.SteerEndpoints, o.SteerBuckets, o.SteerBackends = c.Maps["steer_endpoints"], c.Maps["steer_buckets"], c.Maps["steer_backends"]
	o.SteerSources, o.SteerLocals, o.Tunnels = c.Maps["steer_sources"], c.Maps["steer_locals"], c.Maps["tunnels"]
	o.Settings = c.Variables["settings"]
	return o
}

// A host has the room that managers reckon with.
func TestHostsHaveTheirRoom(t *testing.T) {
	o := newTables(t, steering.Room{})
	s := New(o, &sync.Mutex{})
	want := steering.HostRoom()
	want.Sources *= 2 // of each VIP, and of all
	if got := s.room(); got != want || o.SteerLocals.MaxEntries() != uint32(want.Endpoints) {
		t.Errorf("has room for %+v, want %+v", got, want)
	}
	if steering.BucketsPerRow != len(bpf.AgentSteerBucketRow{}.Buckets) {
		t.Error("rows have another size")
	}
}

func address(of byte, i int) netip.Addr { return netip.AddrFrom4([4]byte{10, of, 0, byte(i)}) }

func drawVIP(t *rapid.T, at netip.Addr) steering.VIP {
	sources := func(label string, of byte, most int) []netip.Addr {
		all := []netip.Addr{}
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(1, most), 0, most, rapid.ID).Draw(t, label) {
			all = append(all, address(of, i))
		}
		slices.SortFunc(all, netip.Addr.Compare)
		return all
	}
	vip := steering.VIP{
		Address: at, Switches: sources("switches", 1, 3), Peers: append(sources("also switches", 1, 1), sources("hosts", 2, 4)...),
		Ping: rapid.Bool().Draw(t, "ping"), ByHost: rapid.Bool().Draw(t, "by host"),
	}
	keys := []model.EndpointKey{steering.Ports(at), {VIP: at, Protocol: model.TCP, Port: 80}, {VIP: at, Protocol: model.UDP, Port: 53}}
	for _, key := range keys {
		if !rapid.Bool().Draw(t, "has") {
			continue
		}
		e := steering.Endpoint{Key: key, Cookies: model.CookiesOff, Buckets: make([]model.Slot, rapid.SampledFrom([]int{0, 1, 64, 128}).Draw(t, "buckets"))}
		for i := range e.Buckets {
			e.Buckets[i] = model.Slot(rapid.IntRange(0, 3).Draw(t, "slot") * (i / 32 % 2))
		}
		for slot := range rapid.IntRange(0, 3).Draw(t, "backends") {
			e.Backends = append(e.Backends, steering.Backend{Slot: model.Slot(slot + 1), Tunnel: address(2, rapid.IntRange(1, 4).Draw(t, "tunnel")), Down: rapid.Bool().Draw(t, "down")})
		}
		vip.Endpoints = append(vip.Endpoints, e)
	}
	return vip
}

// follower is a process, or one after the other, that has the tables follow what is wanted.
type follower struct {
	*Steering
	room    steering.Room
	wanted  map[netip.Addr]steering.VIP
	held    map[netip.Addr]steering.VIP
	tunnels map[bpf.AgentAddress]uint8
}

// restart has a new process told what the one before had.
func (f *follower) restart(t *rapid.T) {
	f.Steering = New(f.objects, &sync.Mutex{})
	if err := errors.Join(f.Read(), f.Steer(slices.Collect(maps.Values(f.held)))); err != nil {
		t.Fatalf("what was held is refused: %v", err)
	}
}

// need is what the VIPs that are wanted need in all.
func (f *follower) need() (need steering.Room) {
	sources := map[netip.Addr]bool{}
	for _, vip := range f.wanted {
		need = need.Plus(vip.Room())
		for source := range vip.Sources() {
			sources[source] = true
		}
	}
	need.Sources += len(sources)
	return need
}

// follow steers what is wanted, and looks at all tables.
func (f *follower) follow(t *rapid.T) {
	err, lacks := f.Steer(slices.Collect(maps.Values(f.wanted))), f.room.Lacks(f.need())
	if (lacks == nil) != (err == nil) {
		t.Fatalf("%v: refused with %v", lacks, err)
	}
	var refused *steering.RefusedError
	if err != nil && !errors.As(err, &refused) {
		t.Fatal(err)
	}
	for address, vip := range f.wanted {
		was, had := f.held[address]
		is, has := f.has.vips[address]
		follows := has && is.Equal(vip)
		named := refused != nil && slices.ContainsFunc(refused.VIPs, func(r steering.Refusal) bool { return r.VIP == address })
		if named == follows {
			t.Fatalf("%s follows: %t, refused: %t: %v", address, follows, named, err)
		}
		if !follows && (err == nil || had != has || !is.Equal(was)) {
			t.Fatalf("%s was %+v, is to be %+v, and is %+v: %v", address, was, vip, is, err)
		}
	}
	f.held = maps.Clone(f.has.vips)
	got, err := f.read()
	if err != nil {
		t.Fatal(err)
	}
	want := f.wants()
	if !maps.Equal(got.sources, want.sources) || !maps.Equal(got.endpoints, want.endpoints) || !maps.Equal(got.buckets, want.buckets) ||
		!maps.Equal(got.backends, want.backends) || !maps.Equal(got.locals, want.locals) {
		t.Fatalf("of %+v the tables have\n%+v, want\n%+v", f.held, got, want)
	}
}

// wants are the rows that the tables are to have of what they hold.
func (f *follower) wants() rows {
	r := newRows()
	r.addVIPs(maps.Values(f.held), f.numbers, func(tunnel netip.Addr) bool { return f.tunnels[bpf.ToAddress(tunnel)] != 0 })
	for key, role := range maps.Clone(r.sources) {
		if role == uint32(bpf.AgentSteerRoleSTEER_SWITCH_BY_HOST) { // that depends on the VIP
			role = uint32(bpf.AgentSteerRoleSTEER_SWITCH)
		}
		if key.Vip = (bpf.AgentAddress{}); r.sources[key] != uint32(bpf.AgentSteerRoleSTEER_SWITCH) {
			r.sources[key] = role
		}
	}
	return r
}

// However VIPs change and processes restart: the tables hold what they would if they were filled anew, and of VIPs that do
// not fit what they held before. None is refused without need.
func TestTablesFollow(t *testing.T) {
	room := steering.Room{Endpoints: 7, Buckets: 9, Backends: 12, Sources: 24}
	o := newTables(t, room)
	rapid.Check(t, func(t *rapid.T) {
		f := &follower{New(o, &sync.Mutex{}), room, map[netip.Addr]steering.VIP{}, map[netip.Addr]steering.VIP{}, map[bpf.AgentAddress]uint8{}}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				at := address(0, rapid.IntRange(1, 4).Draw(t, "vip"))
				if f.wanted[at] = drawVIP(t, at); rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
					delete(f.wanted, at)
				}
			},
			"steer": f.follow,
			"tunnel": func(t *rapid.T) {
				at := bpf.ToAddress(address(2, rapid.IntRange(1, 4).Draw(t, "tunnel")))
				if f.tunnels[at] ^= 1; f.tunnels[at] == 1 {
					_ = o.Tunnels.Put(at, uint8(1))
				} else {
					_ = o.Tunnels.Delete(at)
				}
			},
			"restart": f.restart,
		})
		f.follow(t)
		clear(f.wanted)
		f.follow(t)
		for at := range f.tunnels {
			_ = o.Tunnels.Delete(at)
		}
	})
}

// A host holds ports of source NAT of more VIPs than it could if each took all of its rows.
func TestPortsTakeTheirRows(t *testing.T) {
	o := newTables(t, steering.Room{Endpoints: 1000, Buckets: 1000, Backends: 1000, Sources: 1000})
	s := New(o, &sync.Mutex{})
	var vips []steering.VIP
	for i := range 500 {
		at := netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
		e := steering.Endpoint{Key: steering.Ports(at), Buckets: make([]model.Slot, 8192), Cookies: model.CookiesOff, Backends: []steering.Backend{{Slot: 128, Tunnel: address(2, 1)}}}
		e.Buckets[128], e.Buckets[4000] = 128, 128
		vips = append(vips, steering.VIP{Address: at, Endpoints: []steering.Endpoint{e}})
	}
	if err := s.Steer(vips); err != nil {
		t.Fatal(err)
	}
}

// A slot of source NAT that is another workload's from now on is told under another number: no answer goes to the one before
// by a new row, or to the new one by an old row.
func TestWorkloadsDoNotShareASlot(t *testing.T) {
	o := newTables(t, steering.Room{})
	at := netip.MustParseAddr("203.0.113.1")
	vip := func(tunnel int, ranges ...int) []steering.VIP {
		e := steering.Endpoint{Key: steering.Ports(at), Buckets: make([]model.Slot, 8192), Cookies: model.CookiesOff, Backends: []steering.Backend{{Slot: 128, Tunnel: address(2, tunnel)}}}
		for _, r := range ranges {
			e.Buckets[r] = 128
		}
		return []steering.VIP{{Address: at, Endpoints: []steering.Endpoint{e}}}
	}
	s := New(o, &sync.Mutex{})
	number := func() uint32 { return s.numbers[steering.Ports(at)] }
	steer := func(vips []steering.VIP) {
		t.Helper()
		if err := s.Steer(vips); err != nil {
			t.Fatal(err)
		}
	}
	steer(vip(1, 128, 200))
	first := number()
	if steer(vip(1, 128, 300)); number() != first {
		t.Error("a workload's other range changes the number")
	}
	if steer(vip(2, 128)); number() == first {
		t.Error("another workload has the number of the one before")
	}
	s, first = New(o, &sync.Mutex{}), number()
	if err := s.Read(); err != nil {
		t.Fatal(err)
	}
	if steer(vip(3, 128)); number() == first {
		t.Error("of another process: another workload has the number of the one before")
	}
}
