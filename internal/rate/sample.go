package rate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/weirlb/weir/internal/model"
)

// Bounds of a Sample.
const (
	MaxEndpoints = 1000
	MaxMuxes     = 256
	MaxVerdicts  = 128
)

// Key is an endpoint, with whose it is: an address may be another tenant's later.
type Key struct {
	VIP, Tenant string
	Endpoint    model.EndpointKey
}

// Compare orders keys by VIP, then by endpoint.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.VIP, other.VIP), strings.Compare(k.Tenant, other.Tenant), k.Endpoint.Compare(other.Endpoint))
}

// Mux is the rates of a mux, by what becomes of packets.
type Mux struct{ Forwarded, Passed, Dropped Rate }

// Sample is what muxes do in one interval. What is left out of Endpoints had no packet, or is in Other.
type Sample struct {
	At        time.Time // when the interval ended
	Muxes     map[string]Mux
	Verdicts  map[string]Rate
	Endpoints []Endpoint // the busiest first
	Other     Rate       // of those that are not among them
}

// Endpoint is the rate of one. Its key is held once for all samples.
type Endpoint struct {
	Key  unique.Handle[Key]
	Rate Rate
}

// Classes of verdicts, by what their names begin with: enum verdict in bpf/abi.
const (
	forwarded = "forward_"
	passed    = "pass_"
	dropped   = "drop_"
)

// MuxOf sums up the verdicts of a mux.
func MuxOf(verdicts map[string]Rate) (m Mux) {
	for name, r := range verdicts {
		switch {
		case strings.HasPrefix(name, forwarded):
			m.Forwarded = m.Forwarded.Add(r)
		case strings.HasPrefix(name, passed):
			m.Passed = m.Passed.Add(r)
		case strings.HasPrefix(name, dropped):
			m.Dropped = m.Dropped.Add(r)
		}
	}
	return m
}

// Fold makes a Sample of what was summed up by endpoint: of more than MaxEndpoints, of the busiest.
func Fold(at time.Time, muxes map[string]Mux, verdicts map[string]Rate, endpoints map[Key]Rate) *Sample {
	s := &Sample{At: at, Muxes: muxes, Verdicts: verdicts, Endpoints: make([]Endpoint, 0, len(endpoints))}
	for key, r := range endpoints {
		if r.Packets > 0 {
			s.Endpoints = append(s.Endpoints, Endpoint{unique.Make(key), r})
		}
	}
	s.bound()
	return s
}

// Merge sums up two Samples of one interval, of different muxes.
func Merge(a, b *Sample) *Sample {
	endpoints := map[Key]Rate{}
	for _, e := range slices.Concat(a.Endpoints, b.Endpoints) {
		endpoints[e.Key.Value()] = endpoints[e.Key.Value()].Add(e.Rate)
	}
	muxes, verdicts := maps.Clone(a.Muxes), maps.Clone(a.Verdicts)
	for name, r := range b.Verdicts {
		verdicts[name] = verdicts[name].Add(r)
	}
	maps.Copy(muxes, b.Muxes)
	s := Fold(a.At, muxes, verdicts, endpoints)
	s.Other = s.Other.Add(a.Other).Add(b.Other)
	return s
}

// bound holds a Sample to its bounds.
func (s *Sample) bound() {
	slices.SortFunc(s.Endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(b.Rate.Packets, a.Rate.Packets), a.Key.Value().Compare(b.Key.Value()))
	})
	if len(s.Endpoints) > MaxEndpoints {
		for _, e := range s.Endpoints[MaxEndpoints:] {
			s.Other = s.Other.Add(e.Rate)
		}
		s.Endpoints = slices.Clone(s.Endpoints[:MaxEndpoints])
	}
	s.Muxes = busiest(s.Muxes, MaxMuxes, func(m Mux) float64 { return m.Forwarded.Packets + m.Dropped.Packets })
	s.Verdicts = busiest(s.Verdicts, MaxVerdicts, func(r Rate) float64 { return r.Packets })
}

// busiest leaves those of the most packets, n at most.
func busiest[T any](all map[string]T, n int, packets func(T) float64) map[string]T {
	if all == nil {
		return map[string]T{}
	}
	if len(all) <= n {
		return all
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(packets(all[b]), packets(all[a])), strings.Compare(a, b))
	})
	kept := make(map[string]T, n)
	for _, name := range names[:n] {
		kept[name] = all[name]
	}
	return kept
}
