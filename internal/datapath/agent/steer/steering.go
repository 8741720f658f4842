package steer

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// Steering is the VIPs that switches hold, as in the tables steer_sources, steer_endpoints, steer_buckets and
// steer_backends.
type Steering struct {
	objects *bpf.AgentObjects
	lock    *sync.Mutex

	// Guarded by the lock.
	numbers map[model.EndpointKey]uint32 // of the endpoints, in keys of other tables
	key     *flowhash.Key                // of the pool, if it has come
	has     *contents                    // nil: an earlier process wrote the tables, or this one did in part
	tunnels map[bpf.AgentAddress]uint8   // that the rows of VIPs by host follow from
}

// New has none yet.
func New(objects *bpf.AgentObjects, lock *sync.Mutex) *Steering {
	return &Steering{objects: objects, lock: lock, numbers: map[model.EndpointKey]uint32{}}
}

// Read restores what an earlier process has set.
func (s *Steering) Read() error {
	live, err := abi.ReadTable[bpf.AgentSteerKey, bpf.AgentSteerEndpoint](s.objects.SteerEndpoints)
	if err != nil {
		return fmt.Errorf("read steered endpoints: %w", err)
	}
	for key, row := range live {
		if row.Number != 0 { // else it is a VIP's
			s.numbers[fromKey(key)] = row.Number
		}
	}
	return nil
}

// SetPoolKey sets the muxes' hash key, by which buckets are chosen: from the next call of Steer on.
func (s *Steering) SetPoolKey(key flowhash.Key) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.key = &key
}

// Steer makes these the only VIPs whose packets are steered, and does not change them later. If they do not fit, those that
// are steered stay as they are, new ones and changes of them follow as far as there is room, each whole, and Steer returns
// a *steering.RefusedError of those that do not.
func (s *Steering) Steer(vips []steering.VIP) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	tunnels, err := abi.ReadTable[bpf.AgentAddress, uint8](s.objects.Tunnels)
	if err != nil {
		return fmt.Errorf("read tunnels: %w", err)
	}
	if s.key != nil {
		if err := s.objects.PoolKey.Set(s.key[:]); err != nil {
			return fmt.Errorf("set the pool's hash key: %w", err)
		}
	}
	wanted := make(map[netip.Addr]steering.VIP, len(vips))
	for _, vip := range vips {
		wanted[vip.Address] = vip
	}
	here := func(tunnel netip.Addr) bool { return tunnels[bpf.ToAddress(tunnel)] != 0 }
	moved := !maps.Equal(s.tunnels, tunnels)
	has, whole := s.has, s.has == nil
	if whole {
		has = newContents()
	}
	c, refused := has.follow(wanted, s.room(), s.isNumbered, func(vip steering.VIP) bool { return moved && vip.ByHost })
	s.has = nil // until all is written
	if err := s.write(has, c, whole, here); err != nil {
		return fmt.Errorf("set steering: %w", err)
	}
	if s.has, s.tunnels = has, tunnels; len(refused) > 0 {
		return &steering.RefusedError{VIPs: refused}
	}
	return nil
}

// room is what the tables have; that of sources is for each VIP's and for those of all.
func (s *Steering) room() steering.Room {
	return steering.Room{
		Endpoints: int(s.objects.SteerEndpoints.MaxEntries()), Buckets: int(s.objects.SteerBuckets.MaxEntries()),
		Backends: int(s.objects.SteerBackends.MaxEntries()), Sources: int(s.objects.SteerSources.MaxEntries()),
	}
}

// isNumbered says whether the tables held the VIP before.
func (s *Steering) isNumbered(vip steering.VIP) bool {
	return slices.ContainsFunc(vip.Endpoints, func(e steering.Endpoint) bool { return s.numbers[e.Key] != 0 })
}

// assign numbers the endpoints of VIPs: those that had a number keep it, others get one that nobody has. So do the ports of
// source NAT of which a slot has become another workload's: under one number an answer could go to either meanwhile.
func (s *Steering) assign(vips map[netip.Addr]steering.VIP, live rows) map[model.EndpointKey]uint32 {
	taken, numbers := make(map[uint32]bool, len(s.numbers)), map[model.EndpointKey]uint32{}
	for _, number := range s.numbers {
		taken[number] = true
	}
	next := uint32(1)
	for address, vip := range vips {
		for _, e := range vip.Endpoints {
			number, had := s.numbers[e.Key]
			if !had || e.Key == steering.Ports(address) && live.leadsElsewhere(e, number) {
				for taken[next] {
					next++
				}
				number, taken[next] = next, true
			}
			numbers[e.Key] = number
		}
	}
	return numbers
}

// read reads the tables whole.
func (s *Steering) read() (rows, error) {
	r, o := newRows(), s.objects
	return r, errors.Join(
		readInto(o.SteerSources, r.sources), readInto(o.SteerEndpoints, r.endpoints), readInto(o.SteerBuckets, r.buckets),
		readInto(o.SteerBackends, r.backends), readInto(o.SteerLocals, r.locals),
	)
}

func readInto[K comparable, V any](table *ebpf.Map, live map[K]V) error {
	if err := abi.EachBatched(table, func(key K, row V) { live[key] = row }); err != nil {
		return fmt.Errorf("read %s: %w", table, err)
	}
	return nil
}

// write brings the tables to what they are to have: of VIPs that change, or whole. What a row is found by comes behind what
// it leads to, and goes before.
func (s *Steering) write(has *contents, c change, whole bool, here func(netip.Addr) bool) error {
	live, before := newRows(), c.rows
	if whole {
		var err error
		if live, err = s.read(); err != nil {
			return err
		}
		before = steering.Room{Endpoints: len(live.endpoints), Buckets: len(live.buckets), Backends: len(live.backends), Sources: len(live.sources)}
	} else {
		live.addVIPs(maps.Values(c.before), s.numbers, func(tunnel netip.Addr) bool { return s.tunnels[bpf.ToAddress(tunnel)] != 0 })
		live.addRoles(maps.All(c.roles))
	}
	numbers, wanted := s.assign(c.after, live), newRows()
	wanted.addVIPs(maps.Values(c.after), numbers, here)
	wanted.addRoles(func(yield func(netip.Addr, bpf.AgentSteerRole) bool) {
		for source := range c.roles {
			if !yield(source, has.role(source)) {
				return
			}
		}
	})
	backends := compare(s.objects.SteerBackends, "backends", before.Backends, live.backends, wanted.backends)
	buckets := compare(s.objects.SteerBuckets, "rows of buckets", before.Buckets, live.buckets, wanted.buckets)
	endpoints := compare(s.objects.SteerEndpoints, "endpoints", before.Endpoints, live.endpoints, wanted.endpoints)
	sources := compare(s.objects.SteerSources, "outer sources", before.Sources, live.sources, wanted.sources)
	locals := compare(s.objects.SteerLocals, "endpoints by host", before.Endpoints, live.locals, wanted.locals)
	for _, step := range []func() error{
		backends.put, buckets.put, locals.put, endpoints.put, sources.put,
		func() error { return s.count(has.takes.Endpoints) },
		sources.remove, endpoints.remove, locals.remove, buckets.remove, backends.remove,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if whole {
		s.numbers = map[model.EndpointKey]uint32{}
	}
	for _, vip := range c.before {
		for _, e := range vip.Endpoints {
			delete(s.numbers, e.Key)
		}
	}
	maps.Copy(s.numbers, numbers)
	return nil
}

// count tells the programs how many endpoints there are: none spares them lookups.
func (s *Steering) count(endpoints int) error {
	return bpf.ChangeSettings(s.objects, func(row *bpf.AgentAgentSettings) { row.Steered = uint32(endpoints) })
}

// Steered counts packets that switches brought, by why they went where they did.
func (s *Steering) Steered() (map[string]model.Counter, error) {
	counted := make(map[string]model.Counter, len(reasons))
	for reason, name := range reasons {
		var perCPU []bpf.AgentCounter
		if err := s.objects.SteerReasons.Lookup(reason, &perCPU); err != nil {
			return nil, fmt.Errorf("read steered packets: %w", err)
		}
		var sum model.Counter
		for _, c := range perCPU {
			sum.Packets += c.Packets
			sum.Bytes += c.Bytes
		}
		counted[name] = sum
	}
	return counted, nil
}

// reasons are the labels of enum steer_reason.
var reasons = map[bpf.AgentSteerReason]string{
	bpf.AgentSteerReasonSTEER_BY_ARRIVAL:     "arrival",
	bpf.AgentSteerReasonSTEER_BY_SESSION:     "session",
	bpf.AgentSteerReasonSTEER_BY_COOKIE_HERE: "cookie_here",
	bpf.AgentSteerReasonSTEER_BY_BUCKET_HERE: "bucket_here",
	bpf.AgentSteerReasonSTEER_BY_COOKIE:      "cookie",
	bpf.AgentSteerReasonSTEER_BY_BUCKET:      "bucket",
	bpf.AgentSteerReasonSTEER_BY_QUOTE:       "quote",
	bpf.AgentSteerReasonSTEER_BY_PORT:        "port",
	bpf.AgentSteerReasonSTEER_BY_MUX:         "mux",
}

// difference is how a table differs from what it is to hold.
type difference[K, V comparable] struct {
	table        *ebpf.Map
	puts         map[K]V
	gone         []K
	what         string
	removesFirst bool
}

// compare compares rows with what they are to be; the table has so many in all, or less.
func compare[K, V comparable](table *ebpf.Map, what string, all int, live, wanted map[K]V) *difference[K, V] {
	d := &difference[K, V]{table: table, puts: map[K]V{}, what: what}
	for key, row := range wanted {
		old, had := live[key]
		if !had {
			all++
		}
		if !had || old != row {
			d.puts[key] = row
		}
	}
	for key := range live {
		if _, kept := wanted[key]; !kept {
			d.gone = append(d.gone, key)
		}
	}
	// What goes makes room only if both would not fit together.
	d.removesFirst = all > int(table.MaxEntries())
	return d
}

func (d *difference[K, V]) put() error {
	if d.removesFirst {
		if err := d.remove(); err != nil {
			return err
		}
	}
	for key, row := range d.puts {
		if err := d.table.Put(key, row); err != nil {
			return fmt.Errorf("write %s: %w", d.what, err)
		}
	}
	return nil
}

func (d *difference[K, V]) remove() error {
	for _, key := range d.gone {
		if err := d.table.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove %s: %w", d.what, err)
		}
	}
	return nil
}
