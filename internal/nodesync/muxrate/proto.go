package muxrate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rate"
	"github.com/weirlb/weir/internal/wire"
)

// Kinds of messages of WatchRates.
const (
	TypeSample   = "sample"
	TypeBookmark = "bookmark"
)

// Filter says what of a sample is told.
type Filter struct {
	Cluster bool                     // what is of muxes, and figures of what is folded
	Sees    func(tenant string) bool // VIPs of the tenant
	VIPs    []string                 // always
	Busiest int                      // VIPs more
}

// ToProto writes a sample.
func (f Filter) ToProto(s *rate.Sample) *weirv1.WatchRatesResponse {
	p := &weirv1.WatchRatesResponse{Type: TypeSample, At: timestamppb.New(s.At), Vips: f.vips(s)}
	if s.Other != (rate.Rate{}) {
		p.Other = &weirv1.Rate{}
	}
	if !f.Cluster {
		return p
	}
	if p.Other != nil {
		p.Other = rateToProto(s.Other)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Muxes)) {
		m := s.Muxes[name]
		p.Muxes = append(p.Muxes, &weirv1.MuxRate{
			Mux: name, Forwarded: rateToProto(m.Forwarded), Passed: rateToProto(m.Passed), Dropped: rateToProto(m.Dropped),
		})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Verdicts)) {
		p.Verdicts = append(p.Verdicts, &weirv1.NamedRate{Name: name, Rate: rateToProto(s.Verdicts[name])})
	}
	return p
}

// vips are those that are told of, those with the most packets first.
func (f Filter) vips(s *rate.Sample) []*weirv1.VIPRate {
	type owner struct{ vip, tenant string }
	at, seen := map[owner]*weirv1.VIPRate{}, map[string]bool{}
	sums, all := map[owner]rate.Rate{}, []owner(nil)
	for _, e := range s.Endpoints {
		key := e.Key.Value()
		sees, known := seen[key.Tenant]
		if !known {
			sees = f.Sees(key.Tenant)
			seen[key.Tenant] = sees
		}
		of := owner{key.VIP, key.Tenant}
		if !sees || f.Busiest == 0 && !slices.Contains(f.VIPs, key.VIP) {
			continue
		}
		if at[of] == nil {
			at[of] = &weirv1.VIPRate{Vip: key.VIP, Tenant: key.Tenant}
			all = append(all, of)
		}
		sums[of] = sums[of].Add(e.Rate)
		at[of].Endpoints = append(at[of].Endpoints, &weirv1.EndpointRate{
			Endpoint: wire.EndpointKeyToProto(key.Endpoint), Rate: rateToProto(e.Rate),
		})
	}
	slices.SortFunc(all, func(a, b owner) int {
		return cmp.Or(cmp.Compare(sums[b].Packets, sums[a].Packets), strings.Compare(a.vip, b.vip), strings.Compare(a.tenant, b.tenant))
	})
	var told []*weirv1.VIPRate
	room := f.Busiest
	for _, of := range all {
		if !slices.Contains(f.VIPs, of.vip) {
			if room == 0 {
				continue
			}
			room--
		}
		at[of].Rate = rateToProto(sums[of])
		told = append(told, at[of])
	}
	return told
}

// rateToProto writes a rate to a tenth: more is noise, and longer to read.
func rateToProto(r rate.Rate) *weirv1.Rate {
	return &weirv1.Rate{Packets: math.Round(r.Packets*10) / 10, Bits: math.Round(r.Bits*10) / 10}
}

func rateFromProto(p *weirv1.Rate) rate.Rate {
	return rate.Rate{Packets: finite(p.GetPackets()), Bits: finite(p.GetBits())}
}

func finite(n float64) float64 {
	if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return 0
	}
	return n
}

// FromProto reads a sample of another manager.
func FromProto(p *weirv1.WatchRatesResponse) *rate.Sample {
	muxes, verdicts, endpoints := map[string]rate.Mux{}, map[string]rate.Rate{}, map[rate.Key]rate.Rate{}
	for _, m := range p.GetMuxes() {
		muxes[m.GetMux()] = rate.Mux{
			Forwarded: rateFromProto(m.GetForwarded()), Passed: rateFromProto(m.GetPassed()), Dropped: rateFromProto(m.GetDropped()),
		}
	}
	for _, v := range p.GetVerdicts() {
		verdicts[v.GetName()] = rateFromProto(v.GetRate())
	}
	for _, v := range p.GetVips() {
		for _, e := range v.GetEndpoints() {
			at, err := wire.EndpointKeyFromProto(e.GetEndpoint())
			if err != nil {
				continue
			}
			key := rate.Key{VIP: v.GetVip(), Tenant: v.GetTenant(), Endpoint: at}
			endpoints[key] = endpoints[key].Add(rateFromProto(e.GetRate()))
		}
	}
	s := rate.Fold(p.GetAt().AsTime(), muxes, verdicts, endpoints)
	s.Other = s.Other.Add(rateFromProto(p.GetOther()))
	return s
}
