package wire

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/model/vnet"
)

// NodeToProto writes n without its status.
func NodeToProto(n model.Node) *weirv1.Node {
	p := &weirv1.Node{
		Name: n.Name, Role: string(n.Role), Addresses: sourceStrings(n.Addresses, n.Prefixes), Version: n.Version,
		NatPrefixes: compile.PrefixTexts(n.NATPrefixes), Aggregates: compile.PrefixTexts(n.Aggregates),
	}
	if !n.Drained.IsZero() {
		p.Drained = timestamppb.New(n.Drained)
	}
	return p
}

// MuxFromProto reads the node that a mux registers as.
func MuxFromProto(p *weirv1.SyncMuxRequest) (model.Node, error) {
	return nodeFromProto(model.RoleMux, p.GetName(), p.GetVersion(), p.GetAddresses(), p.GetNatPrefixes(), p.GetAggregates())
}

// HostFromProto reads the node that a host registers as.
func HostFromProto(p *weirv1.SyncHostRequest) (model.Node, error) {
	n, err := nodeFromProto(model.RoleHost, p.GetName(), p.GetVersion(), p.GetAddresses(), nil, nil)
	n.Multipath = p.GetMultipath()
	return n, err
}

// SwitchFromProto reads the node that a switch registers as.
func SwitchFromProto(p *weirv1.SyncSwitchRequest) (model.Node, error) {
	return nodeFromProto(model.RoleSwitch, p.GetName(), p.GetVersion(), p.GetAddresses(), nil, nil)
}

// RegistrationToProto writes n as a manager hands it on to the leader.
func RegistrationToProto(n model.Node) *weirv1.RegisterNodeRequest {
	return &weirv1.RegisterNodeRequest{
		Name: n.Name, Role: string(n.Role), Addresses: sourceStrings(n.Addresses, n.Prefixes), Version: n.Version,
		NatPrefixes: compile.PrefixTexts(n.NATPrefixes), Aggregates: compile.PrefixTexts(n.Aggregates), Multipath: n.Multipath,
	}
}

// NodeFromRegistration reads what RegistrationToProto wrote.
func NodeFromRegistration(p *weirv1.RegisterNodeRequest) (model.Node, error) {
	n, err := nodeFromProto(model.Role(p.GetRole()), p.GetName(), p.GetVersion(), p.GetAddresses(), p.GetNatPrefixes(), p.GetAggregates())
	n.Multipath = p.GetMultipath()
	return n, err
}

func nodeFromProto(role model.Role, name, version string, addresses, natPrefixes, aggregates []string) (model.Node, error) {
	var f fields
	n := model.Node{Name: f.name("name", name), Role: role, Version: version}
	n.Addresses, n.Prefixes = f.sources("addresses", addresses)
	n.NATPrefixes = f.Prefixes("natPrefixes", natPrefixes)
	n.Aggregates = f.Prefixes("aggregates", aggregates)
	f.Add(n.Validate())
	f.Add(vnet.ValidateNATPrefixes(n))
	f.Add(hardware.ValidateNode(n))
	return n, f.Err()
}
