package rpc

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})

func drawAddr(t *rapid.T, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{10, rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"), rapid.Byte().Draw(t, "d")})
	}
	a := netip.MustParseAddr("2001:db8::").As16()
	copy(a[12:], rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "low"))
	return netip.AddrFrom16(a)
}

func drawPort(t *rapid.T) uint16 { return rapid.Uint16Min(1).Draw(t, "port") }

func drawKey(t *rapid.T) model.EndpointKey {
	return model.EndpointKey{
		VIP:      drawAddr(t, rapid.Bool().Draw(t, "v4")),
		Protocol: rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP}).Draw(t, "protocol"),
		Port:     drawPort(t),
	}
}

func drawSNAT(t *rapid.T, v4 bool) *model.SNAT {
	s := &model.SNAT{
		Workloads: []model.SNATWorkload{
			{Address: netip.MustParseAddr(map[bool]string{true: "192.168.2.4", false: "fd77::4"}[v4]), Host: "host1"},
			{
				Address: netip.MustParseAddr(map[bool]string{true: "192.168.2.5", false: "fd77::5"}[v4]), Host: "10.9.9.9",
				Tunnel: netip.AddrFrom4([4]byte{172, 17, 0, 1}),
			},
		},
		Preallocate: 8 * rapid.Uint32Range(0, 4).Draw(t, "preallocate"), MaxPorts: 8 * rapid.Uint32Range(4, 8064).Draw(t, "most"),
		RequestRate: rapid.Uint32Range(1, model.MaxRequestRate).Draw(t, "rate"), IdleTimeout: time.Minute,
		Filtering: rapid.SampledFrom([]model.Filtering{model.FilterAddressAndPort, model.FilterAddress, model.FilterNone}).Draw(t, "filtering"),
		Exhausted: rapid.SampledFrom([]model.Exhausted{model.ExhaustedReject, model.ExhaustedDrop}).Draw(t, "exhausted"),
	}
	if rapid.Bool().Draw(t, "lists") {
		s.Reserved = []model.PortRange{{First: 1, Last: 1023}, {First: 8080, Last: 8080}}
		s.Except = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}
	return s
}

func drawSNATKey(t *rapid.T) model.SNATKey {
	v4 := rapid.Bool().Draw(t, "v4")
	return model.SNATKey{VIP: drawAddr(t, v4), Address: drawAddr(t, v4)}
}

func drawRanges(t *rapid.T) []model.Range {
	numbers := rapid.SliceOfNDistinct(rapid.Uint16Range(0, 8191), 2, 9, rapid.ID).Draw(t, "ranges")
	slices.Sort(numbers)
	ranges := make([]model.Range, 0, len(numbers))
	for _, n := range numbers {
		ranges = append(ranges, model.Range(n))
	}
	return ranges
}

func drawCheck(t *rapid.T) *model.HealthCheck {
	if rapid.Bool().Draw(t, "unchecked") {
		return nil
	}
	c := &model.HealthCheck{
		Type: model.CheckHTTP, Path: "/healthz", Host: "shop.example", Port: rapid.Uint16().Draw(t, "check port"),
		Interval: time.Duration(rapid.Int64Range(2, 1e11).Draw(t, "interval")),
		Rise:     rapid.Uint32Range(1, 1000).Draw(t, "rise"), Fall: rapid.Uint32Range(1, 1000).Draw(t, "fall"),
	}
	c.Timeout = c.Interval / 2
	return c
}

func drawFastpath(t *rapid.T, v4 bool) *model.Fastpath {
	if rapid.Bool().Draw(t, "no fastpath") {
		return nil
	}
	source := drawAddr(t, v4)
	return &model.Fastpath{
		Sources:    []netip.Prefix{netip.PrefixFrom(source, source.BitLen())},
		UDPPackets: rapid.Uint32Max(model.MaxUDPPackets).Draw(t, "packets"),
	}
}

func drawSources(t *rapid.T, v4 bool) (list []netip.Prefix) {
	for i := range rapid.IntRange(0, 3).Draw(t, "sources") {
		a := drawAddr(t, v4)
		p, _ := a.Prefix(a.BitLen() - i)
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

func drawVIP(t *rapid.T) model.VIP {
	v4 := rapid.Bool().Draw(t, "v4")
	vip := model.VIP{
		Name: "shop", Tenant: "acme", Labels: map[string]string{"tier": "web"}, Address: drawAddr(t, v4),
		Consistency: rapid.SampledFrom([]model.Consistency{"", model.ConsistencyAuto, model.ConsistencyFlowTable}).Draw(t, "consistency"),
		Ping:        rapid.SampledFrom([]model.Ping{"", model.PingAnswer, model.PingIgnore}).Draw(t, "ping"),
		FlowLimit:   rapid.Uint32Max(model.MaxFlowLimit).Draw(t, "flow limit"),
		Fastpath:    drawFastpath(t, v4),
		Limits:      rapid.SampledFrom([]*model.Limits{nil, {Packets: 1}, {Bytes: 2, Connections: model.MaxLimit}}).Draw(t, "limits"),
		Overload:    rapid.SampledFrom([]*model.Overload{nil, wholeOverload()}).Draw(t, "overload"),
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "endpoints") {
		e := model.Endpoint{
			Protocol: model.TCP, Port: uint16(i + 1), HealthCheck: drawCheck(t), AllUnhealthy: model.Refuse,
			Affinity:    rapid.SampledFrom([]model.Affinity{"", model.AffinityNone, model.AffinityClient}).Draw(t, "affinity"),
			IdleTimeout: rapid.SampledFrom([]time.Duration{0, model.MinIdle, time.Minute, model.MaxIdle}).Draw(t, "idle"),
			Allow:       drawSources(t, v4), Deny: drawSources(t, v4),
		}
		for j := range rapid.IntRange(0, 3).Draw(t, "backends") {
			e.Backends = append(e.Backends, model.Backend{
				Address: netip.MustParseAddr(map[bool]string{true: "192.168.2.3", false: "fd77::3"}[v4]), // no VIP that is drawn
				Port:    uint16(j + 1), Host: "host1", Weight: rapid.Uint32Max(model.MaxWeight).Draw(t, "weight"),
				Tunnel: netip.AddrFrom4([4]byte{172, 16, byte(i), byte(j)}),
			})
		}
		vip.Endpoints = append(vip.Endpoints, e)
	}
	if rapid.Bool().Draw(t, "snat") {
		vip.SNAT = drawSNAT(t, v4)
	}
	return vip
}

func TestVIPsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vip := drawVIP(t)
		back, err := VIPFromProto(VIPToProto(vip))
		if err != nil || !reflect.DeepEqual(vip, back) {
			t.Fatalf("%+v came back as %+v, %v", vip, back, err)
		}
	})
}

func TestUpdatesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mux := MuxUpdate{
			Generation: model.Generation(rapid.Uint64().Draw(t, "generation")), Snapshot: true,
			HashKey: flowhash.Key{1, 2, 3}, Removed: []model.EndpointKey{drawKey(t)},
			Endpoints: []model.MuxEndpoint{{
				Key: drawKey(t), Tenant: "acme", Buckets: []model.Slot{1, 8191, 1, 1}, Previous: []model.Slot{0, 1, 0, 8191},
				Cookies:  rapid.SampledFrom([]model.Cookies{model.CookiesOff, model.CookiesSettling, model.CookiesOn}).Draw(t, "cookies"),
				Affinity: rapid.Bool().Draw(t, "affinity"), Ping: rapid.Bool().Draw(t, "ping"),
				FlowLimit: rapid.Uint32().Draw(t, "limit"), IdleTimeout: time.Minute, Fastpath: drawFastpath(t, true), Allow: drawSources(t, true), Limits: &model.Limits{Packets: 1, Bytes: 2},
				Backends: []model.MuxBackend{
					{Slot: 1, Tunnel: drawAddr(t, true), Backend: netip.AddrPortFrom(drawAddr(t, false), drawPort(t))},
					{Slot: 8191, Tunnel: drawAddr(t, false), Backend: netip.AddrPortFrom(drawAddr(t, true), drawPort(t)), Down: true, Retired: true},
				},
			}},
			Pool: []model.PoolMember{
				{Name: "mux1", Addresses: []netip.Addr{drawAddr(t, true), drawAddr(t, false)}},
				{Name: "mux2", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd09::/64")}},
			},
			SNAT: []model.MuxSNAT{{
				Key: drawSNATKey(t), Tunnel: drawAddr(t, true), Ranges: drawRanges(t), Tenant: "acme", Ping: rapid.Bool().Draw(t, "ping"),
			}},
			SNATRemoved: []model.SNATKey{drawSNATKey(t)},
		}
		muxBack, err := MuxUpdateFromProto(MuxUpdateToProto(mux), new(PrefixChunks))
		if diff := cmp.Diff(mux, muxBack, byValue); err != nil || diff != "" {
			t.Fatalf("a mux's update came back otherwise: %v\n%s", err, diff)
		}
		backend := model.HostBackend{
			Endpoint: drawKey(t), Tunnel: drawAddr(t, true), HealthCheck: drawCheck(t),
			Backend: netip.AddrPortFrom(drawAddr(t, true), drawPort(t)), Slot: 8191, Cookies: true,
			Buckets: 256, Draining: []uint32{0, 17, 255}, Peers: []netip.Addr{drawAddr(t, true), drawAddr(t, false)},
			Affinity: true, IdleTimeout: time.Minute, Fastpath: true, Leave: drawSources(t, true), Stay: drawSources(t, true), Tenant: "acme",
		}
		ranges := drawRanges(t)
		host := HostUpdate{
			SNATSnapshot: rapid.Bool().Draw(t, "snapshot"), SNATRemoved: []model.SNATKey{drawSNATKey(t)},
			SNAT: []model.HostSNAT{{
				Key: drawSNATKey(t), Tunnel: drawAddr(t, true), Ranges: ranges, Reclaim: ranges[: len(ranges)/2 : len(ranges)/2],
				Except:    []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fc00::/7")},
				Filtering: model.FilterAddress, Exhausted: model.ExhaustedDrop, IdleTimeout: time.Minute, MaxPorts: 64, KeepPorts: 8, Written: 7, Cluster: 5, Tenant: "acme",
			}},
			Generation: 7, Cluster: 5, Snapshot: true, HashKey: flowhash.Key{4, 5},
			Muxes:    []netip.Prefix{netip.PrefixFrom(drawAddr(t, true), 32), netip.MustParsePrefix("fd09::/64")},
			Backends: []model.HostBackend{backend}, Removed: []model.HostBackendKey{backend.Key()},
		}
		hostBack, err := HostUpdateFromProto(HostUpdateToProto(host))
		if diff := cmp.Diff(host, hostBack, byValue); err != nil || diff != "" {
			t.Fatalf("a host's update came back otherwise: %v\n%s", err, diff)
		}
		sessions := model.BackendSessions{Key: backend.Key(), Sessions: 9, WithoutCookie: 4, Draining: 2}
		if back, err := BackendSessionsFromProto(BackendSessionsToProto(sessions)); err != nil || back != sessions {
			t.Fatalf("%v came back as %v, %v", sessions, back, err)
		}
		health := model.BackendHealth{Endpoint: drawKey(t), Backend: backend.Backend, Health: model.HealthUnhealthy, Reason: "refused"}
		if back, err := BackendHealthFromProto(BackendHealthToProto(health)); err != nil || back != health {
			t.Fatalf("%v came back as %v, %v", health, back, err)
		}
	})
}

func TestEndpointsOfAllPorts(t *testing.T) {
	vip := model.VIP{Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.1"), Endpoints: []model.Endpoint{{
		Protocol: model.UDP, Port: model.AllPorts,
		Backends: []model.Backend{{Address: netip.MustParseAddr("10.0.0.1"), Host: "host1", Weight: 1}},
	}}}
	back, err := VIPFromProto(VIPToProto(vip))
	if err != nil || !reflect.DeepEqual(vip, back) {
		t.Errorf("%+v came back as %+v, %v", vip, back, err)
	}
	endpoint := model.MuxEndpoint{
		Key: model.EndpointKey{VIP: vip.Address, Protocol: model.UDP}, Cookies: model.CookiesOff, IdleTimeout: time.Minute,
		Backends: []model.MuxBackend{{
			Slot: 1, Tunnel: netip.MustParseAddr("10.0.0.1"), Backend: netip.MustParseAddrPort("10.0.0.1:0"),
		}},
	}
	endpointBack, err := MuxEndpointFromProto(MuxEndpointToProto(endpoint))
	if diff := cmp.Diff(endpoint, endpointBack, byValue); err != nil || diff != "" {
		t.Errorf("an endpoint came back otherwise: %v\n%s", err, diff)
	}
}

func TestDefaultsOfAVIP(t *testing.T) {
	vip, err := VIPFromProto(&weirv1.VIP{Name: "shop", Address: "203.0.113.1", Endpoints: []*weirv1.Endpoint{{
		Protocol: "tcp", Port: 80, HealthCheck: &weirv1.HealthCheck{Check: &weirv1.HealthCheck_Tcp{}},
		Backends: []*weirv1.Backend{{Address: "10.0.0.1", Port: 80, Host: "host1"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	want := model.HealthCheck{Type: model.CheckTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
	if vip.Tenant != "default" || vip.Endpoints[0].Backends[0].Weight != 1 || *vip.Endpoints[0].HealthCheck != want {
		t.Errorf("got %+v, %+v", vip, vip.Endpoints[0].HealthCheck)
	}
}

func TestWhatFromProtoRefuses(t *testing.T) {
	key := func() *weirv1.EndpointKey { return &weirv1.EndpointKey{Vip: "203.0.113.1", Protocol: "TCP", Port: 80} }
	backend := func(slot uint32) *weirv1.MuxBackend {
		return &weirv1.MuxBackend{Slot: slot, Tunnel: "10.0.0.1", Address: "10.0.0.1", Port: 80}
	}
	mux := func(change func(*weirv1.MuxEndpoint)) error {
		e := &weirv1.MuxEndpoint{Endpoint: key(), Buckets: []uint32{1, 1}, Backends: []*weirv1.MuxBackend{backend(1)}}
		change(e)
		_, err := MuxEndpointFromProto(e)
		return err
	}
	host := func(change func(*weirv1.HostBackend)) error {
		b := &weirv1.HostBackend{Endpoint: key(), Tunnel: "10.0.0.1", Address: "10.0.0.1", Port: 80, Slot: 1, Buckets: 8}
		change(b)
		_, err := HostBackendFromProto(b)
		return err
	}
	_, hashErr := MuxUpdateFromProto(&weirv1.SyncMuxResponse{Snapshot: true, HashKey: []byte{1}}, new(PrefixChunks))
	if hashErr == nil {
		t.Error("a hash key of one byte was accepted")
	}
	_, hostErr := HostUpdateFromProto(&weirv1.SyncHostResponse{Muxes: []string{"x"}, Removed: []*weirv1.HostBackendKey{nil}})
	_, nodeErr := HostFromProto(&weirv1.SyncHostRequest{Name: "Host 1"})
	for _, c := range []struct {
		err  error
		want []string
	}{
		{mux(func(*weirv1.MuxEndpoint) {}), nil},
		{mux(func(e *weirv1.MuxEndpoint) { e.Endpoint = nil }), []string{"endpoint.vip", "endpoint.protocol"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Previous = []uint32{1} }), []string{"previous"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Previous = []uint32{0, 2} }), []string{"previous[1]"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Cookies = "maybe" }), []string{"cookies"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.IdleTimeout = durationpb.New(time.Millisecond) }), []string{"idleTimeout"}},
		{host(func(*weirv1.HostBackend) {}), nil},
		{host(func(b *weirv1.HostBackend) { b.Draining = []uint32{8} }), []string{"draining[0]"}},
		{host(func(b *weirv1.HostBackend) { b.Draining = []uint32{3, 3} }), []string{"draining[1]"}},
		{host(func(b *weirv1.HostBackend) { b.Cookies, b.Slot = true, 0 }), []string{"slot"}},
		{host(func(b *weirv1.HostBackend) { b.Peers = []string{"host2"} }), []string{"peers[0]"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Buckets = []uint32{1, 1, 1} }), []string{"buckets"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Buckets = []uint32{1, 2} }), []string{"buckets[1]"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Buckets = []uint32{0} }), []string{"buckets[0]"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Buckets = []uint32{65537} }), []string{"buckets[0]"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Backends = append(e.Backends, backend(8192)) }), []string{"backends[1].slot"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Backends = append(e.Backends, backend(1)) }), []string{"backends[1].slot"}},
		{mux(func(e *weirv1.MuxEndpoint) { e.Backends[0].Tunnel = "::ffff:10.0.0.1" }), []string{"backends[0].tunnel"}},
		{hostErr, []string{"muxes[0]", "removed[0].endpoint.vip", "removed[0].endpoint.protocol", "removed[0].tunnel"}},
		{nodeErr, []string{"name", "addresses"}},
	} {
		var got []string
		for _, e := range model.FieldErrors(c.err) {
			got = append(got, e.Field)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("refused %v, want %v: %v", got, c.want, c.err)
		}
	}
}

// Any bytes at all become a valid value or an error, never a panic.
func FuzzFromProto(f *testing.F) {
	seed, err := proto.Marshal(&weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{VIPToProto(model.VIP{
		Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.1"),
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}},
	})}, Pools: []*weirv1.AddressPool{{Name: "public", Prefixes: []string{"203.0.113.0/24"}, Exclusions: []string{"203.0.113.0"}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var apply weirv1.ApplyVIPsRequest
		if proto.Unmarshal(data, &apply) == nil {
			vips, err := VIPsFromProto(apply.Vips)
			for _, vip := range vips {
				if err == nil && vip.Validate() != nil {
					t.Errorf("accepted %+v: %v", vip, vip.Validate())
				}
			}
		}
		pools, err := AddressPoolsFromProto(apply.Pools)
		for _, pool := range pools {
			if err == nil && pool.Validate() != nil {
				t.Errorf("accepted %+v: %v", pool, pool.Validate())
			}
		}
		var mux weirv1.SyncMuxResponse
		if proto.Unmarshal(data, &mux) == nil {
			if _, err := MuxUpdateFromProto(&mux, new(PrefixChunks)); err != nil && fmt.Sprint(err) == "" {
				t.Error("refused without a reason")
			}
		}
		var host weirv1.SyncHostResponse
		if proto.Unmarshal(data, &host) == nil {
			if _, err := HostUpdateFromProto(&host); err != nil && fmt.Sprint(err) == "" {
				t.Error("refused without a reason")
			}
		}
	})
}

// wholeOverload has every field.
func wholeOverload() *model.Overload {
	return &model.Overload{
		Triggers: []model.OverloadCause{model.CauseOverload, model.CauseSYNFlood}, HoldDown: time.Minute, MaxHoldDown: time.Hour,
		Steps: []model.OverloadStep{
			{Action: model.ActionLimit, After: time.Second, Limits: &model.Limits{Bytes: 7}},
			{Action: model.ActionScrub, After: 2 * time.Second, Scrubber: "east"},
			{Action: model.ActionBlackhole, After: 3 * time.Second},
		},
	}
}
