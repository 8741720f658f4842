package store

import (
	"fmt"
	"maps"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// State is everything in the store, as of one revision. It is read only.
type State struct {
	desired.State
	Generation      model.Generation                       // the revision at which the desired state last changed
	HostsGeneration model.Generation                       // the one at which what hosts run was last added to
	HashKey         flowhash.Key                           // the pool's secret
	Written         map[string]model.Generation            // when each VIP was last written, by name
	Computed        map[model.EndpointKey]model.Generation // when each table last changed
	Status          map[string]NodeStatus                  // by node
	Streams         map[string]bool                        // the nodes whose stream is open, with any manager
	Reported        map[string]int64                       // revisions at which each host's health last changed

	revision int64
}

func emptyState() *State {
	return &State{
		State: desired.State{
			VIPs:   map[string]model.VIP{},
			Tables: map[model.EndpointKey]desired.Table{},
			Nodes:  map[string]model.Node{},
			Health: map[string]desired.HostHealth{},
		},
		Written:  map[string]model.Generation{},
		Computed: map[model.EndpointKey]model.Generation{},
		Status:   map[string]NodeStatus{},
		Streams:  map[string]bool{},
		Reported: map[string]int64{},
	}
}

// builder makes the State that follows another one. It copies a map before it first writes to it.
type builder struct {
	next   State
	copied map[any]bool // by the address of the field
}

func follow(s *State) *builder { return &builder{next: *s, copied: map[any]bool{}} }

// own returns the map at m, which may be written to.
func own[K comparable, V any](b *builder, m *map[K]V) map[K]V {
	if !b.copied[m] {
		*m = maps.Clone(*m)
		b.copied[m] = true
	}
	return *m
}

// put takes over one key's value. A value that can't be read is an error of the whole State: going
// on without it would take it away from muxes and hosts.
func (b *builder) put(kv *mvccpb.KeyValue) error {
	key, s := string(kv.Key), &b.next
	generation := model.Generation(kv.ModRevision)
	var err error
	switch prefix, name := split(key); prefix {
	case keyGeneration:
		s.Generation = generation
	case keyHosts:
		s.HostsGeneration = generation
	case keyHash:
		var secret []byte
		if secret, err = decode[[]byte](key, kv.Value); err == nil {
			s.HashKey, err = flowhash.NewKey(secret)
		}
	case prefixVIPs:
		var d vipDocument
		d, err = decode[vipDocument](key, kv.Value)
		own(b, &s.VIPs)[name] = vipFromDocument(d)
		own(b, &s.Written)[name] = generation
	case prefixTables:
		err = b.putTable(key, kv.Value, generation)
	case prefixNodes:
		var d nodeDocument
		d, err = decode[nodeDocument](key, kv.Value)
		own(b, &s.Nodes)[name] = model.Node(d)
	case prefixStatus:
		own(b, &s.Status)[name], err = decode[NodeStatus](key, kv.Value)
	case prefixHealth:
		var list []healthDocument
		list, err = decode[[]healthDocument](key, kv.Value)
		own(b, &s.Health)[name] = healthFromDocument(list)
		own(b, &s.Reported)[name] = kv.ModRevision
	case prefixStreams:
		own(b, &s.Streams)[name] = true
	}
	return err
}

func (b *builder) putTable(key string, value []byte, generation model.Generation) error {
	endpoint, err := parseTableKey(key)
	if err != nil {
		return err
	}
	d, err := decode[tableDocument](key, value)
	if err != nil {
		return err
	}
	table, err := tableFromDocument(d)
	if err != nil {
		return fmt.Errorf("read %s of the store: %w", key, err)
	}
	own(b, &b.next.Tables)[endpoint] = table
	own(b, &b.next.Computed)[endpoint] = generation
	return nil
}

// remove forgets one key.
func (b *builder) remove(key string) error {
	s := &b.next
	switch prefix, name := split(key); prefix {
	case keyGeneration, keyHosts, keyHash:
		return fmt.Errorf("read the store: %s was deleted by another program: restore the store from a backup", key)
	case prefixVIPs:
		delete(own(b, &s.VIPs), name)
		delete(own(b, &s.Written), name)
	case prefixTables:
		endpoint, err := parseTableKey(key)
		if err != nil {
			return err
		}
		delete(own(b, &s.Tables), endpoint)
		delete(own(b, &s.Computed), endpoint)
	case prefixNodes:
		delete(own(b, &s.Nodes), name)
	case prefixStatus:
		delete(own(b, &s.Status), name)
	case prefixHealth:
		delete(own(b, &s.Health), name)
		delete(own(b, &s.Reported), name)
	case prefixStreams:
		delete(own(b, &s.Streams), name)
	}
	return nil
}

// split returns the prefix of a key and the name that follows it; a key of its own is its prefix.
func split(key string) (prefix, name string) {
	kind, name, found := strings.Cut(strings.TrimPrefix(key, root), "/")
	if !found {
		return key, ""
	}
	return root + kind + "/", name
}
