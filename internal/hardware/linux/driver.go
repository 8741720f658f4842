package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/netdev"
)

// Defaults of Config, and what the kernel can do.
const (
	defaultHosts   = 16384
	defaultECMP    = 1 << 20
	defaultTunnels = 16384
	defaultMembers = 1024
	// With net.ipv4.nexthop_compat_mode the kernel tells all of a route's next hops with the route, and fails to when they
	// do not fit into a message.
	compatibleMembers = 256
	weightMost        = 256 // before Linux 6.12
)

// A flow that pauses for that long may go to another member if the group is out of balance; after the other time it must.
const (
	idleTime       = 5  // seconds
	unbalancedTime = 30 // seconds
)

// Buckets of a group, the kernel's unit of shares: a power of two, which stays as long as it suffices.
const (
	bucketsPerRow = 8
	bucketsLeast  = 256
	bucketsMost   = 1 << 15
)

// Config of a driver. The kernel itself has no bounds, so they are set here; zero: the defaults.
type Config struct {
	Hosts, ECMP, Tunnels, Members uint32
	Source                        netip.Addr // of tunnels; zero: the one that the namespace has
	Device                        string     // name of the interface of our own; empty: weir-tunnels
	LLDP                          string     // socket of lldpd; empty, or not there: no neighbour is heard
	// Configure lets the driver set up the namespace: the hash by ports, and the source of tunnels if it has another one.
	Configure bool
}

// Driver programs the kernel of the network namespace that New was called in.
type Driver struct {
	*netdev.Reader // of the ports

	config   Config
	kernel   *kernel
	links    *vnl.Handle
	events   *nl.NetlinkSocket
	seg6     uint16 // number of the generic netlink family
	warnings []string
	busy     chan struct{} // holds one while a call is at work
	tables   *tables       // nil: to be read
	device   uint32        // index of our interface
}

var _ hardware.Driver = (*Driver)(nil)

// New opens the driver. It changes no tables.
func New(ctx context.Context, config Config) (*Driver, error) {
	for value, otherwise := range map[*uint32]uint32{
		&config.Hosts: defaultHosts, &config.ECMP: defaultECMP, &config.Tunnels: defaultTunnels, &config.Members: defaultMembers,
	} {
		if *value == 0 {
			*value = otherwise
		}
	}
	config.Members = min(config.Members, config.ECMP)
	if config.Device == "" {
		config.Device = "weir-tunnels"
	}
	d := &Driver{config: config, busy: make(chan struct{}, 1)}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Driver) open(ctx context.Context) (err error) {
	if d.kernel, err = openKernel(); err != nil {
		return err
	}
	if d.links, err = vnl.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_GENERIC); err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	if err := d.links.SetSocketTimeout(callTime); err != nil {
		return fmt.Errorf("set up netlink socket: %w", err)
	}
	if d.events, err = subscribe(); err != nil {
		return err
	}
	if d.seg6, err = seg6Family(d.links); err != nil {
		return err
	}
	if d.Reader, err = netdev.Open(netdev.Config{LLDP: d.config.LLDP}); err != nil {
		return err
	}
	if err := d.setUpSource(ctx); err != nil {
		return err
	}
	return d.setUpKnobs()
}

// setUpSource gives tunnels their source. It is the namespace's: one that is set stays, unless the driver may set it up.
func (d *Driver) setUpSource(ctx context.Context) error {
	if !d.config.Source.IsValid() {
		return nil
	}
	if !d.config.Source.Is6() {
		return fmt.Errorf("tunnels have IPv6 sources, not %s", d.config.Source)
	}
	current, err := d.kernel.tunnelSource(ctx, d.seg6)
	if err != nil || current == d.config.Source {
		return err
	}
	if current.IsValid() && !d.config.Configure {
		return fmt.Errorf("the kernel's tunnels have source %s, set by someone else, not %s", current, d.config.Source)
	}
	return d.kernel.setTunnelSource(ctx, d.seg6, d.config.Source)
}

// do runs a call alone. It returns when ctx ends, even if the kernel is still at it: the next call waits for that.
func (d *Driver) do(ctx context.Context, call func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case d.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() {
		err := call()
		<-d.busy
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Capabilities implements hardware.Driver.
func (d *Driver) Capabilities(ctx context.Context) (hardware.Capabilities, error) {
	var c hardware.Capabilities
	err := d.do(ctx, func() error {
		t, err := d.load(ctx)
		if err == nil {
			c = d.capabilities(t)
		}
		return err
	})
	if err != nil {
		return hardware.Capabilities{}, err
	}
	c.Warnings, err = d.Warned(d.warnings)
	return c, err
}

func (d *Driver) capabilities(t *tables) hardware.Capabilities {
	return hardware.Capabilities{
		Driver: "linux", Encapsulations: []hardware.Encapsulation{hardware.IPinIP},
		Outer6: true, Weights: true, Resilient: true, MaxMembers: d.config.Members,
		Hosts:   hardware.Table{Size: d.config.Hosts, Used: t.inventory.Hosts()},
		ECMP:    hardware.Table{Size: d.config.ECMP, Used: t.inventory.ECMP()},
		Tunnels: hardware.Table{Size: d.config.Tunnels, Used: t.inventory.Tunnels()},
	}
}

// Read implements hardware.Driver.
func (d *Driver) Read(ctx context.Context) ([]hardware.Entry, error) {
	var entries []hardware.Entry
	err := d.do(ctx, func() error {
		t, err := d.load(ctx)
		if err == nil {
			entries = t.inventory.Entries()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// Boot implements hardware.Driver.
func (d *Driver) Boot(ctx context.Context) (string, error) {
	var boot string
	err := d.do(ctx, func() (err error) {
		boot, err = d.ensureDevice()
		return err
	})
	if err != nil {
		return "", err
	}
	return boot, nil
}

// Close implements hardware.Driver. What is programmed stays.
func (d *Driver) Close() error {
	d.busy <- struct{}{} // a call that was given up
	defer func() { <-d.busy }()
	if d.links != nil {
		d.links.Close()
	}
	if d.events != nil {
		d.events.Close()
	}
	if d.Reader != nil {
		d.Reader.Close()
	}
	if d.kernel != nil {
		d.kernel.close()
	}
	return nil
}
