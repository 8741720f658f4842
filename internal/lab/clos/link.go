package clos

import (
	"net/netip"

	"github.com/weirlb/weir/internal/lab/netns"
)

// mtu is that of links between switches: a packet of 1500 bytes with the outer headers of any tunnel.
const mtu = 1600

// Connect lays the link between two namespaces: each end is called by the other's name.
func (l Link) Connect(lower, upper *netns.NS) error {
	if err := netns.Veth(lower, l.Upper, upper, l.Lower); err != nil {
		return err
	}
	for _, end := range []struct {
		ns          *netns.NS
		name, other string
	}{{lower, l.Lower, l.Upper}, {upper, l.Upper, l.Lower}} {
		if err := end.ns.SetMTU(end.other, mtu); err != nil {
			return err
		}
		v4, v6 := l.addresses(end.name)
		if err := end.ns.AddAddress(end.other, netip.PrefixFrom(v4, 24), netip.PrefixFrom(v6, 64)); err != nil {
			return err
		}
		if err := PreparePort(end.ns, end.other); err != nil {
			return err
		}
	}
	return nil
}

// PreparePort makes a port fit for a switch's XDP program on it, or at its other end. A veth leaves checksums to hardware that
// is not there; and it takes what XDP sends to it only if it has a program, or merges segments, which the kernel then polls for.
func PreparePort(ns *netns.NS, port string) error {
	if err := ns.SetOffload(port, netns.TxChecksum, false); err != nil {
		return err
	}
	return ns.SetOffload(port, netns.GRO, true)
}
