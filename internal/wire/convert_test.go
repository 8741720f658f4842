package wire

import (
	"fmt"
	"net/netip"
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
	return rapid.SampledFrom([]*model.HealthCheck{
		nil, {Type: model.CheckHTTP, Path: "/healthz", Host: "shop.example", Port: 81, Interval: 2, Timeout: 1, Rise: 1, Fall: 1000},
	}).Draw(t, "check")
}

func drawFastpath(t *rapid.T) *model.Fastpath {
	return rapid.SampledFrom([]*model.Fastpath{nil, {Sources: drawSources(t), UDPPackets: model.MaxUDPPackets}}).Draw(t, "fastpath")
}

func drawSources(t *rapid.T) []netip.Prefix {
	return rapid.SampledFrom([][]netip.Prefix{nil, {netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.1/32")}}).Draw(t, "sources")
}

func drawSYNCookies(t *rapid.T) model.SYNCookies {
	return rapid.SampledFrom([]model.SYNCookies{model.SYNCookiesNever, model.SYNCookiesAuto, model.SYNCookiesAlways}).Draw(t, "syn cookies")
}

func TestUpdatesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mux := MuxUpdate{
			Generation: model.Generation(rapid.Uint64().Draw(t, "generation")), Snapshot: true,
			HashKey: flowhash.Key{1, 2, 3}, Removed: []model.EndpointKey{drawKey(t)},
			Endpoints: []model.MuxEndpoint{{
				Key: drawKey(t), Tenant: "acme", Buckets: []model.Slot{1, 8191, 1, 1}, Previous: []model.Slot{0, 1, 0, 8191},
				Cookies:    rapid.SampledFrom([]model.Cookies{model.CookiesOff, model.CookiesSettling, model.CookiesOn}).Draw(t, "cookies"),
				SYNCookies: drawSYNCookies(t), Affinity: rapid.Bool().Draw(t, "affinity"), Ping: rapid.Bool().Draw(t, "ping"),
				FlowLimit: rapid.Uint32().Draw(t, "limit"), IdleTimeout: time.Minute, Fastpath: drawFastpath(t), Allow: drawSources(t), Limits: &model.Limits{Packets: 1, Bytes: 2}, NAT: rapid.Bool().Draw(t, "NAT"),
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
				Key: drawSNATKey(t), Tunnel: drawAddr(t, true), Ranges: drawRanges(t), Tenant: "acme", Ping: rapid.Bool().Draw(t, "ping"), Written: 7,
			}},
			SNATRemoved: []model.SNATKey{drawSNATKey(t)},
		}
		muxBack, err := MuxUpdateFromProto(MuxUpdateToProto(mux), new(PrefixChunks))
		if diff := cmp.Diff(mux, muxBack, byValue); err != nil || diff != "" {
			t.Fatalf("a mux's update came back otherwise: %v\n%s", err, diff)
		}
		backend := model.HostBackend{
			SYNCookies: drawSYNCookies(t), Endpoint: drawKey(t), Tunnel: drawAddr(t, true), HealthCheck: drawCheck(t),
			Backend: netip.AddrPortFrom(drawAddr(t, true), drawPort(t)), Slot: 8191, Cookies: true,
			Buckets: 256, Draining: []uint32{0, 17, 255}, ChainPeers: []netip.Addr{drawAddr(t, true), drawAddr(t, false)}, Homes: []netip.Addr{drawAddr(t, true), drawAddr(t, false)},
			Affinity: true, IdleTimeout: time.Minute, Fastpath: true, Leave: drawSources(t), Stay: drawSources(t), Tenant: "acme", Allow: drawSources(t), Deny: drawSources(t),
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
			Backends: []model.HostBackend{backend}, Removed: []model.HostBackendKey{backend.Key()}, Steering: drawSteering(t),
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
	endpoint := model.MuxEndpoint{
		Key: model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.1"), Protocol: model.UDP}, Cookies: model.CookiesOff, SYNCookies: model.SYNCookiesNever, IdleTimeout: time.Minute,
		Backends: []model.MuxBackend{{
			Slot: 1, Tunnel: netip.MustParseAddr("10.0.0.1"), Backend: netip.MustParseAddrPort("10.0.0.1:0"),
		}},
	}
	endpointBack, err := MuxEndpointFromProto(MuxEndpointToProto(endpoint))
	if diff := cmp.Diff(endpoint, endpointBack, byValue); err != nil || diff != "" {
		t.Errorf("an endpoint came back otherwise: %v\n%s", err, diff)
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
		{host(func(b *weirv1.HostBackend) { b.ChainPeers = []string{"host2"} }), []string{"chain_peers[0]"}},
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
	f.Fuzz(func(t *testing.T, data []byte) {
		var mux weirv1.SyncMuxResponse
		if proto.Unmarshal(data, &mux) == nil && new(PortLists).CompleteMux(&mux) == nil {
			if _, err := MuxUpdateFromProto(&mux, new(PrefixChunks)); err != nil && fmt.Sprint(err) == "" {
				t.Error("refused without a reason")
			}
		}
		var host weirv1.SyncHostResponse
		if proto.Unmarshal(data, &host) == nil && new(PortLists).CompleteHost(&host) == nil {
			if _, err := HostUpdateFromProto(&host); err != nil && fmt.Sprint(err) == "" {
				t.Error("refused without a reason")
			}
		}
	})
}

// What a host can comes with its registration, also by way of another manager.
func TestRegistrationsSayWhatAHostCan(t *testing.T) {
	for _, can := range []bool{false, true} {
		node, err := HostFromProto(&weirv1.SyncHostRequest{Name: "host1", Addresses: []string{"10.0.0.2"}, Multipath: can})
		if again, onErr := NodeFromRegistration(RegistrationToProto(node)); err != nil || onErr != nil || node.Multipath != can || again.Multipath != can {
			t.Errorf("a host with multipath %v is %+v, handed on %+v (%v, %v)", can, node, again, err, onErr)
		}
	}
}
