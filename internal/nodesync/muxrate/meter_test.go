package muxrate

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rate"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// sample is what the muxes of a manager did: a VIP of each tenant has as many packets as the mux.
func sample(i int, mux string, packets float64, tenants ...string) *rate.Sample {
	r := rate.Rate{Packets: packets, Bits: 8 * packets}
	endpoints := map[rate.Key]rate.Rate{}
	for n, tenant := range tenants {
		endpoints[rate.Key{VIP: tenant + "-shop", Tenant: tenant, Endpoint: model.EndpointKey{
			VIP: netip.AddrFrom4([4]byte{203, 0, 113, byte(n)}), Protocol: model.TCP, Port: 80,
		}}] = rate.Rate{Packets: packets - float64(n), Bits: 8 * packets}
	}
	return rate.Fold(noon.Add(time.Duration(i)*DefaultInterval), map[string]rate.Mux{mux: {Forwarded: r}}, map[string]rate.Rate{"forward_flow": r}, endpoints)
}

// A watcher is told of an interval once all managers have told of it that told of the one before, or when they had their
// time; what comes later is in what has been; what comes twice counts once.
func TestWatchersAreToldOfAllManagers(t *testing.T) {
	m := New(Config{Name: "m1", Interval: DefaultInterval})
	holds := func(what string, i, muxes int) {
		t.Helper()
		samples, _ := m.Since(false, noon.Add(time.Duration(i-1)*DefaultInterval))
		if muxes == 0 && len(samples) == 0 {
			return
		}
		if len(samples) == 0 || len(samples[0].Muxes) != muxes || samples[0].Verdicts["forward_flow"].Packets != float64(10*muxes) {
			t.Errorf("%s: watchers are told %v, want %d muxes", what, samples, muxes)
		}
	}
	m.put("m1", sample(1, "mux1", 10))
	holds("one manager alone", 1, 1)
	m.put("m2", sample(1, "mux2", 10))
	holds("another one has come", 1, 2)
	_, more := m.Since(false, noon)
	m.put("m1", sample(2, "mux1", 10))
	select {
	case <-more:
	default:
		t.Error("nobody is woken")
	}
	holds("the other one is waited for", 2, 0)
	m.put("m2", sample(2, "mux2", 10))
	holds("both are there", 2, 2)
	m.put("m2", sample(2, "mux2", 10))
	holds("one comes twice", 2, 2)
	m.put("m1", sample(3, "mux1", 10))
	m.release(noon.Add(3 * DefaultInterval))
	holds("the other one is late", 3, 1)
	m.put("m1", sample(4, "mux1", 10))
	holds("the other one is lost", 4, 1)
	m.forget("m2")
	if own, _ := m.Since(true, time.Time{}); len(own) != 4 || slices.ContainsFunc(own, func(s *rate.Sample) bool { return len(s.Muxes) != 1 }) {
		t.Errorf("its own muxes did %v", own)
	}
	m.seed([]*rate.Sample{sample(0, "mux3", 10), sample(2, "mux3", 10)})
	holds("another manager's past", 2, 2)
	if all, _ := m.Since(false, time.Time{}); len(all) != 5 {
		t.Errorf("%d samples are known, want 5", len(all))
	}
}

// A message has what a caller asks for and may see, and is read as what was written.
func TestSamplesAsMessages(t *testing.T) {
	s := sample(1, "mux1", 10, "red", "blue", "teal")
	s.Other = rate.Rate{Packets: 5, Bits: 40}
	sees := func(tenants ...string) func(string) bool {
		return func(tenant string) bool { return len(tenants) == 0 || slices.Contains(tenants, tenant) }
	}
	vips := func(p *weirv1.WatchRatesResponse) (names []string) {
		for _, v := range p.GetVips() {
			names = append(names, v.GetVip())
		}
		return names
	}
	for _, c := range []struct {
		filter Filter
		want   []string
	}{
		{Filter{Sees: sees()}, nil},
		{Filter{Sees: sees(), Busiest: 2}, []string{"red-shop", "blue-shop"}},
		{Filter{Sees: sees(), Busiest: 1, VIPs: []string{"teal-shop"}}, []string{"red-shop", "teal-shop"}},
		{Filter{Sees: sees("blue"), Busiest: 9, VIPs: []string{"red-shop"}}, []string{"blue-shop"}},
	} {
		p := c.filter.ToProto(s)
		if !slices.Equal(vips(p), c.want) || len(p.GetMuxes())+len(p.GetVerdicts()) > 0 || !proto.Equal(p.GetOther(), &weirv1.Rate{}) {
			t.Errorf("%+v: %v, want %v and nothing of muxes", c.filter, p, c.want)
		}
	}
	whole := Filter{Cluster: true, Sees: sees(), Busiest: rate.MaxEndpoints}
	p := whole.ToProto(s)
	if again := whole.ToProto(FromProto(p)); !proto.Equal(p, again) || len(p.GetVips()) != 3 || p.GetOther().GetPackets() != 5 {
		t.Errorf("wrote %v\nread %v", p, again)
	}
}
