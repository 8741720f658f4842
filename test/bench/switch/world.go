package main

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/lab/netns"
)

const (
	port    = "port"
	vips    = 250 // of each family
	members = 8   // of each VIP
	tunnels = 200
)

// connect gives the switch a port, and routes to all tunnels by it.
func connect(ns *netns.NS) error {
	if err := netns.Veth(ns, port, ns, "peer"); err != nil {
		return err
	}
	if err := ns.PassXDP("peer"); err != nil {
		return err
	}
	for name, value := range map[string]string{"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"} {
		if err := ns.Sysctl(name, value); err != nil {
			return err
		}
	}
	if err := ns.AddAddress(port, netip.MustParsePrefix("10.66.0.1/24"), netip.MustParsePrefix("fd66::1/64")); err != nil {
		return err
	}
	index, err := ns.Index(port)
	if err != nil {
		return err
	}
	for to, via := range map[string]string{"10.64.0.0/16": "10.66.0.2", "fd64::/64": "fd66::2"} {
		if err := ns.Netlink().NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, IP: netip.MustParseAddr(via).AsSlice(), HardwareAddr: []byte{2, 0, 0, 0, 0, 9},
		}); err != nil {
			return fmt.Errorf("set the neighbour %s: %w", via, err)
		}
		if err := ns.AddRoute(netip.MustParsePrefix(to), netip.MustParseAddr(via)); err != nil {
			return err
		}
	}
	return nil
}

// at is the address so many after another.
func at(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}
	return a
}

func entry(vip netip.Addr, v6 bool) hardware.Entry {
	e := hardware.Entry{VIP: vip, Source: netip.MustParseAddr("10.65.0.1")}
	first := netip.MustParseAddr("10.64.0.1")
	if v6 {
		e.Source, first = netip.MustParseAddr("fd65::1"), netip.MustParseAddr("fd64::1")
	}
	offset := int(vip.AsSlice()[len(vip.AsSlice())-1])
	for i := range members {
		e.Members = append(e.Members, hardware.Member{Tunnel: at(first, (offset*members+i)%tunnels), Entries: 1})
	}
	return e
}

// harness is the programs that are measured, with the switch's own tables.
type harness struct{ objects benchObjects }

func newHarness(ns *netns.NS, v6 bool) (*harness, error) {
	spec, err := loadBench()
	if err != nil {
		return nil, fmt.Errorf("read the harness: %w", err)
	}
	tables, err := liveTables(ns)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, table := range tables {
			_ = table.Close()
		}
	}()
	if err := spec.Variables[benchVarCfgFlows].Set(uint32(flows)); err != nil {
		return nil, err
	}
	if err := spec.Variables[benchVarCfgV6].Set(v6); err != nil {
		return nil, err
	}
	if err := spec.Variables[benchVarVendor].Set(vendor()); err != nil {
		return nil, err
	}
	h := &harness{}
	if err := spec.LoadAndAssign(&h.objects, &ebpf.CollectionOptions{MapReplacements: tables}); err != nil {
		return nil, fmt.Errorf("load the harness: %w", err)
	}
	return h, nil
}

// vendor is some hash: what it is does not change what it costs.
func vendor() any {
	var v struct {
		Table        [4][256]uint32
		Seed, Offset uint32
	}
	x := uint32(1)
	for i := range v.Table {
		for j := range v.Table[i] {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			v.Table[i][j] = x
		}
	}
	return v
}

// liveTables opens the tables of the switch's program.
func liveTables(ns *netns.NS) (map[string]*ebpf.Map, error) {
	link, err := ns.Netlink().LinkByName(port)
	if err != nil {
		return nil, fmt.Errorf("find the port: %w", err)
	}
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(link.Attrs().Xdp.ProgId))
	if err != nil {
		return nil, fmt.Errorf("open the switch's program: %w", err)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return nil, fmt.Errorf("read of the switch's program: %w", err)
	}
	ids, _ := info.MapIDs()
	tables := map[string]*ebpf.Map{}
	for _, id := range ids {
		table, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("open table %d: %w", id, err)
		}
		about, err := table.Info()
		if err != nil {
			return nil, fmt.Errorf("read of table %d: %w", id, err)
		}
		switch about.Name {
		case benchMapHosts, benchMapEcmp, benchMapTunnels, benchMapHostCounts, benchMapWays, benchMapVerdicts:
			tables[about.Name] = table
		default:
			_ = table.Close()
		}
	}
	return tables, nil
}

// burst is ns a packet.
func (h *harness) burst(c *class) (float64, error) {
	var template [56]byte
	copy(template[:], c.frame)
	if err := h.objects.Template.Set(template); err != nil {
		return 0, fmt.Errorf("say what the frame is: %w", err)
	}
	action, took, err := c.run.Benchmark(c.frame, burst, nil)
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", c.name, err)
	}
	if action != c.action {
		return 0, fmt.Errorf("run %s: action %d, want %d", c.name, action, c.action)
	}
	return float64(took.Nanoseconds()), nil
}
