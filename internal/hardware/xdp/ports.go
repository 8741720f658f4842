package xdp

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/hardware/netdev"
	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
)

const callTime = 2 * time.Second

// port is an interface of the switch.
type port struct {
	name    string
	index   int
	program ebpf.ProgramID // 0: none
}

// ports are the interfaces of the namespace in which they were opened.
type ports struct {
	names   []string // empty: all
	links   *vnl.Handle
	sockets map[int]*nl.SocketHandle
}

func openPorts(names []string) (*ports, error) {
	p := &ports{names: names}
	links, err := vnl.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		links.Close()
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	p.links, p.sockets = links, map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	timeout := unix.NsecToTimeval(int64(callTime))
	err = errors.Join(links.SetSocketTimeout(callTime), socket.SetReceiveTimeout(&timeout), socket.SetSendTimeout(&timeout), socket.SetExtAck(true))
	if err != nil {
		p.close()
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	return p, nil
}

func (p *ports) close() {
	p.links.Close()
	p.sockets[unix.NETLINK_ROUTE].Socket.Close()
}

// list returns the ports that are there. A port that is named and is not there may come.
func (p *ports) list() ([]port, error) {
	links, err := netdev.Links(p.links)
	if err != nil {
		return nil, err
	}
	var all []port
	for _, link := range links {
		a := link.Attrs()
		named := slices.Contains(p.names, a.Name)
		if len(p.names) == 0 {
			named = netdev.IsPort(link)
		}
		if !named {
			continue
		}
		found := port{name: a.Name, index: a.Index}
		if a.Xdp != nil && a.Xdp.Attached {
			found.program = ebpf.ProgramID(a.Xdp.ProgId)
		}
		all = append(all, found)
	}
	if len(all) == 0 {
		return nil, errors.New("the switch has no ports")
	}
	return all, nil
}

// attach attaches a program, which stays until the interface goes, to a port that has none.
func (p *ports) attach(to port, program int) error {
	r := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	r.Sockets = p.sockets
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(to.index)
	r.AddData(message)
	xdp := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	xdp.AddRtAttr(nl.IFLA_XDP_FD, nl.Uint32Attr(uint32(program)))
	xdp.AddRtAttr(nl.IFLA_XDP_FLAGS, nl.Uint32Attr(nl.XDP_FLAGS_UPDATE_IF_NOEXIST|nl.XDP_FLAGS_DRV_MODE))
	r.AddData(xdp)
	if _, err := r.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("attach the switch's program to %s: %w", to.name, err)
	}
	return nil
}

// liveProgram returns the switch's program that ports have, or 0. A port with another program is an error.
func liveProgram(all []port) (live ebpf.ProgramID, err error) {
	for _, p := range all {
		if p.program == 0 || p.program == live {
			continue
		}
		program, err := ebpf.NewProgramFromID(p.program)
		if err != nil {
			return 0, fmt.Errorf("open the program of %s: %w", p.name, err)
		}
		info, err := program.Info()
		_ = program.Close()
		switch {
		case err != nil:
			return 0, fmt.Errorf("read of the program of %s: %w", p.name, err)
		case info.Name != bpf.SwitchProgSwitchPort:
			return 0, fmt.Errorf("%s has an XDP program of others: %s", p.name, info.Name)
		case live != 0:
			return 0, fmt.Errorf("ports have two programs of switches: %d, and %s has %d", live, p.name, p.program)
		}
		live = p.program
	}
	return live, nil
}

// adopt opens a program and its tables.
func adopt(id ebpf.ProgramID, objects *bpf.SwitchObjects) (err error) {
	if objects.SwitchPort, err = ebpf.NewProgramFromID(id); err != nil {
		return fmt.Errorf("open program %d: %w", id, err)
	}
	info, err := objects.SwitchPort.Info()
	if err != nil {
		return fmt.Errorf("read of program %d: %w", id, err)
	}
	spec, err := bpf.LoadSwitch()
	if err != nil {
		return fmt.Errorf("read the switch's program: %w", err)
	}
	tables := map[string]**ebpf.Map{
		bpf.SwitchMapHosts: &objects.Hosts, bpf.SwitchMapEcmp: &objects.Ecmp, bpf.SwitchMapTunnels: &objects.Tunnels,
		bpf.SwitchMapInners: &objects.Inners, bpf.SwitchMapTipSources: &objects.TipSources, bpf.SwitchMapHostCounts: &objects.HostCounts, bpf.SwitchMapWays: &objects.Ways, bpf.SwitchMapVerdicts: &objects.Verdicts,
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		table, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("open table %d: %w", id, err)
		}
		about, err := table.Info()
		if err != nil {
			return errors.Join(fmt.Errorf("read of table %d: %w", id, err), table.Close())
		}
		to, ours := tables[about.Name]
		if !ours || *to != nil {
			_ = table.Close() // the program's constants
			continue
		}
		*to = table
		want := spec.Maps[about.Name]
		if table.Type() != want.Type || table.KeySize() != want.KeySize || table.ValueSize() != want.ValueSize {
			return fmt.Errorf("table %s is of another version of the switch", about.Name)
		}
	}
	for name, table := range tables {
		if *table == nil {
			return fmt.Errorf("the program has no table %s", name)
		}
	}
	return nil
}

func bootOfKernel() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the kernel's boot: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
