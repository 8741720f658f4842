package steer

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// rules are what a run goes by; the zero value is the real ones, each field a control.
type rules struct {
	deliverOnArrival bool // hosts deliver what arrives
	noChaining       bool // a steered packet names no previous backend
	synsStay         bool // SYNs without timestamps stay where they arrive
	movesEndByTime   bool // those of buckets, as of a VIP that muxes alone serve
}

func (r rules) decide(e steering.Endpoint, p Packet, at Arrival) Decision {
	d := Decide(e, p, at)
	switch {
	case r.deliverOnArrival, r.synsStay && p.SYN && at.TakesNew:
		return Decision{Slot: at.Own}
	case r.noChaining:
		d.Previous = 0
	}
	return d
}

// class is a kind of connection.
type class int

const (
	timestamps class = iota // TCP
	plainTCP                // without timestamps
	datagrams               // UDP
	classes
)

func (c class) protocol() model.Protocol {
	if c == datagrams {
		return model.UDP
	}
	return model.TCP
}

// host has one backend of both endpoints.
type host struct {
	backend   model.Backend
	speaks    bool // its workload answers SYNs with timestamps
	learned   bool // and has
	dead      bool
	knows     map[*flow]bool
	slots     map[model.Protocol]model.Slot
	inBuckets map[model.Protocol]bool
}

// flow is a connection of a client.
type flow struct {
	class  class
	hash   uint32
	id     uint64
	server *host      // nil: it has not begun
	cookie model.Slot // that the client echoes; 0: none
}

// mux has a flow table that forgets nothing.
type mux struct{ flows map[*flow]model.Slot }

// device is a switch: its hash and the order of its members are its own.
type device struct {
	salt      uint64
	resilient bool
	part, of  int // of the backends
	members   []*host
	entries   []*host // of a resilient group
}

const groupEntries = 64

// hold has the switch's group be its part of these members: a resilient one changes no more entries than it must.
func (d *device) hold(r *rand.Rand, members []*host) {
	d.members = nil
	for i, h := range members {
		if i%d.of == d.part%min(d.of, len(members)) {
			d.members = append(d.members, h)
		}
	}
	r.Shuffle(len(d.members), func(i, j int) { d.members[i], d.members[j] = d.members[j], d.members[i] })
	if len(d.entries) == 0 {
		d.entries = make([]*host, groupEntries)
	}
	for i, h := range d.entries {
		if !slices.Contains(d.members, h) || r.IntN(len(d.members)) == 0 {
			d.entries[i] = d.members[r.IntN(len(d.members))]
		}
	}
}

func (d *device) pick(f *flow) *host {
	h := mix(f.id ^ d.salt)
	if d.resilient {
		return d.entries[h%groupEntries]
	}
	return d.members[h%uint64(len(d.members))]
}

func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// world is a VIP with an endpoint of TCP and one of UDP.
type world struct {
	*rand.Rand
	rules     rules
	resilient bool
	state     desired.State
	vip       model.VIP
	now       time.Time
	hosts     []*host // that live
	muxes     []*mux
	placed    []*device // that attract the VIP's packets; none: muxes do
	flows     []*flow
	endpoints map[model.Protocol]steering.Endpoint
	made      int    // backends, so far
	routers   uint64 // salt of the routers' hash
	began     [classes]int
	broken    [classes]int
	packets   int
	hops      int
	splits    int // switches that had a part of the backends
}

func newWorld(seed uint64, rules rules, resilient bool) *world {
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, 7)), rules: rules, resilient: resilient, now: time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC),
		vip: model.VIP{
			Name: "web", Address: netip.MustParseAddr("203.0.113.10"), Hardware: &model.Hardware{Placement: model.PlacementAuto},
			Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}, {Protocol: model.UDP, Port: 80}},
		},
		endpoints: map[model.Protocol]steering.Endpoint{},
	}
	if rules.movesEndByTime {
		w.vip.Hardware = nil
	}
	for range 6 {
		w.addHost()
	}
	for range 2 {
		w.muxes = append(w.muxes, &mux{flows: map[*flow]model.Slot{}})
	}
	w.compute()
	return w
}

func (w *world) addHost() {
	w.made++
	w.state.PutNode(model.Node{Name: "h" + strconv.Itoa(w.made), Role: model.RoleHost})
	w.hosts = append(w.hosts, &host{
		backend: model.Backend{Address: netip.AddrFrom4([4]byte{10, 1, byte(w.made >> 8), byte(w.made)}), Port: 8080, Host: "h" + strconv.Itoa(w.made), Weight: 1},
		speaks:  w.made%8 != 0, knows: map[*flow]bool{}, slots: map[model.Protocol]model.Slot{}, inBuckets: map[model.Protocol]bool{},
	})
}

// compute has the manager compute the tables, end moves that no connection needs, and tell muxes and hosts.
func (w *world) compute() {
	w.now = w.now.Add(desired.SettleTime + time.Second)
	ended := desired.Ended{}
	for i := range w.vip.Endpoints {
		e := &w.vip.Endpoints[i]
		e.Backends = nil
		for _, h := range w.hosts {
			e.Backends = append(e.Backends, h.backend)
		}
		ended[desired.Key(w.vip, *e)] = w.ended(*e)
	}
	w.state.PutVIP(w.vip)
	free := func(_ model.EndpointKey, r desired.Row) time.Duration { return w.now.Sub(r.Freed) }
	for key, table := range w.state.ChangedTables(w.vip, w.now, ended, free) {
		w.state.Tables.Set(key, table)
	}
	for _, e := range w.vip.Endpoints {
		table := w.state.Tables.At(desired.Key(w.vip, e))
		of := nodeconfig.MuxEndpoint(w.state, w.vip, e)
		told := steering.Endpoint{Key: of.Key, Buckets: of.Buckets, Previous: of.Previous, Cookies: of.Cookies}
		for _, b := range of.Backends {
			told.Backends = append(told.Backends, steering.Backend{Slot: b.Slot, Tunnel: b.Tunnel, Down: b.Down})
		}
		w.endpoints[e.Protocol] = told
		slots, shares := table.Slots(), table.Shares()
		for _, h := range w.hosts {
			slot := slots[h.backend.AddrPort()]
			h.slots[e.Protocol], h.inBuckets[e.Protocol] = slot, shares[slot] > 0
		}
	}
}

// ended are the slots that no connection without a cookie is left of, in the buckets that they gave up.
func (w *world) ended(e model.Endpoint) map[model.Slot]time.Time {
	ended := map[model.Slot]time.Time{}
	table := w.state.Tables.At(desired.Key(w.vip, e))
	for slot, buckets := range table.Draining() {
		h := w.at(e.Protocol, slot)
		used := false
		if h != nil {
			for f := range h.knows {
				bucket := f.hash & uint32(len(table.Buckets)-1)
				used = used || f.class.protocol() == e.Protocol && f.cookie == 0 && slices.Contains(buckets, bucket)
			}
		}
		if !used {
			ended[slot] = w.now
		}
	}
	return ended
}

// at is the host of a slot; nil: it is gone.
func (w *world) at(protocol model.Protocol, slot model.Slot) *host {
	i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.slots[protocol] == slot })
	if i < 0 {
		return nil
	}
	return w.hosts[i]
}
