package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/model"
)

// Clients is the client's side of bypass on a host (NGLB's AVS): the ports of networks' workloads, and where their
// connections with VIPs go.
type Clients struct {
	objects *overlayObjects
	links   func() links

	tables *sync.Mutex // guards what they hold
}

func newClients(objects *overlayObjects, links func() links, tables *sync.Mutex) *Clients {
	return &Clients{objects: objects, links: links, tables: tables}
}

// Underlay is where VXLAN of clients comes from and goes to. An address that is not valid: there is none of the family.
type Underlay struct {
	Own4, Own6 netip.Addr // tunnel addresses of this host
	Mux4, Mux6 netip.Addr // of the muxes (NGLB: LIP)
}

// SetUnderlay sets the tunnel addresses of this host and of the muxes.
func (c *Clients) SetUnderlay(u Underlay) error {
	c.tables.Lock()
	defer c.tables.Unlock()
	var s overlayOverlaySettings
	if err := c.objects.Settings.Get(&s); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	s.Own4.Words, s.Own6.Words = abi.Words(u.Own4), abi.Words(u.Own6)
	s.Mux4.Words, s.Mux6.Words = abi.Words(u.Mux4), abi.Words(u.Mux6)
	if err := c.objects.Settings.Set(&s); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// Port is the host-side interface of a network's workload.
type Port struct {
	Ifindex   int
	VNI       uint32
	MAC       [6]byte // the workload's
	Addresses []netip.Addr
	Flows     uint32 // most bypass flows; connections beyond stay with the muxes
}

// Collides says whether two ports can't both be: they are one interface, or have an address of a network in common.
func (p Port) Collides(other Port) bool {
	shares := func(a netip.Addr) bool { return slices.Contains(other.Addresses, a) }
	return p.Ifindex == other.Ifindex || p.VNI == other.VNI && slices.ContainsFunc(p.Addresses, shares)
}

// SetPorts makes the ports exactly those, with the programs at their interfaces, and forgets the flows of addresses that are
// no port's any more. It must be called in the ports' network namespace. A port whose interface has just vanished is an
// error, but the others are set.
func (c *Clients) SetPorts(want []Port) error {
	c.tables.Lock()
	defer c.tables.Unlock()
	ports, addresses := make(map[uint32]Port), make(map[overlayNetworkAddress]overlayOverlayPortAddress)
	var ifindexes []int
	for _, p := range want {
		if _, twice := ports[uint32(p.Ifindex)]; twice {
			return fmt.Errorf("set ports: interface %d is two ports'", p.Ifindex)
		}
		ports[uint32(p.Ifindex)] = p
		ifindexes = append(ifindexes, p.Ifindex)
		for _, a := range p.Addresses {
			key := networkAddress(p.VNI, a)
			if other, twice := addresses[key]; twice {
				return fmt.Errorf("set ports: %s of network %d is of interfaces %d and %d", a, p.VNI, other.Ifindex, p.Ifindex)
			}
			addresses[key] = overlayOverlayPortAddress{Ifindex: uint32(p.Ifindex), Mac: p.MAC}
		}
	}
	if err := abi.WriteTable(c.objects.PortAddresses, addresses); err != nil {
		return fmt.Errorf("set addresses of ports: %w", err)
	}
	if err := c.writePorts(ports); err != nil {
		return fmt.Errorf("set ports: %w", err)
	}
	_, err := c.sweepFlows(func(f Flow) bool { _, ok := addresses[networkAddress(f.vni, f.Client.Addr())]; return !ok })
	if l := c.links(); l.folder != nil {
		err = errors.Join(err, l.setInterfaces(clientPrefix, ifindexes))
	}
	return err
}

func networkAddress(vni uint32, a netip.Addr) overlayNetworkAddress {
	key := overlayNetworkAddress{Vni: vni}
	key.Address.Words = abi.Words(a)
	return key
}

// writePorts leaves the counts of flows in rows that stay.
func (c *Clients) writePorts(want map[uint32]Port) error {
	live, err := abi.ReadTable[uint32, overlayOverlayPort](c.objects.Ports)
	if err != nil {
		return err
	}
	for ifindex, row := range live {
		p, kept := want[ifindex]
		switch {
		case !kept:
			err = c.objects.Ports.Delete(ifindex)
		case row.Vni == p.VNI && row.Most == p.Flows:
			continue
		}
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove interface %d: %w", ifindex, err)
		}
	}
	for ifindex, p := range want {
		if row, ok := live[ifindex]; ok && row.Vni == p.VNI && row.Most == p.Flows {
			continue
		}
		if err := c.objects.Ports.Put(ifindex, overlayOverlayPort{Vni: p.VNI, Most: p.Flows, Flows: live[ifindex].Flows}); err != nil {
			return fmt.Errorf("add interface %d: %w", ifindex, err)
		}
	}
	return nil
}

// ClientTraffic is what clients of this host did with a VIP.
type ClientTraffic struct {
	Direct, ByMux model.Counter // sent to servers' hosts, and to the muxes
	In            model.Counter // delivered to clients
	Begun         uint64        // handshakes
	Repeated      uint64        // SYNs that were sent again
	Learnt        uint64        // servers' hosts, by their SYN-ACK
	Relearnt      uint64        // likewise, in mid-connection
	Lost          uint64        // servers' hosts that did not answer
}

// ClientTraffic adds up what the CPUs have counted of an attachment.
func (c *Clients) ClientTraffic(attachment uint32) (sum ClientTraffic, err error) {
	var each []overlayBypassTraffic
	if err := c.objects.BypassTraffic.Lookup(attachment, &each); err != nil {
		return sum, fmt.Errorf("read traffic of clients with attachment %d: %w", attachment, err)
	}
	for _, t := range each {
		for _, c := range []struct {
			to   *model.Counter
			from overlayCounter
		}{{&sum.Direct, t.Direct}, {&sum.ByMux, t.ByMux}, {&sum.In, t.In}} {
			c.to.Packets, c.to.Bytes = c.to.Packets+c.from.Packets, c.to.Bytes+c.from.Bytes
		}
		sum.Begun += t.Begun
		sum.Repeated += t.Repeated
		sum.Learnt += t.Learnt
		sum.Relearnt += t.Relearnt
		sum.Lost += t.Lost
	}
	return sum, nil
}
