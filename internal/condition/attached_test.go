package condition

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// dock is a State with a VIP that all of muxes and hosts have: on host1, with clients on host2.
func dock() (*store.State, model.VIP) {
	vip := model.VIP{
		Name: "dock", Tenant: "blue", Attachments: []model.Attachment{{Network: "bay", Address: netip.MustParseAddr("10.99.0.1"), Mode: model.ModeBypass}},
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: []model.Backend{{Host: "host1"}}}},
	}
	s := &store.State{Generation: 7, FBTMasters: []fbt.Master{{ID: 1}, {ID: 2}}, OverlayWritten: 5}
	s.Networks.Overlay = &vnet.Overlay{}
	s.Networks.Put(vnet.Network{Name: "bay", Tenant: "green", VNI: 7, AllowedTenants: []string{"blue"}, Workloads: []vnet.Workload{{Host: "host2", Interface: "tap0"}}})
	s.NetworkWritten.Set("bay", 6)
	s.PutVIP(vip)
	for i, host := range []string{"host1", "host2"} {
		s.PutNode(model.Node{Name: host, Role: model.RoleHost})
		s.Networks.Numbers.Put(host, network.Number{Number: uint32(i + 1)})
	}
	s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux})
	s.Streams.Set("mux1", true)
	s.Status.Set("mux1", nodestatus.Status{Generation: 7})
	return s, vip
}

// natIn has the VIP ask for full NAT in the muxes.
func natIn(s *store.State) {
	vip := s.VIPs.At("dock")
	vip.Attachments = []model.Attachment{{Network: "bay", Address: vip.Attachments[0].Address, Mode: model.ModeNATInMux}}
	s.PutVIP(vip)
}

func TestAttached(t *testing.T) {
	for what, c := range map[string]struct {
		change          func(*store.State)
		status, reason  string
		message, hidden string
	}{
		"all is well":               {func(*store.State) {}, True, "Attached", "attached to 1 of 1 networks", ""},
		"no overlay":                {func(s *store.State) { s.Networks.Overlay = nil }, False, "NoOverlay", "not to bay: the cluster has no overlay", ""},
		"the network is gone":       {func(s *store.State) { s.Networks.Remove("bay") }, False, "NetworkNotFound", "attached to 0 of 1 networks", ""},
		"consent is withdrawn":      {func(s *store.State) { s.Networks.Put(vnet.Network{Name: "bay", Tenant: "green", VNI: 7}) }, False, "NotAllowed", "does not allow", ""},
		"the server has no number":  {func(s *store.State) { s.Networks.Numbers.Remove("host1") }, False, "NoHostNumber", "1 of 1 hosts with backends have no number, as host1", ""},
		"a client has no number":    {func(s *store.State) { s.Networks.Numbers.Remove("host2") }, False, "NoHostNumber", "1 of 1 hosts with clients have no number", "host2"},
		"a client's host has left":  {func(s *store.State) { s.RemoveNode("host2") }, False, "NoAgent", "1 of 1 hosts with clients have no agent", "host2"},
		"there are no keys":         {func(s *store.State) { s.FBTMasters = nil }, False, "NoKeys", "no keys of FBTs yet", ""},
		"a mux has not the network": {func(s *store.State) { s.Status.Set("mux1", nodestatus.Status{Generation: 5}) }, False, "Pending", "0 of 1 connected muxes run it", ""},
		"a mux refuses it": {func(s *store.State) {
			s.Status.Set("mux1", nodestatus.Status{Generation: 5, Rejected: 6, Reason: "full"})
		}, False, "Rejected", "refused by mux1: weir describe mux mux1 says why", "full"},
		"a mux has no NAT prefix": {func(s *store.State) {
			s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux, NATPrefixes: []netip.Prefix{netip.MustParsePrefix("fd66::/112")}})
			natIn(s)
		}, False, "NoNATPrefix", "1 muxes have no NAT prefix of ipv4, as mux1", ""},
		"all muxes have NAT prefixes": {func(s *store.State) {
			s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux, NATPrefixes: []netip.Prefix{netip.MustParsePrefix("10.66.0.0/24")}})
			natIn(s)
		}, True, "Attached", "attached to 1 of 1 networks", ""},
		"no mux is there: not its own": {func(s *store.State) { s.RemoveNode("mux1") }, True, "Attached", "attached to 1 of 1", ""},
	} {
		s, vip := dock()
		c.change(s)
		vip = s.VIPs.At(vip.Name)
		got, has := attached(s, vip)
		if !has || got.GetStatus() != c.status || got.GetReason() != c.reason || !strings.Contains(got.GetMessage(), c.message) {
			t.Errorf("%s: %v, want %s, %s: %s", what, got, c.status, c.reason, c.message)
		}
		if c.hidden != "" && strings.Contains(got.GetMessage(), c.hidden+" ") {
			t.Errorf("%s: the VIP's tenant is told %q", what, got.GetMessage())
		}
	}
}
