package forwarding

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/muxd/announce"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/wire"
)

// journal notes what the state does to its parts, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last take.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := strings.Join(j.lines, "\n")
	j.lines = nil
	return text
}

// fakeDatapath holds tables without a kernel.
type fakeDatapath struct {
	*journal
	mu         sync.Mutex
	endpoints  map[model.EndpointKey]model.MuxEndpoint
	settings   pool.Settings
	generation model.Generation
	snat       map[model.SNATKey]model.MuxSNAT
	full       error // of Update
	lists      map[string]model.PrefixSet
	room       int    // for lists
	during     func() // called while Update writes
	tookOver   bool
	fakeOverlay
	fakeNAT
}

func (d *fakeDatapath) Settings() (pool.Settings, error)      { return d.settings, nil }
func (d *fakeDatapath) Generation() (model.Generation, error) { return d.generation, nil }

func (d *fakeDatapath) SetSettings(p pool.Settings) error {
	d.note("settings key %x, sources %s %s, mtu %d", p.HashKey[0], p.Source4, p.Source6, p.MTU)
	d.settings = p
	return nil
}

func (d *fakeDatapath) SetPoolMembers(string, []model.PoolMember) error { return nil }

func (d *fakeDatapath) SetMuxes(int) error { return nil }

func (d *fakeDatapath) SetGeneration(g model.Generation) error {
	d.note("generation %d", g)
	d.generation = g
	return nil
}

func (d *fakeDatapath) Update(u endpoint.Update) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if u.Snapshot {
		d.note("replace by %d", len(u.Endpoints))
	} else {
		d.note("apply +%d -%d", len(u.Endpoints), len(u.Removed))
	}
	if len(u.SNAT)+len(u.SNATRemoved) > 0 {
		d.note("workloads +%d -%d", len(u.SNAT), len(u.SNATRemoved))
	}
	if d.during != nil {
		d.during()
	}
	if d.full != nil {
		return d.full
	}
	if u.Snapshot {
		clear(d.endpoints)
		clear(d.lists)
		d.snat = nil
	}
	for _, list := range u.Lists {
		d.note("list %s has %d", list.Name, list.Prefixes.Len())
		d.lists[list.Name] = list.Prefixes
	}
	for _, name := range u.ListsRemoved {
		d.note("list %s goes", name)
		delete(d.lists, name)
	}
	for _, key := range u.Removed {
		delete(d.endpoints, key)
	}
	for _, e := range u.Endpoints {
		d.endpoints[e.Key] = e
	}
	if d.snat == nil {
		d.snat = map[model.SNATKey]model.MuxSNAT{}
	}
	for _, key := range u.SNATRemoved {
		delete(d.snat, key)
	}
	for _, s := range u.SNAT {
		d.snat[s.Key] = s
	}
	return nil
}

func (d *fakeDatapath) PrefixList(name string) model.PrefixSet {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lists[name]
}

func (d *fakeDatapath) FreeSourceRows() int { return d.room }

func (d *fakeDatapath) VIPs() ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	vips := map[netip.Addr]bool{}
	for key := range d.endpoints {
		vips[key.VIP] = true
	}
	for key := range d.snat {
		vips[key.VIP] = true
	}
	return slices.SortedFunc(maps.Keys(vips), netip.Addr.Compare), nil
}

func (d *fakeDatapath) SNATDigest() (ranges int, digest uint64) { return 2, 7 }

func (d *fakeDatapath) Endpoints() ([]model.EndpointKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Keys(d.endpoints), model.EndpointKey.Compare), nil
}

func (d *fakeDatapath) Tunnels() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	tunnels := map[netip.Addr]bool{}
	for _, e := range d.endpoints {
		for _, b := range e.Backends {
			tunnels[b.Tunnel] = true
		}
	}
	return slices.SortedFunc(maps.Keys(tunnels), netip.Addr.Compare)
}

func (d *fakeDatapath) SetNextHops(hops map[netip.Addr]model.NextHop) error {
	d.note("next hops of %v", slices.SortedFunc(maps.Keys(hops), netip.Addr.Compare))
	return nil
}

func (d *fakeDatapath) TakeOver() error {
	d.tookOver = true
	return nil
}

// fakeSpeaker notes what is announced, when it changes.
type fakeSpeaker struct {
	*journal
	announced string
}

func (s *fakeSpeaker) Announce(routes []bgp.Route) error {
	if text := fmt.Sprint(routes); text != s.announced {
		s.announced = text
		s.note("announce %s", text)
	}
	return nil
}

func (s *fakeSpeaker) AnnounceMACs([]bgp.MACRoute) error { return nil }

// bench is a State on fakes.
type bench struct {
	t *testing.T
	*journal
	datapath  *fakeDatapath
	state     *State
	sought    string // destinations of next hops
	discarded string // by the kernel
}

func newBench(t *testing.T, live ...model.MuxEndpoint) *bench {
	t.Helper()
	j := &journal{}
	b := &bench{t: t, journal: j, sought: "[]", datapath: &fakeDatapath{
		journal: j, endpoints: map[model.EndpointKey]model.MuxEndpoint{}, lists: map[string]model.PrefixSet{},
		fakeOverlay: fakeOverlay{notes: j}, fakeNAT: fakeNAT{notes: j},
	}}
	for _, e := range live {
		b.datapath.endpoints[e.Key] = e
		b.datapath.generation = 7
	}
	log := slog.New(slog.DiscardHandler)
	routes := announce.New(announce.Config{
		Speaker: &fakeSpeaker{journal: j, announced: "[]"}, Log: log,
		Discard: func(prefixes []netip.Prefix) error {
			b.discarded = fmt.Sprint(prefixes)
			return nil
		},
	})
	var err error
	b.state, err = New(Config{
		Name: "mux-1", Settings: pool.Settings{Source4: addr("10.7.0.9"), MTU: 1500}, Datapath: b.datapath, Routes: routes, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.state.Start(func(destinations []netip.Addr) {
		if text := fmt.Sprint(destinations); text != b.sought {
			b.sought = text
			b.note("destinations %s", text)
		}
	})
	return b
}

// did checks what was done since the last time, line by line.
func (b *bench) did(want ...string) {
	b.t.Helper()
	if got := b.take(); got != strings.Join(want, "\n") {
		b.t.Errorf("did:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func (b *bench) apply(update wire.MuxUpdate) error {
	return b.state.Apply(b.t.Context(), update)
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// key is TCP 203.0.113.N:80.
func key(n byte) model.EndpointKey {
	return model.EndpointKey{VIP: netip.AddrFrom4([4]byte{203, 0, 113, n}), Protocol: model.TCP, Port: 80}
}

// endpoint has one backend per tunnel.
func newEndpoint(k model.EndpointKey, tunnels ...string) model.MuxEndpoint {
	e := model.MuxEndpoint{Key: k}
	for i, tunnel := range tunnels {
		e.Backends = append(e.Backends, model.MuxBackend{Slot: model.Slot(i + 1), Tunnel: addr(tunnel)})
	}
	return e
}

// resolved is a state in which all destinations have a next hop.
func resolved(destinations ...string) netlink.State {
	s := netlink.State{NextHops: map[netip.Addr]model.NextHop{}, Problems: map[netip.Addr]string{}, MTU: 1500}
	for _, d := range destinations {
		s.NextHops[addr(d)] = model.NextHop{Source: [6]byte{2}, Destination: [6]byte{4}}
	}
	return s
}

// snapshot is a whole table of a generation.
func snapshot(generation model.Generation, endpoints ...model.MuxEndpoint) wire.MuxUpdate {
	return wire.MuxUpdate{Generation: generation, Snapshot: true, Endpoints: endpoints, HashKey: [40]byte{0xab}}
}
