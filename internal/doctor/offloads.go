package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/safchain/ethtool"
	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// harmful offloads make packets that the agent can't change; see docs/operations/host.md.
var harmful = []string{"rx-gro-list", "rx-udp-gro-forwarding", "rx-lro"}

func offloads(_ context.Context, s Subject) []Finding {
	on, err := thoseOn(s.Interface, harmful)
	if err != nil {
		return unknown(err, "look at ethtool -k "+s.Interface)
	}
	if len(on) > 0 {
		return bad(Fail, switchOff(s.Interface, on), "%s has %s on: packets are merged in a way that can't be rewritten",
			s.Interface, strings.Join(on, " and "))
	}
	return ok("%s are off on %s", strings.Join(harmful, ", "), s.Interface)
}

// What a mux's program can't work behind, by the mode that it is attached in: internal/datapath/mux/offloads.go switches it off.
var (
	merging   = []string{"rx-gro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding", "rx-lro"}
	untagging = []string{"rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"}
)

func offloadsOfMux(_ context.Context, s Subject) []Finding {
	link, err := vnl.LinkByName(s.Interface)
	if err != nil {
		return bad(Fail, "name an interface that is there", "look up %s: %v", s.Interface, err)
	}
	xdp := link.Attrs().Xdp
	if xdp == nil || !xdp.Attached {
		return ok("weir-mux switches off what it can't work behind when it starts")
	}
	generic := xdp.AttachMode == nl.XDP_ATTACHED_SKB
	wrong, effect := untagging, "frames leave without their VLAN tags"
	if generic {
		wrong, effect = merging, "what the kernel merges is dropped (drop_merged)"
	}
	on, err := thoseOn(s.Interface, wrong)
	if err != nil {
		return unknown(err, "look at ethtool -k "+s.Interface)
	}
	if len(on) > 0 {
		return bad(Fail, switchOff(s.Interface, on)+", or restart weir-mux", "%s has %s on: %s", s.Interface, strings.Join(on, " and "), effect)
	}
	if generic && link.Type() == "veth" {
		return bad(Warn, "at the other end: ethtool -K IFACE tso off, unless it is off there",
			"%s is a veth with generic XDP: what its other end's tso merges is dropped (drop_merged)", s.Interface)
	}
	return ok("%s are off on %s", strings.Join(wrong, ", "), s.Interface)
}

// thoseOn are the offloads of these that are on.
func thoseOn(iface string, names []string) (on []string, err error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("open ethtool: %w", err)
	}
	defer tool.Close()
	features, err := tool.Features(iface)
	if err != nil {
		return nil, fmt.Errorf("read the offloads of %s: %w", iface, err)
	}
	for _, name := range names {
		if features[name] {
			on = append(on, name)
		}
	}
	return on, nil
}

func switchOff(iface string, offloads []string) string {
	return "ethtool -K " + iface + " " + strings.Join(offloads, " off ") + " off"
}
