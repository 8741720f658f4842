package manifest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// compiled is the VIP that a manager makes of a resource.
func compiled(t interface{ Fatal(args ...any) }, r Resource) model.VIP {
	vip, err := compile.VIP(r.Message.(*weirv1.VIP))
	if err != nil {
		t.Fatal(err)
	}
	return vip
}

func name(t *rapid.T, label string) string {
	return rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?`).Draw(t, label)
}

func port(t *rapid.T) uint16 { return rapid.Uint16Min(1).Draw(t, "port") }

// validVIP draws VIPs that Validate accepts, with every optional field there or left out.
func validVIP(t *rapid.T) model.VIP {
	v6 := rapid.Bool().Draw(t, "v6")
	pick := func(v4, six string, i int) netip.Addr {
		if v6 {
			return netip.MustParseAddr(fmt.Sprintf(six, i))
		}
		return netip.MustParseAddr(fmt.Sprintf(v4, i))
	}
	vip := model.VIP{
		Name: name(t, "name"), Tenant: name(t, "tenant"), Address: pick("203.0.113.%d", "2001:db8::%d", 10),
	}
	text := rapid.StringMatching(`[ -~äöü]{0,10}`)
	if labels := rapid.MapOfN(text, text, 0, 3).Draw(t, "labels"); len(labels) > 0 {
		vip.Labels = labels
	}
	vip.Consistency = rapid.SampledFrom([]model.Consistency{"", model.ConsistencyAuto, model.ConsistencyFlowTable}).Draw(t, "consistency")
	vip.Ping = rapid.SampledFrom([]model.Ping{"", model.PingAnswer, model.PingIgnore}).Draw(t, "ping")
	if rapid.Bool().Draw(t, "fastpath") {
		vip.Fastpath = &model.Fastpath{
			Sources:    []netip.Prefix{netip.PrefixFrom(vip.Address, vip.Address.BitLen())},
			UDPPackets: rapid.Uint32Max(model.MaxUDPPackets).Draw(t, "packets"),
		}
	}
	vip.FlowLimit, vip.Limits, vip.Overload = rapid.Uint32Max(model.MaxFlowLimit).Draw(t, "flow limit"), validLimits(t), validOverload(t)
	for i := range rapid.IntRange(1, 3).Draw(t, "endpoints") {
		e := model.Endpoint{
			Protocol: rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP}).Draw(t, "protocol"), Port: uint16(80 + i),
			AllUnhealthy: rapid.SampledFrom([]model.AllUnhealthy{"", model.KeepAll, model.Refuse}).Draw(t, "policy"),
			HealthCheck:  validCheck(t),
			Affinity:     rapid.SampledFrom([]model.Affinity{"", model.AffinityNone, model.AffinityClient}).Draw(t, "affinity"),
			IdleTimeout:  rapid.SampledFrom([]time.Duration{0, model.MinIdle, 90 * time.Second, model.MaxIdle}).Draw(t, "idle"),
		}
		if rapid.Bool().Draw(t, "sources") {
			near, _ := vip.Address.Prefix(vip.Address.BitLen() - 3)
			e.Allow, e.Deny = []netip.Prefix{near, netip.PrefixFrom(vip.Address, vip.Address.BitLen())}, []netip.Prefix{near}
		}
		all := i == 0 && rapid.Bool().Draw(t, "all ports")
		if all {
			e.Port = model.AllPorts
			if e.HealthCheck != nil {
				e.HealthCheck.Port = 22
			}
		}
		for j := range rapid.IntRange(0, 3).Draw(t, "backends") {
			b := model.Backend{
				Address: pick("10.3.1.%d", "fd00:3:1::%d", 10+j), Port: port(t), Host: name(t, "host"),
				Weight: rapid.Uint32Range(0, model.MaxWeight).Draw(t, "weight"),
			}
			if all {
				b.Port = 0
			}
			if rapid.Bool().Draw(t, "tunnel") {
				b.Tunnel = netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 10+j))
			}
			e.Backends = append(e.Backends, b)
		}
		vip.Endpoints = append(vip.Endpoints, e)
	}
	return vip
}

func validLimits(t *rapid.T) *model.Limits {
	return rapid.SampledFrom([]*model.Limits{nil, {Packets: 1}, {Bytes: 2, Connections: model.MaxLimit}}).Draw(t, "limits")
}

func validCheck(t *rapid.T) *model.HealthCheck {
	if rapid.Bool().Draw(t, "unchecked") {
		return nil
	}
	c := &model.HealthCheck{Type: model.CheckTCP, Rise: 1 + rapid.Uint32Range(0, 9).Draw(t, "rise"), Fall: 3}
	c.Interval = time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "interval"))
	c.Timeout = min(c.Interval, time.Second)
	if rapid.Bool().Draw(t, "http") {
		c.Type, c.Path, c.Host = model.CheckHTTP, "/"+name(t, "path"), name(t, "check host")
		c.Port = port(t)
	}
	return c
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vip, other := validVIP(t), validVIP(t)
		other.Name = vip.Name + "2"
		if err := vip.Validate(); err != nil {
			t.Fatal(err)
		}
		first := compile.VIPMessage(vip)
		first.ResourceVersion = 7
		documents := []Document{{first, map[string]int{"generation": 9}}, {compile.VIPMessage(other), nil}}
		asYAML, err := Encode(documents...)
		if err != nil {
			t.Fatal(err)
		}
		asJSON, err := json.Marshal(documents)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{asYAML, asJSON} {
			resources, err := Parse("written", text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			for i, want := range []model.VIP{vip, other} {
				if got := compiled(t, resources[i]); !reflect.DeepEqual(got, want) {
					t.Fatalf("got  %+v\nwant %+v\n%s", got, want, text)
				}
			}
		}
	})
}

func validOverload(t *rapid.T) *model.Overload {
	return rapid.SampledFrom([]*model.Overload{nil, {
		Triggers: []model.OverloadCause{model.CauseSYNFlood}, HoldDown: time.Minute, MaxHoldDown: time.Hour,
		Steps: []model.OverloadStep{
			{Action: model.ActionLimit, After: time.Second, Limits: &model.Limits{Bytes: 7}},
			{Action: model.ActionScrub, After: 2 * time.Second, Scrubber: "east"},
			{Action: model.ActionBlackhole, After: 3 * time.Second},
		},
	}}).Draw(t, "overload")
}
