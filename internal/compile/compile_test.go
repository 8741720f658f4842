package compile

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
)

func drawAddr(t *rapid.T, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{10, rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"), rapid.Byte().Draw(t, "d")})
	}
	a := netip.MustParseAddr("2001:db8::").As16()
	copy(a[12:], rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "low"))
	return netip.AddrFrom16(a)
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

// drawHardware asks for switches where the VIP wants nothing that they do not do.
func drawHardware(t *rapid.T, vip model.VIP) *model.Hardware {
	h := &model.Hardware{
		Placement: model.PlacementRequire, Switches: []string{"sw1", "sw2"},
		UDP:    rapid.SampledFrom([]model.UDPHome{model.UDPAtHome, model.UDPLocal}).Draw(t, "udp"),
		ByHost: rapid.Bool().Draw(t, "byHost"),
		Flood:  rapid.SampledFrom([]model.OnFlood{model.FloodWithdraw, model.FloodStay}).Draw(t, "flood"),
	}
	if h.ByHost {
		h.UDP = model.UDPAtHome
	}
	vip.Hardware = h
	if hardware.Validate(vip) != nil {
		h.Placement = model.PlacementNever
	}
	return rapid.SampledFrom([]*model.Hardware{nil, h}).Draw(t, "hardware")
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
			Allow:       drawSources(t, v4), Deny: drawSources(t, v4), Multipath: rapid.Bool().Draw(t, "multipath"),
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
	vip.Hardware = drawHardware(t, vip)
	return vip
}

func TestVIPsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vip := drawVIP(t)
		back, err := VIP(VIPMessage(vip))
		if err != nil || !reflect.DeepEqual(vip, back) {
			t.Fatalf("%+v came back as %+v, %v", vip, back, err)
		}
	})
}

func TestEndpointsOfAllPorts(t *testing.T) {
	vip := model.VIP{Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.1"), Endpoints: []model.Endpoint{{
		Protocol: model.UDP, Port: model.AllPorts,
		Backends: []model.Backend{{Address: netip.MustParseAddr("10.0.0.1"), Host: "host1", Weight: 1}},
	}}}
	back, err := VIP(VIPMessage(vip))
	if err != nil || !reflect.DeepEqual(vip, back) {
		t.Errorf("%+v came back as %+v, %v", vip, back, err)
	}
}

func TestDefaultsOfAVIP(t *testing.T) {
	vip, err := VIP(&weirv1.VIP{Name: "shop", Address: "203.0.113.1", Endpoints: []*weirv1.Endpoint{{
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

// Any bytes at all become a valid value or an error, never a panic.
func FuzzMessages(f *testing.F) {
	seed, err := proto.Marshal(&weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{VIPMessage(model.VIP{
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
			vips, err := VIPs(apply.Vips)
			for _, vip := range vips {
				if err == nil && vip.Validate() != nil {
					t.Errorf("accepted %+v: %v", vip, vip.Validate())
				}
			}
		}
		pools, err := AddressPools(apply.Pools)
		for _, pool := range pools {
			if err == nil && pool.Validate() != nil {
				t.Errorf("accepted %+v: %v", pool, pool.Validate())
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

// Where full NAT changes addresses is a field of its own, and comes back as it was written.
func TestAttachmentsSayWhereFullNATIs(t *testing.T) {
	for _, c := range []struct {
		mode, nat string
		want      model.AttachmentMode
		wrong     string
	}{
		{"", "", model.ModeBypass, ""},
		{"full-nat", "", model.ModeFullNAT, ""},
		{"full-nat", "host", model.ModeFullNAT, ""},
		{"full-nat", "mux", model.ModeNATInMux, ""},
		{"bypass", "mux", "", "attachments[0].nat: is of mode full-nat alone"},
		{"full-nat", "client", "", `attachments[0].nat: must be host or mux, is "client"`},
		{"full-nat in the mux", "", "", `attachments[0].mode: must be bypass or full-nat, is "full-nat in the mux"`},
	} {
		var f Fields
		got := f.attachments("attachments", []*weirv1.Attachment{{Network: "prod", Address: "10.99.0.1", Mode: c.mode, Nat: c.nat}})
		switch err := f.Err(); {
		case c.wrong != "" && (err == nil || err.Error() != c.wrong):
			t.Errorf("%+v: %v", c, err)
		case c.wrong == "" && (err != nil || got[0].Mode != c.want):
			t.Errorf("%+v is %q: %v", c, got[0].Mode, err)
		}
		if back := attachmentMessages(got)[0]; c.nat == "mux" && c.wrong == "" && (back.GetMode() != c.mode || back.GetNat() != c.nat) {
			t.Errorf("%+v came back as %v", c, back)
		}
	}
}

// Multipath is for TCP, and for as many backends as may be each other's peers.
func TestWhereMultipathIs(t *testing.T) {
	for _, c := range []struct {
		mode, protocol string
		backends       int
		refused        bool
	}{
		{"auto", "TCP", 1, false},
		{"off", "UDP", 1, false},
		{"", "UDP", 1, false},
		{"auto", "UDP", 1, true},
		{"on", "TCP", 1, true},
		{"auto", "TCP", maxMultipathBackends, false},
		{"auto", "TCP", maxMultipathBackends + 1, true},
		{"off", "TCP", maxMultipathBackends + 1, false},
	} {
		e := &weirv1.Endpoint{Protocol: c.protocol, Port: 80, Multipath: c.mode}
		for i := range c.backends {
			address := netip.AddrFrom4([4]byte{10, 3, byte(i >> 8), byte(i)}).String()
			e.Backends = append(e.Backends, &weirv1.Backend{Address: address, Host: "host1"})
		}
		vip, err := VIP(&weirv1.VIP{Name: "shop", Address: "203.0.113.10", Endpoints: []*weirv1.Endpoint{e}})
		if c.refused != (err != nil) || err == nil && vip.Endpoints[0].Multipath != (c.mode == "auto") {
			t.Errorf("%s of %s with %d backends: %v", c.mode, c.protocol, c.backends, err)
		}
		if err != nil && !strings.Contains(err.Error(), "multipath") {
			t.Errorf("%s of %s with %d backends is refused with %q", c.mode, c.protocol, c.backends, err)
		}
	}
}

// A request that is wrong everywhere is told its first errors, and how many more there are.
func TestErrorsOfManyVIPsAreBounded(t *testing.T) {
	const vips, endpoints = 16384, 15
	var list []*weirv1.VIP
	for range vips {
		list = append(list, &weirv1.VIP{Hardware: &weirv1.Hardware{}, Endpoints: make([]*weirv1.Endpoint, endpoints)})
	}
	one, err := VIP(list[0])
	each := 0
	for _, e := range model.FieldErrors(err) {
		each += max(e.More, 1)
	}
	if each <= endpoints {
		t.Fatalf("%d errors of one VIP %v: %v", each, one, err)
	}
	read, err := VIPs(list)
	errs := model.FieldErrors(err)
	if len(errs) != model.MaxFieldErrors+1 || len(read) != 0 {
		t.Fatalf("%d errors and %d VIPs, want %d and none", len(errs), len(read), model.MaxFieldErrors+1)
	}
	last := errs[model.MaxFieldErrors]
	if last.More != vips*each-model.MaxFieldErrors || last.Field[:len("vips[")] != "vips[" {
		t.Errorf("the last error is %v, of %d; want the count of %d", last, last.More, vips*each-model.MaxFieldErrors)
	}
}
