package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/safchain/ethtool"
	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/netlink"
)

func link(_ context.Context, s Subject) []Finding {
	found, err := netlink.FindInterface(s.Interface)
	if err != nil {
		return bad(Fail, "name the interface that packets of VIPs arrive on", "%v", err)
	}
	if !found.Up {
		return bad(Fail, "ip link set "+s.Interface+" up, and look at the cable", "%s is down or has no carrier", s.Interface)
	}
	for _, a := range found.Addresses {
		if a.IsGlobalUnicast() {
			return ok("%s is up, has %s and an MTU of %d", s.Interface, a, found.MTU)
		}
	}
	return bad(Fail, "give it one: the network sends to it", "%s has no routable address", s.Interface)
}

// Of the kernel's netdev family of generic netlink.
const (
	netdevGet         = 1
	netdevIfindex     = 1
	netdevXDPFeatures = 3
	xdpBasic          = 1
	xdpRedirect       = 2
)

func nativeXDP(_ context.Context, s Subject) []Finding {
	found, err := net.InterfaceByName(s.Interface)
	if err != nil {
		return bad(Fail, "name an interface that is there", "look up %s: %v", s.Interface, err)
	}
	features, err := xdpFeatures(found.Index)
	if err != nil {
		return unknown(err, "start weir-mux: it says if it falls back to generic XDP")
	}
	driver := "its driver"
	if tool, err := ethtool.NewEthtool(); err == nil {
		defer tool.Close()
		if name, err := tool.DriverName(s.Interface); err == nil {
			driver = "the driver " + name
		}
	}
	if features&xdpBasic == 0 {
		return bad(Warn, "use an interface whose driver has native XDP; --xdp-mode generic works, at a fraction of the speed",
			"%s of %s has no native XDP", driver, s.Interface)
	}
	return ok("%s of %s has native XDP", driver, s.Interface)
}

// xdpFeatures asks what XDP an interface's driver can do, without attaching anything.
func xdpFeatures(index int) (uint64, error) {
	family, err := vnl.GenlFamilyGet("netdev")
	if err != nil {
		return 0, fmt.Errorf("ask the kernel for XDP features: %w", err)
	}
	request := nl.NewNetlinkRequest(int(family.ID), 0)
	attribute := nl.NewRtAttr(netdevIfindex, binary.NativeEndian.AppendUint32(nil, uint32(index)))
	// Not nl.Genlmsg: it leaves the reserved bytes to chance, and this family looks at them.
	request.AddRawData(append([]byte{netdevGet, 1, 0, 0}, attribute.Serialize()...))
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, fmt.Errorf("ask the kernel for XDP features: %w", err)
	}
	for _, answer := range answers {
		if len(answer) < nl.SizeofGenlmsg {
			continue
		}
		attributes, err := nl.ParseRouteAttr(answer[nl.SizeofGenlmsg:])
		if err != nil {
			return 0, fmt.Errorf("read XDP features: %w", err)
		}
		for _, a := range attributes {
			if a.Attr.Type&^unix.NLA_F_NESTED == netdevXDPFeatures && len(a.Value) == 8 {
				return binary.NativeEndian.Uint64(a.Value), nil
			}
		}
	}
	return 0, errors.New("the kernel does not tell XDP features")
}

// oursXDP begins the names of the programs that weir-mux attaches; the rest is a digest of their tables' layout.
const oursXDP = "mux_"

func ownerOfXDP(_ context.Context, s Subject) []Finding {
	found, err := vnl.LinkByName(s.Interface)
	if err != nil {
		return bad(Fail, "name an interface that is there", "look up %s: %v", s.Interface, err)
	}
	xdp := found.Attrs().Xdp
	if xdp == nil || !xdp.Attached {
		return ok("no XDP program is on %s", s.Interface)
	}
	name := fmt.Sprintf("number %d", xdp.ProgId)
	if program, err := ebpf.NewProgramFromID(ebpf.ProgramID(xdp.ProgId)); err == nil {
		defer program.Close()
		if info, err := program.Info(); err == nil {
			name = info.Name
		}
	}
	if s.Role == Mux && strings.HasPrefix(name, oursXDP) {
		return ok("the XDP program on %s is weir-mux's", s.Interface)
	}
	if s.Role == Host {
		return bad(Warn, "make sure that it passes IP protocols 4 and 41 and UDP port 6080 on, or detach it: ip link set "+s.Interface+" xdp off",
			"another XDP program, %s, runs on %s before the agent", name, s.Interface)
	}
	return bad(Fail, "detach it: ip link set "+s.Interface+" xdp off, or bpftool net", "another XDP program, %s, has %s: only one can", name, s.Interface)
}

// reversePath finds strict filters: they drop packets whose way back leaves by another interface.
func reversePath(_ context.Context, s Subject) []Finding {
	all, err := sysctl("net/ipv4/conf/all/rp_filter")
	if err != nil {
		return unknown(err, "look at sysctl net.ipv4.conf.all.rp_filter")
	}
	interfaces, err := os.ReadDir("/proc/sys/net/ipv4/conf")
	if err != nil {
		return unknown(err, "look at sysctl net.ipv4.conf")
	}
	var strict []string
	for _, entry := range interfaces {
		name := entry.Name()
		if name == "all" || name == "default" || name == "lo" {
			continue
		}
		own, err := sysctl("net/ipv4/conf/" + name + "/rp_filter")
		if err == nil && max(all, own) == "1" { // the kernel takes the larger one
			strict = append(strict, name)
		}
	}
	if len(strict) == 0 {
		return ok("no interface filters strictly by the way back")
	}
	next := "sysctl -w net.ipv4.conf.all.rp_filter=2, unless every client's route leaves by " + s.Interface
	return bad(Warn, next, "rp_filter is strict on %s: packets whose way back is another are dropped", strings.Join(strict, ", "))
}

func timestamps(context.Context, Subject) []Finding {
	value, err := sysctl("net/ipv4/tcp_timestamps")
	if err != nil {
		return unknown(err, "look at sysctl net.ipv4.tcp_timestamps")
	}
	if value == "0" {
		return bad(Warn, "sysctl -w net.ipv4.tcp_timestamps=1, here and in the workloads",
			"TCP timestamps are off: connections of this host's own services carry no cookie and need flow tables")
	}
	return ok("TCP timestamps are on")
}
