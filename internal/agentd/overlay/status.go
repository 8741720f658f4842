package overlay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// Status is what the data plane of virtual networks runs, read from its tables.
type Status struct {
	Attachments []StatusAttachment       `json:"attachments"`
	Ports       []StatusPort             `json:"ports"`
	Sessions    map[string]int           `json:"sessions"` // by state
	Flows       map[string]int           `json:"flows"`    // likewise
	Verdicts    map[string]model.Counter `json:"verdicts"`
}

// StatusAttachment is a VIP in a network.
type StatusAttachment struct {
	VNI     uint32     `json:"vni"`
	VIP     netip.Addr `json:"vip"`     // in the network
	Service netip.Addr `json:"service"` // the VIP's own address
}

// StatusPort is the interface of a network's workload.
type StatusPort struct {
	Interface string       `json:"interface"`
	VNI       uint32       `json:"vni"`
	MAC       string       `json:"mac"` // the workload's
	Addresses []netip.Addr `json:"addresses"`
}

// ReadStatus reads the tables that are pinned at pinPath; nil: nothing runs there.
func ReadStatus(pinPath string) (*Status, error) {
	view, err := overlay.OpenView(pinPath)
	if errors.Is(err, overlay.ErrNotLoaded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer view.Close()
	s := &Status{Sessions: map[string]int{}, Flows: map[string]int{}}
	for _, a := range view.Attachments() {
		s.Attachments = append(s.Attachments, StatusAttachment{a.VNI, a.VIP, a.Service})
	}
	slices.SortFunc(s.Attachments, func(a, b StatusAttachment) int { return cmp.Or(cmp.Compare(a.VNI, b.VNI), a.VIP.Compare(b.VIP)) })
	for _, p := range view.Ports {
		s.Ports = append(s.Ports, StatusPort{Interface: nameOf(p.Ifindex), VNI: p.VNI, MAC: vnet.MAC(p.MAC).String(), Addresses: p.Addresses})
	}
	for _, session := range view.Sessions() {
		s.Sessions[sessionState(session.Events)]++
	}
	flows, err := view.Flows()
	if err != nil {
		return nil, err
	}
	for _, f := range flows {
		s.Flows[flowStates[f.State]]++
	}
	s.Verdicts, err = view.Verdicts()
	return s, err
}

var flowStates = map[overlay.FlowState]string{
	overlay.FlowHalfOpen: "half-open", overlay.FlowByMux: "by mux", overlay.FlowLost: "lost", overlay.FlowDirect: "direct",
}

func sessionState(e overlay.Event) string {
	switch {
	case e.IsOver():
		return "over"
	case e&overlay.ClientACK == 0:
		return "half-open"
	}
	return "open"
}

func nameOf(ifindex int) string {
	if found, err := net.InterfaceByIndex(ifindex); err == nil {
		return found.Name
	}
	return "interface " + strconv.Itoa(ifindex) + ", which is gone"
}

// Client is whom a server here sees by a local address.
type Client struct {
	VNI     uint32         `json:"vni"` // 0: the VIP is detached from the client's network
	Client  netip.AddrPort `json:"client"`
	VIP     netip.AddrPort `json:"vip"`     // as the client knows it
	Service netip.Addr     `json:"service"` // the VIP's own address
	Backend netip.AddrPort `json:"backend"`
	State   string         `json:"state"`
}

// Whois finds the client that a server knows by a local address and port, in the tables that are pinned at pinPath.
func Whois(pinPath string, local netip.AddrPort) (Client, error) {
	view, err := overlay.OpenView(pinPath)
	if err != nil {
		return Client{}, err
	}
	defer view.Close()
	peer, err := view.Whois(local)
	if err != nil {
		return Client{}, err
	}
	return Client{
		VNI: peer.VNI, Client: peer.Client, VIP: peer.VIP, Service: peer.Service, Backend: view.Rules()[peer.Rule].Backend,
		State: sessionState(peer.Events),
	}, nil
}

// States are those of counts, in order.
func States(counts map[string]int) []string { return slices.Sorted(maps.Keys(counts)) }

// Line is the client for people.
func (c Client) Line() string {
	network := fmt.Sprintf("network %d", c.VNI)
	if c.VNI == 0 {
		network = "a network that the VIP is detached from"
	}
	return fmt.Sprintf("%s of %s, to VIP %s (%s), served by %s: %s", c.Client, network, c.VIP, c.Service, c.Backend, c.State)
}
