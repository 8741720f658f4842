package wire

import (
	"errors"
	"fmt"
	"net"

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
		NeighborPrefixes: compile.PrefixTexts(n.NeighborPrefixes),
	}
	if !n.Drained.IsZero() {
		p.Drained = timestamppb.New(n.Drained)
	}
	return p
}

// MuxFromProto reads the node that a mux registers as.
func MuxFromProto(p *weirv1.SyncMuxRequest) (model.Node, error) {
	n, err := nodeFromProto(model.RoleMux, p.GetName(), p.GetVersion(), p.GetAddresses(), p.GetNatPrefixes(), p.GetAggregates())
	return n, errors.Join(err, addNeighbors(&n, p.GetNeighborPrefixes(), p.GetMac()))
}

// addNeighbors reads what a mux can answer ARP and NDP for, and from which Ethernet address.
func addNeighbors(n *model.Node, prefixes []string, mac string) error {
	if len(prefixes) == 0 {
		return nil
	}
	var f fields
	n.NeighborPrefixes = f.Prefixes("neighborPrefixes", prefixes)
	if address, err := net.ParseMAC(mac); err != nil || len(address) != 6 {
		f.Add(&model.FieldError{Field: "mac", Reason: fmt.Sprintf("must be an Ethernet address, is %q", mac)})
	} else {
		n.MAC = address.String()
	}
	return f.Err()
}

// HostFromProto reads the node that a host registers as.
func HostFromProto(p *weirv1.SyncHostRequest) (model.Node, error) {
	n, err := nodeFromProto(model.RoleHost, p.GetName(), p.GetVersion(), p.GetAddresses(), nil, nil)
	n.Multipath, n.PortBlocks = p.GetMultipath(), p.GetPortBlocks()
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
		NeighborPrefixes: compile.PrefixTexts(n.NeighborPrefixes), Mac: n.MAC, PortBlocks: n.PortBlocks,
	}
}

// NodeFromRegistration reads what RegistrationToProto wrote.
func NodeFromRegistration(p *weirv1.RegisterNodeRequest) (model.Node, error) {
	n, err := nodeFromProto(model.Role(p.GetRole()), p.GetName(), p.GetVersion(), p.GetAddresses(), p.GetNatPrefixes(), p.GetAggregates())
	n.Multipath, n.PortBlocks = p.GetMultipath(), p.GetPortBlocks()
	return n, errors.Join(err, addNeighbors(&n, p.GetNeighborPrefixes(), p.GetMac()))
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
