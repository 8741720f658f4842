package hardware

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

func newVIP() model.VIP {
	return model.VIP{
		Name: "fast", Tenant: "default", Address: netip.MustParseAddr("203.0.113.30"),
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}},
		Hardware:  &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1"}, UDP: model.UDPAtHome, Flood: model.FloodWithdraw},
	}
}

// What a switch does not do is refused by the path of its field, and only of a VIP in hardware.
func TestWhatSwitchesDoNotDoIsRefused(t *testing.T) {
	prefix := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	for what, c := range map[string]struct {
		change func(*model.VIP)
		fields []string
	}{
		"a valid one":         {func(*model.VIP) {}, nil},
		"flow table":          {func(v *model.VIP) { v.Consistency = model.ConsistencyFlowTable }, nil},
		"affinity":            {func(v *model.VIP) { v.Endpoints[0].Affinity = model.AffinityClient }, nil},
		"cookies for floods":  {func(v *model.VIP) { v.Endpoints[0].SYNCookies = model.SYNCookiesAuto }, nil},
		"source NAT":          {func(v *model.VIP) { v.SNAT = &model.SNAT{} }, nil},
		"a virtual network":   {func(v *model.VIP) { v.Attachments = make([]model.Attachment, 1) }, []string{"attachments"}},
		"fastpath":            {func(v *model.VIP) { v.Fastpath = &model.Fastpath{} }, []string{"fastpath"}},
		"limits and overload": {func(v *model.VIP) { v.Limits, v.Overload = &model.Limits{}, &model.Overload{} }, []string{"limits", "overload"}},
		"sources":             {func(v *model.VIP) { v.Endpoints[0].Allow, v.Endpoints[0].Deny = prefix, prefix }, []string{"endpoints[0].allow", "endpoints[0].deny"}},
		"lists":               {func(v *model.VIP) { v.Endpoints[0].AllowLists, v.Endpoints[0].DenyLists = []string{"a"}, []string{"b"} }, []string{"endpoints[0].allowLists", "endpoints[0].denyLists"}},
		"cookies for all":     {func(v *model.VIP) { v.Endpoints[0].SYNCookies = model.SYNCookiesAlways }, []string{"endpoints[0].synCookies"}},
		"no switch":           {func(v *model.VIP) { v.Hardware.Switches = nil }, []string{"hardware.switches"}},
		"a switch twice":      {func(v *model.VIP) { v.Hardware.Switches = []string{"sw1", "sw2", "sw1"} }, []string{"hardware.switches[2]"}},
		"no name":             {func(v *model.VIP) { v.Hardware.Switches = []string{"Sw 1"} }, []string{"hardware.switches[0]"}},
		"too many":            {func(v *model.VIP) { v.Hardware.Switches = make([]string, MaxSwitches+1) }, []string{"hardware.switches"}},
		"unknown words":       {func(v *model.VIP) { v.Hardware.Placement, v.Hardware.UDP, v.Hardware.Flood = "some", "far", "run" }, []string{"hardware.placement", "hardware.udp", "hardware.flood"}},
		"chosen by managers": {func(v *model.VIP) {
			v.Hardware, v.Fastpath = &model.Hardware{Placement: model.PlacementAuto, UDP: model.UDPAtHome, Flood: model.FloodStay, Spread: 2}, &model.Fastpath{}
		}, nil},
		"chosen and named": {func(v *model.VIP) { v.Hardware.Placement, v.Hardware.UDP = model.PlacementAuto, model.UDPLocal }, []string{"hardware.switches"}},
		"too many at once": {func(v *model.VIP) {
			v.Hardware = &model.Hardware{Placement: model.PlacementAuto, UDP: model.UDPAtHome, Flood: model.FloodStay, Spread: -1}
		}, []string{"hardware.spread"}},
		"many, but named":        {func(v *model.VIP) { v.Hardware.Spread = 2 }, []string{"hardware.spread"}},
		"not in hardware":        {func(v *model.VIP) { v.Hardware.Placement, v.Limits = model.PlacementNever, &model.Limits{} }, nil},
		"not in hardware, wrong": {func(v *model.VIP) { v.Hardware.Placement, v.Hardware.Switches = model.PlacementNever, []string{"-"} }, []string{"hardware.switches[0]"}},
		"flows and byHost":       {func(v *model.VIP) { v.Hardware.ByHost, v.Hardware.UDP = true, model.UDPLocal }, []string{"hardware.udp"}},
		"nothing said of it":     {func(v *model.VIP) { v.Hardware, v.Limits = nil, &model.Limits{} }, nil},
		"no switch, not required": {func(v *model.VIP) {
			v.Hardware = &model.Hardware{Placement: model.PlacementNever, UDP: model.UDPLocal, Flood: model.FloodStay}
		}, nil},
	} {
		vip := newVIP()
		c.change(&vip)
		var fields []string
		for _, e := range model.FieldErrors(Validate(vip)) {
			fields = append(fields, e.Field)
		}
		if !slices.Equal(fields, c.fields) {
			t.Errorf("%s: refused are %q, want %q", what, fields, c.fields)
		}
	}
}

func TestTIPs(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*model.VIP)
		fields []string
	}{
		"TIPs":           {func(v *model.VIP) { v.Hardware.TIPs = tips("sw2", "192.0.2.1", "sw3", "192.0.2.2") }, nil},
		"TIPs and parts": {func(v *model.VIP) { v.Hardware.Split, v.Hardware.TIPs = true, tips("sw2", "192.0.2.1") }, []string{"hardware.split"}},
		"too many TIPs":  {func(v *model.VIP) { v.Hardware.TIPs = make([]model.TIP, MaxSwitches+1) }, []string{"hardware.tips"}},
		"TIPs that are none": {
			func(v *model.VIP) {
				v.Hardware.TIPs = tips("sw1", "192.0.2.1", "S", "192.0.2.2", "sw3", "203.0.113.30", "sw4", "192.0.2.1", "sw4", "192.0.2.5", "sw6", "fd00::1", "sw7", "127.0.0.1", "sw8", "::ffff:192.0.2.8")
			},
			[]string{"hardware.tips[0].switch", "hardware.tips[1].switch", "hardware.tips[2].address", "hardware.tips[3].address", "hardware.tips[4].switch", "hardware.tips[5].address", "hardware.tips[6].address", "hardware.tips[7].address"},
		},
		"TIPs of what muxes have": {func(v *model.VIP) {
			v.Hardware = &model.Hardware{Placement: model.PlacementNever, UDP: model.UDPAtHome, Flood: model.FloodStay, TIPs: tips("sw2", "192.0.2.1")}
		}, []string{"hardware.tips"}},
		"TIPs of what is chosen": {func(v *model.VIP) {
			v.Hardware = &model.Hardware{Placement: model.PlacementAuto, UDP: model.UDPAtHome, Flood: model.FloodStay, TIPs: tips("sw2", "192.0.2.1")}
		}, []string{"hardware.tips"}},
	} {
		vip := newVIP()
		c.change(&vip)
		var fields []string
		for _, e := range model.FieldErrors(Validate(vip)) {
			fields = append(fields, e.Field)
		}
		if !slices.Equal(fields, c.fields) {
			t.Errorf("%s: refused are %q, want %q", what, fields, c.fields)
		}
	}
	vip := newVIP()
	vip.Hardware.TIPs = tips("sw2", "192.0.2.1")
	if !AsksFor(vip, "sw1") || !AsksFor(vip, "sw2") || AsksFor(vip, "sw3") || TIPAt(vip, "sw2") != vip.Hardware.TIPs[0].Address || TIPAt(vip, "sw1").IsValid() {
		t.Error("the switches behind TIPs are other ones")
	}
}

// tips are those of switches, each with its address.
func tips(list ...string) (tips []model.TIP) {
	for i := 0; i < len(list); i += 2 {
		tips = append(tips, model.TIP{Switch: list[i], Address: netip.MustParseAddr(list[i+1])})
	}
	return tips
}

func TestASwitchHasOneSourceOfEachFamily(t *testing.T) {
	four, six, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.2")
	for _, c := range []struct {
		role      model.Role
		addresses []netip.Addr
		valid     bool
	}{
		{model.RoleSwitch, []netip.Addr{four}, true},
		{model.RoleSwitch, []netip.Addr{four, six}, true},
		{model.RoleSwitch, []netip.Addr{four, other}, false},
		{model.RoleSwitch, []netip.Addr{four, six, other}, false},
		{model.RoleMux, []netip.Addr{four, other}, true},
	} {
		if err := ValidateNode(model.Node{Role: c.role, Addresses: c.addresses}); (err == nil) != c.valid {
			t.Errorf("a %s with %v: %v", c.role, c.addresses, err)
		}
	}
}
