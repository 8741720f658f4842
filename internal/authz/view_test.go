package authz

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/trust"
)

// A tenant's viewer sees of a node whether a change has reached it, and no field more, whatever nodes come to tell.
func TestWhatTenantsSeeOfNodes(t *testing.T) {
	n := &weirv1.Node{
		Name: "mux1", Role: "mux", Addresses: []string{"10.1.1.2"}, Version: "v1", NatPrefixes: []string{"192.0.2.0/28"},
		Aggregates: []string{"203.0.113.0/24"}, Drained: timestamppb.Now(), NeighborPrefixes: []string{"203.0.113.0/28"},
		Status: &weirv1.NodeStatus{
			Connected: true, LastSeen: timestamppb.Now(), Generation: 7, Sync: "behind", Mux: &weirv1.MuxStatus{Interface: "eth0"},
			Host: &weirv1.HostStatus{Uplink: "eth0"}, Switch: &weirv1.SwitchStatus{Driver: "linux"},
			Rejection: &weirv1.Rejection{Generation: 8, Reason: "table buckets is full"},
		},
	}
	was := proto.CloneOf(n)
	vic := trust.Identity{Kind: trust.User, Name: "vic", Method: trust.ByToken, Bindings: []trust.Binding{{Tenant: "red", Role: trust.Viewer}}}
	one := &weirv1.GetNodeResponse{Node: n}
	Redact(vic, one)
	list, status := &weirv1.ListNodesResponse{Nodes: []*weirv1.Node{n}}, &weirv1.GetStatusResponse{Nodes: []*weirv1.Node{n}}
	Redact(vic, list)
	Redact(vic, status)
	for _, seen := range []*weirv1.Node{one.GetNode(), list.GetNodes()[0], status.GetNodes()[0]} {
		for m, may := range map[proto.Message][]string{
			seen: {"name", "role", "drained", "status"}, seen.GetStatus(): {"connected", "last_seen", "generation", "rejection"},
		} {
			for i := range m.ProtoReflect().Descriptor().Fields().Len() {
				f := m.ProtoReflect().Descriptor().Fields().Get(i)
				if wanted := slices.Contains(may, string(f.Name())); m.ProtoReflect().Has(f) != wanted {
					t.Errorf("a tenant's viewer sees %s: %v", f.FullName(), !wanted)
				}
			}
		}
		if seen.GetStatus().GetRejection().GetReason() == n.GetStatus().GetRejection().GetReason() {
			t.Error("a tenant's viewer sees why a node refuses")
		}
	}
	if !proto.Equal(n, was) {
		t.Errorf("the node itself is changed: %v", n)
	}
}
