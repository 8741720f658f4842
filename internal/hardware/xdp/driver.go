package xdp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/knob"
	"github.com/weirlb/weir/internal/hardware/netdev"
	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
)

// Config of a driver. Sizes are those of tables when the program is loaded; zero: those of the switch of Duet, section 3.1.
type Config struct {
	Hosts, ECMP, Tunnels, Members uint32
	Ports                         []string // interfaces; none: all Ethernet ones
	Seed                          uint64   // of what the vendor chose; zero: drawn
	Existing                      bool     // ports that have no program get none
	LLDP                          string   // socket of lldpd; empty, or not there: no neighbour is heard
	// Configure lets the driver set sysctls that packets need whose neighbour the kernel has to find.
	Configure bool
}

// Driver programs the switch of the network namespace that New was called in.
type Driver struct {
	*netdev.Reader // of the ports

	config   Config
	ports    *ports
	kernel   string // its boot
	warnings []string
	objects  bpf.SwitchObjects
	program  ebpf.ProgramID
	boot     string
	tables   *tables // nil: to be read
}

var _ hardware.Driver = (*Driver)(nil)

// New opens the driver, and attaches the program to ports that do not have it.
func New(config Config) (*Driver, error) {
	for value, otherwise := range map[*uint32]uint32{&config.Hosts: 16384, &config.ECMP: 4096, &config.Tunnels: 512} {
		if *value == 0 {
			*value = otherwise
		}
	}
	if config.Members == 0 {
		config.Members = config.ECMP
	}
	config.Members = min(config.Members, config.ECMP)
	d := &Driver{config: config}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

var knobs = []knob.Knob{
	{Name: "net.ipv4.ip_forward", Value: "1", Otherwise: "the machine does not forward IPv4"},
	{Name: "net.ipv6.conf.all.forwarding", Value: "1", Otherwise: "the machine does not forward IPv6"},
	{Name: "net.ipv4.conf.all.accept_local", Value: "1", Settable: true, Otherwise: "a packet whose outer source is an address of this machine is lost until the neighbour is known"},
}

func (d *Driver) open() (err error) {
	if d.kernel, err = bootOfKernel(); err != nil {
		return err
	}
	if d.ports, err = openPorts(d.config.Ports); err != nil {
		return err
	}
	if d.Reader, err = netdev.Open(netdev.Config{Names: d.config.Ports, LLDP: d.config.LLDP}); err != nil {
		return err
	}
	warnings, err := knob.SetUp(knobs, d.config.Configure)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(warnings)) {
		d.warnings = append(d.warnings, warnings[name])
	}
	return d.ensure()
}

// ensure has the program on all ports. Ports that have it already say which tables are the switch's; if none does, the switch
// has lost its tables, and gets empty ones.
func (d *Driver) ensure() error {
	all, err := d.ports.list()
	if err != nil {
		return err
	}
	live, err := liveProgram(all)
	if err != nil {
		return err
	}
	if live == 0 && d.config.Existing {
		return errors.New("no port has the switch's program: no daemon has started it")
	}
	if live == 0 || live != d.program {
		if err := d.take(live); err != nil {
			return err
		}
	}
	for _, p := range all {
		if p.program == 0 && !d.config.Existing {
			if err := d.ports.attach(p, d.objects.SwitchPort.FD()); err != nil {
				return err
			}
		}
	}
	return nil
}

// take goes on with the tables of a program that is there, or loads one; it is 0.
func (d *Driver) take(live ebpf.ProgramID) (err error) {
	if err := d.objects.Close(); err != nil {
		return fmt.Errorf("close tables: %w", err)
	}
	d.objects, d.tables, d.program = bpf.SwitchObjects{}, nil, 0
	if live != 0 {
		if err := adopt(live, &d.objects); err != nil {
			return fmt.Errorf("adopt the switch's tables: %w", err)
		}
	} else if err := d.loadProgram(); err != nil {
		return err
	}
	program, err := d.objects.SwitchPort.Info()
	if err != nil {
		return fmt.Errorf("read the program's number: %w", err)
	}
	hosts, err := d.objects.Hosts.Info()
	if err != nil {
		return fmt.Errorf("read the table's number: %w", err)
	}
	id, _ := program.ID()
	table, _ := hosts.ID()
	d.program, d.boot = id, fmt.Sprintf("%s/%d", d.kernel, table)
	return nil
}

func (d *Driver) loadProgram() error {
	spec, err := bpf.LoadSwitch()
	if err != nil {
		return fmt.Errorf("read the switch's program: %w", err)
	}
	spec.Maps[bpf.SwitchMapHosts].MaxEntries = d.config.Hosts
	spec.Maps[bpf.SwitchMapHostCounts].MaxEntries = d.config.Hosts
	spec.Maps[bpf.SwitchMapInners].MaxEntries = d.config.Hosts
	spec.Maps[bpf.SwitchMapEcmp].MaxEntries = d.config.ECMP
	spec.Maps[bpf.SwitchMapTunnels].MaxEntries = d.config.Tunnels
	spec.Maps[bpf.SwitchMapWays].MaxEntries = d.config.Tunnels
	seed := d.config.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	if err := spec.Variables[bpf.SwitchVarVendor].Set(newVendor(rand.New(rand.NewPCG(seed, 0)))); err != nil {
		return fmt.Errorf("set the switch's hash: %w", err)
	}
	if err := spec.LoadAndAssign(&d.objects, nil); err != nil {
		return fmt.Errorf("load the switch's program: %w", err)
	}
	return nil
}

// current returns what the maps hold, of which the row of a VIP is known to be true.
func (d *Driver) current(ctx context.Context, vip netip.Addr) (*tables, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.ensure(); err != nil {
		return nil, err
	}
	if d.tables != nil {
		var host bpf.SwitchHost
		err := d.objects.Hosts.Lookup(bpf.SwitchAddress{Words: abi.Words(vip)}, &host)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("read the row of %s: %w", vip, err)
		}
		known, ok := d.tables.hosts[vip]
		if host == known && ok == (err == nil) {
			return d.tables, nil
		}
	}
	if err := abi.Quiesce(); err != nil { // rows that a call has left in use are free
		return nil, err
	}
	t, err := d.load()
	if err != nil {
		return nil, err
	}
	d.tables = t
	return t, nil
}

// Capabilities implements hardware.Driver.
func (d *Driver) Capabilities(ctx context.Context) (hardware.Capabilities, error) {
	t, err := d.read(ctx)
	if err != nil {
		return hardware.Capabilities{}, err
	}
	c := d.capabilities(t)
	c.Warnings, err = d.Warned(d.warnings)
	return c, err
}

func (d *Driver) capabilities(t *tables) hardware.Capabilities {
	return hardware.Capabilities{
		Driver: "xdp", Encapsulations: []hardware.Encapsulation{hardware.IPinIP},
		Outer4: true, Outer6: true, Weights: true, TIPs: true, MaxMembers: min(d.config.Members, d.objects.Ecmp.MaxEntries()),
		Hosts:   hardware.Table{Size: d.objects.Hosts.MaxEntries(), Used: t.inventory.Hosts()},
		ECMP:    hardware.Table{Size: d.objects.Ecmp.MaxEntries(), Used: t.inventory.ECMP()},
		Tunnels: hardware.Table{Size: d.objects.Tunnels.MaxEntries(), Used: t.inventory.Tunnels()},
	}
}

// read reads the maps anew.
func (d *Driver) read(ctx context.Context) (*tables, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.ensure(); err != nil {
		return nil, err
	}
	return d.load()
}

// Read implements hardware.Driver.
func (d *Driver) Read(ctx context.Context) ([]hardware.Entry, error) {
	t, err := d.read(ctx)
	if err != nil {
		return nil, err
	}
	return t.inventory.Entries(), nil
}

// Boot implements hardware.Driver.
func (d *Driver) Boot(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := d.ensure(); err != nil {
		return "", err
	}
	return d.boot, nil
}

// Close implements hardware.Driver. The program and its tables stay with the ports.
func (d *Driver) Close() error {
	if d.ports != nil {
		d.ports.close()
	}
	if d.Reader != nil {
		d.Reader.Close()
	}
	return d.objects.Close()
}
