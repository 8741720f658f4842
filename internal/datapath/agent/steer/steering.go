package steer

import (
	"errors"
	"fmt"
	"net/netip"
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
	numbers map[model.EndpointKey]uint32 // of the endpoints, in keys of other tables; guarded by the lock
	key     *flowhash.Key                // of the pool, if it has come; guarded by the lock
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

// Steer makes these the only VIPs whose packets are steered. It changes nothing if they do not fit.
func (s *Steering) Steer(vips []steering.VIP) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	numbers, wanted := s.assign(vips), newRows()
	tunnels, err := abi.ReadTable[bpf.AgentAddress, uint8](s.objects.Tunnels)
	if err != nil {
		return fmt.Errorf("read tunnels: %w", err)
	}
	here := func(tunnel netip.Addr) bool { return tunnels[bpf.ToAddress(tunnel)] != 0 }
	for _, vip := range vips {
		wanted.addSources(vip)
		wanted.addVIP(vip)
		for _, e := range vip.Endpoints {
			wanted.addEndpoint(e, numbers[e.Key])
			if vip.ByHost && e.Key != steering.Ports(vip.Address) {
				wanted.addLocals(e, numbers[e.Key], e.Locals(here))
			}
		}
	}
	if s.key != nil {
		if err := s.objects.PoolKey.Set(s.key[:]); err != nil {
			return fmt.Errorf("set the pool's hash key: %w", err)
		}
	}
	if err := s.write(wanted); err != nil {
		return fmt.Errorf("set steering: %w", err)
	}
	s.numbers = numbers
	return nil
}

// assign numbers the endpoints: those that had a number keep it, others get one that nobody had.
func (s *Steering) assign(vips []steering.VIP) map[model.EndpointKey]uint32 {
	taken, numbers := make(map[uint32]bool, len(s.numbers)), map[model.EndpointKey]uint32{}
	for _, number := range s.numbers {
		taken[number] = true
	}
	next := uint32(1)
	for _, vip := range vips {
		for _, e := range vip.Endpoints {
			number, had := s.numbers[e.Key]
			if !had {
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

// write brings the tables to what is wanted: what a row is found by comes behind what it leads to, and goes before.
func (s *Steering) write(wanted rows) error {
	backends, err := compare(s.objects.SteerBackends, "backends", wanted.backends)
	buckets, err2 := compare(s.objects.SteerBuckets, "rows of buckets", wanted.buckets)
	endpoints, err3 := compare(s.objects.SteerEndpoints, "endpoints", wanted.endpoints)
	sources, err4 := compare(s.objects.SteerSources, "outer sources", wanted.sources)
	locals, err5 := compare(s.objects.SteerLocals, "endpoints by host", wanted.locals)
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		return err
	}
	for _, step := range []func() error{
		backends.put, buckets.put, locals.put, endpoints.put, sources.put,
		func() error { return s.count(len(wanted.endpoints)) },
		sources.remove, endpoints.remove, locals.remove, buckets.remove, backends.remove,
	} {
		if err := step(); err != nil {
			return err
		}
	}
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

// compare refuses what does not fit.
func compare[K, V comparable](table *ebpf.Map, what string, wanted map[K]V) (*difference[K, V], error) {
	if room := int(table.MaxEntries()); len(wanted) > room {
		return nil, fmt.Errorf("needs %d %s, has room for %d", len(wanted), what, room)
	}
	live := make(map[K]V)
	if err := bpf.EachBatched(table, func(key K, row V) { live[key] = row }); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	d := &difference[K, V]{table: table, puts: map[K]V{}, what: what}
	for key, row := range wanted {
		if old, had := live[key]; !had || old != row {
			d.puts[key] = row
		}
	}
	for key := range live {
		if _, kept := wanted[key]; !kept {
			d.gone = append(d.gone, key)
		}
	}
	// What goes makes room only if both would not fit together.
	d.removesFirst = len(wanted)+len(d.gone) > int(table.MaxEntries())
	return d, nil
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
