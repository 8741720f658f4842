package linux

import (
	"context"
	"fmt"
	"net/netip"

	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of the generic netlink family SEG6 (linux/seg6_genl.h).
const (
	seg6Version         = 1
	seg6SetTunnelSource = 3
	seg6GetTunnelSource = 4
	seg6Address         = 1
)

// genericHeader is that of generic netlink.
type genericHeader struct{ command byte }

func (genericHeader) Len() int { return 4 }

func (h genericHeader) Serialize() []byte { return []byte{h.command, seg6Version, 0, 0} }

// seg6Family looks up the number of the family, which a kernel without SRv6 does not have.
func seg6Family(h *vnl.Handle) (uint16, error) {
	f, err := h.GenlFamilyGet("SEG6")
	if err != nil {
		return 0, fmt.Errorf("the kernel has no IPv6 segment routing (CONFIG_IPV6_SEG6_LWTUNNEL): %w", err)
	}
	return f.ID, nil
}

// tunnelSource returns the source of tunnels; it is invalid if none is set.
func (k *kernel) tunnelSource(ctx context.Context, family uint16) (netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return netip.Addr{}, err
	}
	r := k.request(int(family), 0)
	r.AddData(genericHeader{seg6GetTunnelSource})
	answers, err := r.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the source of tunnels: %w", err)
	}
	for _, answer := range answers {
		if len(answer) < (genericHeader{}).Len() {
			continue
		}
		attributes, err := nl.ParseRouteAttr(answer[genericHeader{}.Len():])
		if err != nil {
			return netip.Addr{}, fmt.Errorf("parse the source of tunnels: %w", err)
		}
		for _, a := range attributes {
			if source, ok := netip.AddrFromSlice(a.Value); ok && a.Attr.Type == seg6Address && !source.IsUnspecified() {
				return source, nil
			}
		}
	}
	return netip.Addr{}, nil
}

func (k *kernel) setTunnelSource(ctx context.Context, family uint16, source netip.Addr) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := k.request(int(family), unix.NLM_F_ACK)
	r.AddData(genericHeader{seg6SetTunnelSource})
	r.AddData(nl.NewRtAttr(seg6Address, source.AsSlice()))
	if _, err := r.Execute(unix.NETLINK_GENERIC, 0); err != nil {
		return fmt.Errorf("set the source of tunnels to %s: %w", source, err)
	}
	return nil
}
