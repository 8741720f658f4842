package store

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/overloadpolicy"
	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/journal"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/store/vipstatus"
)

// State is everything in the store, as of one revision. It is read only.
type State struct {
	desired.State
	Generation        model.Generation                                // the revision at which the desired state last changed
	Epoch             model.Epoch                                     // of the newest leader; 0: not known
	Leader            string                                          // the manager that leads, empty if none does
	Managers          map[string]Manager                              // the replicas, by name
	LeaderAddress     string                                          // of its API
	HashKey           flowhash.Key                                    // the pool's secret
	FastpathKeys      []model.FastpathKey                             // that are valid, the oldest, which signs, first; never written to
	SYNSecrets        []model.SYNSecret                               // that are valid, the oldest first; never written to
	FBTMasters        []fbt.Master                                    // that are valid, the oldest first; never written to
	Written           sorted.Map[string, model.Generation]            // when each VIP was last written, by name
	Computed          sorted.Map[model.EndpointKey, model.Generation] // when each table last changed
	Status            sorted.Map[string, nodestatus.Status]           // by node
	Streams           sorted.Map[string, bool]                        // the nodes whose stream is open, with any manager
	Reported          sorted.Map[string, int64]                       // revisions at which each host's health last changed
	Records           sorted.Map[string, codec.Record]                // when and by whom each VIP was written, by name
	PoolWritten       sorted.Map[string, model.Generation]            // when each pool was last written, by name
	PrefixListWritten sorted.Map[string, model.Generation]            // when each prefix list was last written, by name
	NetworkWritten    sorted.Map[string, model.Generation]            // when each virtual network was last written, by name
	Fabrics           sorted.Map[string, Fabric]                      // by name
	PlacementWritten  sorted.Map[netip.Addr, model.Generation]        // when the placement of a VIP was last written, by address
	OverlayWritten    model.Generation                                // when the overlay was last written; 0: there is none
	Conditions        sorted.Map[string, vipstatus.Conditions]        // of each VIP, as the leader noted them, by name
	Excluded          sorted.Map[string, string]                      // by node whose stream is open and who does not answer, why
	Neighbors         sorted.Map[string, neighbor.Mux]                // muxes that renew their lease to answer ARP and NDP, by name
	Ready             sorted.Map[string, model.Generation]            // by manager, what all its hosts have
	PortsWritten      sorted.Map[model.SNATKey, model.Generation]     // when each workload's ranges were last written
	Traces            []Trace                                         // of the newest changes that have one, in order

	chunks   sorted.Map[string, *model.PrefixChunk] // of prefix lists, by LIST/ID
	unknown  sorted.Map[string, []byte]             // documents with fields of a newer release, by key
	revision int64
	step     *step
}

// Manager is a replica as the store knows it.
type Manager struct {
	Name    string `json:"name"`
	Address string `json:"address"`           // of its API
	PeerURL string `json:"peerURL,omitempty"` // of its member of the embedded etcd, if others reach it
	Member  uint64 `json:"member,omitempty"`  // that member's id
	Schema  int    `json:"schema,omitempty"`  // the newest of the store's documents that it knows; 0: the first
	Learner bool   `json:"-"`                 // it has no vote yet
}

// Clone returns a State that may be written to; its price does not depend on the State's size.
func (s *State) Clone() *State {
	next := *s
	next.State = s.State.Clone()
	next.Written, next.Computed, next.Status = s.Written.Clone(), s.Computed.Clone(), s.Status.Clone()
	next.Streams, next.Reported = s.Streams.Clone(), s.Reported.Clone()
	next.Records, next.PoolWritten, next.Conditions = s.Records.Clone(), s.PoolWritten.Clone(), s.Conditions.Clone()
	next.Excluded, next.Ready = s.Excluded.Clone(), s.Ready.Clone()
	next.Neighbors = s.Neighbors.Clone()
	next.PortsWritten, next.PlacementWritten = s.PortsWritten.Clone(), s.PlacementWritten.Clone()
	next.unknown, next.NetworkWritten = s.unknown.Clone(), s.NetworkWritten.Clone()
	next.PrefixListWritten, next.chunks, next.Fabrics = s.PrefixListWritten.Clone(), s.chunks.Clone(), s.Fabrics.Clone()
	return &next
}

// builder makes the State that follows another one, and notes in what they differ.
type builder struct {
	next  *State
	delta Delta
	vips  []journal.Change // for the journal
}

func follow(s *State) *builder { return &builder{next: s.Clone(), delta: newDelta()} }

// put takes over one key's value. A value that can't be read is an error of the whole State: going
// on without it would take it away from muxes and hosts.
func (b *builder) put(kv *mvccpb.KeyValue) error {
	key, s := string(kv.Key), b.next
	generation := model.Generation(kv.ModRevision)
	var err error
	switch prefix, name := keyspace.Split(key); prefix {
	case keyspace.Generation:
		s.Generation = generation
		err = s.putTraces(key, kv)
	case keyspace.Leader:
		err = s.putLeader(kv)
	case keyspace.Restored:
		var d codec.RestoredDocument
		d, err = codec.Decode[codec.RestoredDocument](key, kv.Value)
		s.Restored = desired.Restored{At: generation, Settled: d.Settled}
	case keyspace.Managers:
		err = s.putManager(name, kv.Value)
	case keyspace.HashKey, keyspace.FastpathKeys, keyspace.SYNSecrets, keyspace.FBTMasters:
		err = s.putSecrets(key, kv.Value)
	case keyspace.VIPs, keyspace.Tables:
		err = read(kv).put(b)
	case keyspace.Pools:
		pool, unknown, wrong := codec.DecodeMessage(key, kv.Value, &weirv1.AddressPool{}, compile.StoredAddressPool)
		if err = wrong; err == nil {
			b.noteUnknown(key, kv.Value, unknown)
			b.putPool(pool, generation)
		}
	case keyspace.Networks, keyspace.Overlay:
		err = networks{b}.decode(key, kv.Value, generation)
	case keyspace.HostNumbers:
		var n network.Number
		if n, err = decodeIn[network.Number](b, key, kv.Value); err == nil {
			networks{b}.setNumber(name, n)
		}
	case keyspace.PrefixChunks:
		err = b.putChunk(key, name, kv.Value)
	case keyspace.PrefixLists:
		err = b.putPrefixListOf(key, kv.Value, generation)
	case keyspace.Conditions:
		var c vipstatus.Conditions
		c, err = codec.Decode[vipstatus.Conditions](key, kv.Value)
		s.Conditions.Set(name, c)
		b.note(name)
	case keyspace.Ports:
		err = b.decodePorts(key, kv.Value, generation)
	case keyspace.Steps:
		var steps overloadpolicy.State
		if steps, err = codec.Decode[overloadpolicy.State](key, kv.Value); err == nil {
			b.putSteps(name, steps)
		}
	case keyspace.Fabrics:
		err = fabrics{b}.decode(key, name, kv.Value, generation)
	case keyspace.Placements:
		err = b.decodePlacement(key, name, kv.Value, generation)
	default:
		err = b.putOfNode(prefix, name, kv)
	}
	return err
}

// putOfNode takes over a key that is about a node, or about a manager.
func (b *builder) putOfNode(prefix, name string, kv *mvccpb.KeyValue) (err error) {
	key, s := string(kv.Key), b.next
	switch prefix {
	case keyspace.Nodes:
		var d codec.NodeDocument
		d, err = decodeIn[codec.NodeDocument](b, key, kv.Value)
		if err == nil {
			s.PutNode(model.Node(d))
			b.delta.Nodes[name] = true
		}
	case keyspace.Status:
		var status nodestatus.Status
		status, err = codec.Decode[nodestatus.Status](key, kv.Value)
		s.Status.Set(name, status)
		b.delta.Status[name] = true
	case keyspace.Health:
		var list []codec.HealthDocument
		list, err = codec.Decode[[]codec.HealthDocument](key, kv.Value)
		s.Health.Set(name, codec.HostHealth(list))
		s.Reported.Set(name, kv.ModRevision)
		b.delta.Health[name] = true
	case keyspace.Streams:
		s.Streams.Set(name, true)
		b.delta.Streams[name] = true
	case keyspace.Excluded:
		var reason string
		reason, err = codec.Decode[string](key, kv.Value)
		s.Excluded.Set(name, reason)
		b.delta.Streams[name] = true
	case keyspace.Neighbors:
		var mux neighbor.Mux
		mux, err = codec.Decode[neighbor.Mux](key, kv.Value)
		s.Neighbors.Set(name, mux)
	case keyspace.Ready:
		var ready model.Generation
		ready, err = codec.Decode[model.Generation](key, kv.Value)
		s.Ready.Set(name, ready)
	}
	return err
}

// The changes of the desired state, as the watch and the writer make them.

func (b *builder) putVIP(vip model.VIP, generation model.Generation) {
	b.note(vip.Name)
	b.next.PutVIP(vip)
	b.next.Written.Set(vip.Name, generation)
	b.delta.VIPs[vip.Name] = true
}

func (b *builder) removeVIP(name string) {
	b.note(name)
	b.next.RemoveVIP(name)
	b.next.Written.Delete(name)
	b.next.Records.Delete(name)
	b.next.Steps.Delete(name)
	b.delta.VIPs[name] = true
}

// putSteps takes over what is in force of a VIP's overload policy; zero: nothing. Whoever follows the VIP hears of it.
func (b *builder) putSteps(name string, steps overloadpolicy.State) {
	b.note(name)
	if b.next.Steps.Delete(name); steps != (overloadpolicy.State{}) {
		b.next.Steps.Set(name, steps)
	}
	b.delta.VIPs[name] = true
}

func (b *builder) putTableOf(key model.EndpointKey, table desired.Table, generation model.Generation) {
	desired.PutTable(&b.next.State, key, table)
	b.next.Computed.Set(key, generation)
	b.delta.Tables[key] = true
}

func (b *builder) removeTable(key model.EndpointKey) {
	desired.RemoveTable(&b.next.State, key)
	b.next.Computed.Delete(key)
	b.delta.Tables[key] = true
}

func (b *builder) removeNode(name string) {
	b.next.RemoveNode(name)
	b.delta.Nodes[name] = true
}

func (b *builder) putPool(pool model.AddressPool, generation model.Generation) {
	b.next.Pools.Set(pool.Name, pool)
	b.next.PoolWritten.Set(pool.Name, generation)
}

func (b *builder) removePool(name string) {
	b.next.Pools.Delete(name)
	b.next.PoolWritten.Delete(name)
}

// remove forgets one key.
func (b *builder) remove(key string) error {
	s := b.next
	s.unknown.Delete(key)
	switch prefix, name := keyspace.Split(key); prefix {
	case keyspace.Generation, keyspace.HashKey:
		return fmt.Errorf("read the store: %s was deleted by another program: restore the store from a backup", key)
	case keyspace.FastpathKeys, keyspace.SYNSecrets, keyspace.FBTMasters:
		s.dropSecrets(prefix)
	case keyspace.Leader:
		s.Leader, s.LeaderAddress = "", ""
	case keyspace.Restored:
		s.Restored = desired.Restored{}
	case keyspace.VIPs:
		b.removeVIP(name)
	case keyspace.Pools:
		b.removePool(name)
	case keyspace.Networks, keyspace.Overlay, keyspace.HostNumbers:
		networks{b}.removeKey(prefix, name)
	case keyspace.PrefixChunks:
		s.chunks.Delete(name)
	case keyspace.PrefixLists:
		b.removePrefixList(name)
	case keyspace.Conditions:
		s.Conditions.Delete(name)
		b.note(name)
	case keyspace.Steps:
		b.putSteps(name, overloadpolicy.State{})
	case keyspace.Fabrics:
		s.Fabrics.Delete(name)
	case keyspace.Placements:
		return b.decodePlacement(key, name, nil, 0)
	case keyspace.Tables:
		endpoint, err := keyspace.ParseTable(key)
		if err != nil {
			return err
		}
		b.removeTable(endpoint)
	case keyspace.Ports:
		workload, err := keyspace.ParsePorts(key)
		if err != nil {
			return err
		}
		b.removePorts(workload)
	case keyspace.Managers, keyspace.Nodes, keyspace.Status, keyspace.Health, keyspace.Streams, keyspace.Excluded, keyspace.Neighbors, keyspace.Ready:
		b.removeOfNode(prefix, name)
	}
	return nil
}

// removeKey forgets a network, the overlay, or a host's number.
func (n networks) removeKey(prefix, name string) {
	switch prefix {
	case keyspace.Networks:
		n.remove(name)
	case keyspace.Overlay:
		n.setOverlay(nil, 0)
	case keyspace.HostNumbers:
		n.setNumber(name, network.Number{})
	}
}

// removeOfNode forgets a node, or something of what is said of it, or of a manager.
func (b *builder) removeOfNode(prefix, name string) {
	s := b.next
	switch prefix {
	case keyspace.Managers:
		s.Managers = maps.Clone(s.Managers)
		delete(s.Managers, name)
	case keyspace.Nodes:
		b.removeNode(name)
	case keyspace.Status:
		s.Status.Delete(name)
		b.delta.Status[name] = true
	case keyspace.Health:
		s.Health.Delete(name)
		s.Reported.Delete(name)
		b.delta.Health[name] = true
	case keyspace.Streams:
		s.Streams.Delete(name)
		b.delta.Streams[name] = true
	case keyspace.Neighbors:
		s.Neighbors.Delete(name)
	case keyspace.Excluded:
		s.Excluded.Delete(name)
		b.delta.Streams[name] = true
	case keyspace.Ready:
		s.Ready.Delete(name)
	}
}

// putLeader takes over who leads.
func (s *State) putLeader(kv *mvccpb.KeyValue) error {
	d, err := codec.Decode[election.Document](keyspace.Leader, kv.Value)
	s.Leader, s.LeaderAddress, s.Epoch = d.Name, d.Address, model.Epoch(kv.CreateRevision)
	return err
}

// putSecrets takes over the secrets of a key.
func (s *State) putSecrets(key string, value []byte) (err error) {
	switch key {
	case keyspace.HashKey:
		var secret []byte
		if secret, err = codec.Decode[[]byte](key, value); err == nil {
			s.HashKey, err = flowhash.NewKey(secret)
		}
	case keyspace.FastpathKeys:
		s.FastpathKeys, err = codec.DecodeSecrets(key, value, codec.FastpathKeys)
	case keyspace.SYNSecrets:
		s.SYNSecrets, err = codec.DecodeSecrets(key, value, codec.SYNSecrets)
	case keyspace.FBTMasters:
		s.FBTMasters, err = codec.DecodeSecrets(key, value, codec.FBTMasters)
	}
	return err
}

// dropSecrets forgets the secrets of a key.
func (s *State) dropSecrets(key string) {
	switch key {
	case keyspace.FastpathKeys:
		s.FastpathKeys = nil
	case keyspace.SYNSecrets:
		s.SYNSecrets = nil
	case keyspace.FBTMasters:
		s.FBTMasters = nil
	}
}

// ListManagers are the replicas, by name.
func (s *State) ListManagers() []Manager {
	all := make([]Manager, 0, len(s.Managers))
	for _, name := range slices.Sorted(maps.Keys(s.Managers)) {
		all = append(all, s.Managers[name])
	}
	return all
}

// putManager takes over what is known of a manager.
func (s *State) putManager(name string, value []byte) error {
	m, err := codec.Decode[Manager](keyspace.Managers+name, value)
	managers := map[string]Manager{}
	maps.Copy(managers, s.Managers)
	managers[name], s.Managers = m, managers
	return err
}
